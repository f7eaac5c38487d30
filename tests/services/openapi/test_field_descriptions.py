"""Every field in the OpenAPI documents has a description, declared with the field in its model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCUMENTS = Path(__file__).parents[3] / "docs/reference/openapi"


def described_fields(service: str) -> Iterator[tuple[str, str]]:
    """Every property of every schema, as `Schema.field`, with its description."""
    document = json.loads((DOCUMENTS / f"{service}.json").read_text())
    for name, schema in document["components"]["schemas"].items():
        for field, part in schema.get("properties", {}).items():
            yield f"{name}.{field}", part.get("description", "")


def words(text: str) -> str:
    """`readyNodes` and `Ready nodes` as the same words."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


SERVICES = sorted(each.stem for each in DOCUMENTS.glob("*.json"))


@pytest.mark.parametrize("service", SERVICES)
def test_every_field_has_a_description(service: str) -> None:
    assert [field for field, means in described_fields(service) if not means] == []


@pytest.mark.parametrize("service", SERVICES)
def test_no_description_only_repeats_the_name_or_ends_in_a_full_stop(service: str) -> None:
    wrong = [
        f"{field}: {means}"
        for field, means in described_fields(service)
        if words(means) == words(field.partition(".")[2]) or means.endswith(".")
    ]
    assert wrong == []
