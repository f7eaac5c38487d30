"""Sockets and memory alone: what is required of them toward others holds for the nodes that they are pooled from."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import InsufficientCapacity
from matrixresource.contract.plans import PlanRequest
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
def test_a_pool_lies_apart_from_others_and_near_them(machine, pooled, other, level):
    machine.ask("other", **other)
    rule = {"allocations": ["other"], "level": level}
    machine.ask("apart", **pooled, antiAffinity=rule)
    assert not domains(machine, "apart", level) & domains(machine, "other", level)
    machine.ask("far", **pooled, antiAffinity={"allocations": ["other"], "level": "supernode"})
    machine.ask("near", **pooled, affinity={"allocations": ["far"], "level": level})
    assert domains(machine, "near", level) <= domains(machine, "far", level)
    machine.check()


def test_what_is_required_is_refused_rather_than_left_out_and_what_is_preferred_is_not(machine):
    machine.ask("everywhere", nodes=24, placement={"policy": "pack", "level": "supernode"})
    rule = {"allocations": ["everywhere"], "level": "node"}
    with pytest.raises(InsufficientCapacity):
        machine.ask("pool", cpus=2, antiAffinity=rule)
    plan = machine.planner.plan(PlanRequest.model_validate({"cpus": 2, "antiAffinity": rule}))
    assert not plan.fits
    assert [(change.kind, change.rule) for change in plan.changes if change.kind == "Relax"]
    assert machine.ask("pool", cpus=2, antiAffinity={**rule, "required": False}).state == "Reserved"
    machine.ask("pool", cpus=4, antiAffinity={**rule, "required": False})
    machine.check()
