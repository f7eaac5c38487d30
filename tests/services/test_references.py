"""What a request refers to is kept by its key, which is longer than the name was, and has to be read back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.resource_model import ApiModel
from matrixlink.contract.peerings import PeeringRequest
from matrixresource.contract.allocations import AllocationRequest
from tests.services import every_route

LONGEST_KEY = f"{'p' * 63}/{'n' * 63}"
LOADED = every_route.RULES
"""Imported with the contracts of all services."""


def referring(model: type[ApiModel] = ApiModel) -> Iterator[tuple[type[ApiModel], str]]:
    for each in model.__subclasses__():
        yield from ((each, field) for field in each.__dict__.get("REFERENCES", ()))
        yield from referring(each)


def takes(model: type[ApiModel], field: str, value: Any) -> bool:
    declared = model.model_fields[field]
    try:
        TypeAdapter(declared.rebuild_annotation()).validate_python(value)
    except (ValidationError, InvalidField):
        return False
    return True


@pytest.mark.parametrize(("model", "field"), sorted(referring(), key=str))
def test_the_longest_key_fits_where_a_name_is_taken(model: type[ApiModel], field: str) -> None:
    annotation = model.model_fields[field].annotation
    if "str" in str(annotation):
        assert takes(model, field, [LONGEST_KEY] * 2 if "list" in str(annotation) else LONGEST_KEY)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (AllocationRequest(nodes=1, reservation="n" * 64), "reservation"),
        (AllocationRequest(nodes=1, reservation="a/b/c"), "reservation"),
        (AllocationRequest(nodes=1, affinity={"allocations": ["a", "B"]}), "affinity.allocations"),
        (PeeringRequest(slices=["a", "n" * 64]), "slices"),
    ],
)
def test_what_is_no_name_gets_no_key(request_: ApiModel, field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        request_.in_project("red")
    assert refused.value.field == field


def test_names_get_keys_and_keys_stay() -> None:
    asked = AllocationRequest(nodes=1, reservation="blue/later", affinity={"allocations": ["a", "default/b"]})
    keyed = asked.in_project("red")
    assert keyed.reservation == "blue/later"
    assert keyed.affinity is not None
    assert keyed.affinity.allocations == ["red/a", "b"]
