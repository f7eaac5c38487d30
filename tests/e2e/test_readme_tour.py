"""README's five-minute tour works as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.tours import ROOT, at_endpoint_of, commands, needs_kubectl, walk

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def tour() -> str:
    """The commands, with an end to the watch a person would interrupt."""
    words = at_endpoint_of("deepseek-r1", commands((ROOT / "README.md").read_text()))
    return re.sub(r"^kubectl get cmi -w.*$", "timeout 10 kubectl get cmi -w || true", words, flags=re.MULTILINE)


@needs_kubectl
def test_the_tour_works_as_written(tmp_path: Path) -> None:
    said = walk(tour(), tmp_path, 200)
    assert "Active" in said
    assert '"choices"' in said
    assert "NodeReplaced" in said
    assert "deleted" in said
