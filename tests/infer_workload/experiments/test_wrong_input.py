"""Wrong input to experiments is refused by name before anything runs, and what cannot come to pass is said."""

from __future__ import annotations

import pytest

from infer_workload.experiments.sweep import axis
from matrixcommon.model.errors import InvalidField


@pytest.mark.parametrize(
    "text", ["rate=1:inf", "rate=1:1e9999999", "rate=1:1e999999", "rate=1:2:1e-9999999", "rate=1:10:inf", "rate=1:nan"]
)
def test_a_range_without_an_end_or_a_step_is_refused(text: str) -> None:
    with pytest.raises(InvalidField) as refused:
        axis(text)
    assert refused.value.field == "--over"
