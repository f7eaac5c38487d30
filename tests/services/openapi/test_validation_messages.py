"""What a refused value is told: words, not the regular expression that a field has in its schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from infer_workload.contract.caches import CachedBlock
from infer_workload.report_store.contract import Line
from matrixcommon.model.validation import pattern_of, validation_message
from matrixcompute.autoscaling.policy import TimeOfDay
from matrixcompute.maintenance.spec import FIRMWARE_VERSION
from matrixcompute.scenarios.schema import Duration, Label, Target

MODELS = (CachedBlock, Line, TimeOfDay, FIRMWARE_VERSION, Duration, Label, Target)
"""What declares patterns; importing them registers their words."""


def message(declared: Any, value: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(declared).validate_python(value)
    return validation_message(refused.value.errors()[0])


def test_refused_text_is_shown_with_what_would_be_accepted():
    assert message(TimeOfDay, "25:00") == "'25:00' is not a time of day from 00:00 to 23:59, such as 09:30"
    assert message(Duration, "10x") == "'10x' is not a duration such as 500ms, 90s, 5m or 1.5h"
    assert message(Duration, "x" * 1000) == f"'{'x' * 80}...' is not a duration such as 500ms, 90s, 5m or 1.5h"


def test_other_messages_stay_without_pydantics_prefix():
    assert message(int, "x") == "Input should be a valid integer, unable to parse string as an integer"


def _patterns(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "pattern" and isinstance(value, str) and "type" in part:
                yield value
            yield from _patterns(value)
    elif isinstance(part, list):
        for each in part:
            yield from _patterns(each)


@pytest.mark.parametrize("document", sorted(Path("docs/reference/openapi").glob("*.json")), ids=lambda path: path.stem)
def test_every_pattern_of_an_interface_has_words(document: Path):
    found = set(_patterns(json.loads(document.read_text())))
    wordless = [
        each for each in found
        if "should match" in validation_message(
            {"type": "string_pattern_mismatch", "ctx": {"pattern": each}, "input": "", "msg": "should match"}
        )
    ]  # fmt: skip
    assert not wordless, f"declare them with {pattern_of.__name__}"
