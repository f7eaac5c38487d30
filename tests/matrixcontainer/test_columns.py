"""What `kubectl get` shows of our kinds: always the state, and of a time whether it is emulated, as kubectl's own are not."""

from __future__ import annotations

import pytest

from matrixcontainer.operator.crds import custom_resource_definitions

DEFINITIONS = {each["spec"]["names"]["kind"]: each["spec"]["versions"][0] for each in custom_resource_definitions()}


@pytest.mark.parametrize("kind", sorted(DEFINITIONS))
def test_a_column_of_emulated_time_is_named_so(kind: str) -> None:
    version = DEFINITIONS[kind]
    properties = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    emulated = {
        f".status.{name}" for name, field in properties.items() if "in emulated time" in str(field.get("description"))
    }
    for column in version["additionalPrinterColumns"]:
        assert (column["jsonPath"] in emulated) == column["name"].endswith("(emulated)"), column


def test_times_of_leases_and_of_scaling_are_emulated() -> None:
    shown = {column["name"] for version in DEFINITIONS.values() for column in version["additionalPrinterColumns"]}
    assert {"Lease ends (emulated)", "Last scale (emulated)"} <= shown


@pytest.mark.parametrize("kind", sorted(DEFINITIONS))
def test_every_kind_shows_its_state_unasked(kind: str) -> None:
    """A resource that is refused, or being deleted, must not look like one that works."""
    shown = {each["jsonPath"] for each in DEFINITIONS[kind]["additionalPrinterColumns"] if not each.get("priority")}
    assert ".status.state" in shown
