"""docs/tutorials/autoscaling.md works as written, every block of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.tours import ROOT, at_endpoint_of, commands, needs_kubectl, walk

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.mark.soak
@needs_kubectl
def test_the_autoscaling_tour_works_as_written(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tutorials" / "autoscaling.md").read_text()
    text = walk(at_endpoint_of("autoscaled", commands(page)), tmp_path, 360)
    assert re.search(r"SuccessfulRescale .*New size: 10; reason: CloudMatrixInfer metric num_requests_waiting", text)
    assert "Drained" in text
    counts = re.search(r"\{'submitted': (\d+), 'finished': (\d+), 'inFlight': (\d+), 'lost': 0, 'requeued': 0\}", text)
    assert counts is not None
    assert int(counts[1]) == int(counts[2]) + int(counts[3]) > 0
    assert "unable to get metric requests_dreamt_of of CloudMatrixInfer autoscaled" in text
    assert "must be greater than or equal to `minReplicas`" in text
    assert re.search(r"^mine .* 3 +8 ", text, re.MULTILINE), "the refused minimum changed nothing"
