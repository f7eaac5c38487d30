"""Sockets and memory alone: what is required of them toward others holds for the nodes that they are pooled from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.errors import InsufficientCapacity, InvalidField
from matrixcommon.model.quantities import timestamp
from matrixresource.contract.plans import PlanRequest
from matrixresource.contract.reservations import ReservationRequest
from matrixresource.topology.loading import load_spec
from tests.matrixresource.machine import Machine
from tests.matrixresource.topology.three_cabinets import three_cabinets

POOLED = [{"cpus": 2}, {"memoryGib": 100}]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, supernodes=2, spec=load_spec(three_cabinets()))


def domains(machine: Machine, name: str, level: str) -> set[str]:
    cut = {"node": 3, "cabinet": 2, "supernode": 1}[level]
    return {"-".join(member.node.split("-")[:cut]) for member in machine.allocation(name).members}


@pytest.mark.parametrize("pooled", POOLED)
@pytest.mark.parametrize("other", [{"nodes": 1}, *POOLED])
@pytest.mark.parametrize("level", ["node", "cabinet", "supernode"])
def test_affinity_and_anti_affinity_of_a_pool(machine, pooled, other, level):
    machine.reserve("other", **other)
    rule = {"allocations": ["other"], "level": level}
    machine.reserve("apart", **pooled, antiAffinity=rule)
    assert not domains(machine, "apart", level) & domains(machine, "other", level)
    machine.reserve("far", **pooled, antiAffinity={"allocations": ["other"], "level": "supernode"})
    machine.reserve("near", **pooled, affinity={"allocations": ["far"], "level": level})
    assert domains(machine, "near", level) <= domains(machine, "far", level)
    machine.check()


def test_required_rules_are_refused_and_preferred_ones_relaxed(machine):
    machine.reserve("everywhere", nodes=24, placement={"policy": "pack", "level": "supernode"})
    rule = {"allocations": ["everywhere"], "level": "node"}
    with pytest.raises(InsufficientCapacity):
        machine.reserve("pool", cpus=2, antiAffinity=rule)
    plan = machine.planner.plan(PlanRequest.model_validate({"cpus": 2, "antiAffinity": rule}))
    assert not plan.fits
    assert [(change.kind, change.rule) for change in plan.changes if change.kind == "Relax"]
    assert machine.reserve("pool", cpus=2, antiAffinity={**rule, "required": False}).state == "Reserved"
    machine.reserve("pool", cpus=4, antiAffinity={**rule, "required": False})
    machine.check()


@pytest.mark.parametrize("pooled", POOLED)
@pytest.mark.parametrize(
    ("placement", "field"),
    [
        ({"policy": "spread", "level": "cabinet"}, "placement.policy"),
        ({"policy": "spread", "level": "supernode", "maxPerDomain": 1}, "placement.policy"),
        ({"policy": "spread", "level": "node"}, "placement.policy"),
        ({"policy": "pack", "level": "node"}, "placement.level"),
    ],
)
def test_required_placement_needs_members(
    machine: Machine, pooled: dict[str, int], placement: dict[str, Any], field: str
) -> None:
    body = {**pooled, "placement": {**placement, "required": True}}
    later = body | {"startsAt": timestamp(machine.clock.now() + 60), "durationS": 60}
    asking = [
        lambda: machine.reserve("pool", **body),
        lambda: machine.planner.plan(PlanRequest.model_validate(body)),
        lambda: machine.allocator.reservations.put("pool", ReservationRequest.model_validate(later)),
    ]
    for ask in asking:
        with pytest.raises(InvalidField) as refused:
            ask()
        assert refused.value.field == field
    preferred = {**body, "placement": {**placement, "required": False}}
    assert machine.reserve("pool", **preferred).state == "Reserved"
    machine.check()


@pytest.mark.parametrize("level", ["cabinet", "supernode"])
@pytest.mark.parametrize("size", [{"nodes": 2}, {"nodes": 2, "npusPerNode": 2}, {"nodes": 2, "npusPerNode": 0.5}])
@pytest.mark.parametrize("more", [{}, {"cpus": 6}, {"memoryGib": 5000}])
def test_spread_applies_to_members_of_any_size(
    machine: Machine, level: str, size: dict[str, float], more: dict[str, int]
) -> None:
    spread = {"policy": "spread", "level": level, "required": True, "maxPerDomain": 1}
    cut = {"cabinet": 2, "supernode": 1}[level]
    found = machine.reserve("job", **size, **more, placement=spread)
    members = ["-".join(each.node.split("-")[:cut]) for each in found.members if each.role == "member"]
    assert len(set(members)) == 2
    machine.check()


def test_refusal_names_the_block_that_fits_in_no_supernode(tmp_path: Path) -> None:
    machine = Machine(tmp_path, supernodes=2, spec=load_spec(three_cabinets()))
    machine.reserve("one", nodes=3)
    machine.reserve("two", nodes=3, antiAffinity={"allocations": ["one"], "level": "supernode"})
    placement = {"policy": "pack", "level": "supernode", "blocks": [{"nodes": 10, "level": "supernode"}]}
    with pytest.raises(
        InsufficientCapacity, match="cannot be divided into blocks of 10 that each fit in one supernode"
    ):
        machine.reserve("job", nodes=10, placement=placement)
    machine.reserve("job", nodes=10, placement={"policy": "pack", "level": "supernode"})
