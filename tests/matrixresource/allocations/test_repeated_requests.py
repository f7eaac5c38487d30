"""Who asks again for what was granted finds it, whatever has become of what the request refers to."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict, InvalidField, StaleTopology
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.topology.loading import load_spec
from tests.matrixresource.machine import Machine
from tests.matrixresource.topology.three_cabinets import three_cabinets

NEAR_HOME = {"nodes": 2, "affinity": {"allocations": ["home"], "level": "supernode"}}
SPREAD = {"nodes": 2, "placement": {"policy": "spread", "level": "cabinet", "maxPerDomain": 1}}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, spec=load_spec(three_cabinets()))


def test_repeat_after_affinity_target_is_released(machine: Machine) -> None:
    machine.provision("home", nodes=1)
    guest = machine.provision("guest", **NEAR_HOME)
    machine.allocator.release("home")
    machine.report_all()
    assert machine.names() == ["guest"]
    assert machine.reserve("guest", **NEAR_HOME).members == guest.members
    grown = {**NEAR_HOME, "nodes": 3}
    elsewhere = AllocationRequest.model_validate(NEAR_HOME | {"excludeNodes": [guest.members[0].node]})
    for change in (lambda: machine.reserve("guest", **grown), lambda: machine.allocator.move("guest", elsewhere)):
        with pytest.raises(
            Conflict, match="allocation 'home', which does not exist"
        ) as refused:  # it was right when it was granted
            change()
        assert refused.value.field == "affinity.allocations"
    with pytest.raises(InvalidField, match="allocation 'home', which does not exist"):
        machine.reserve("other", **NEAR_HOME)
    nobody = {**grown, "affinity": {"allocations": ["nobody"], "level": "supernode"}}
    with pytest.raises(InvalidField, match="allocation 'nobody', which does not exist"):
        machine.allocator.move("guest", AllocationRequest.model_validate(nobody))


def test_repeat_on_an_older_topology_version(machine: Machine) -> None:
    before = machine.provision("one", nodes=2)
    version = before.topology_version
    moved = AllocationRequest.model_validate({**SPREAD, "topologyVersion": version})
    begun = machine.allocator.move("one", moved)
    machine.reserve("two", nodes=1)
    machine.topology_manager.close("sn0-c02", by="me")
    assert machine.reserve("two", nodes=1, topologyVersion=version).state == "Reserved"
    with pytest.raises(StaleTopology):
        machine.reserve("two", nodes=2, topologyVersion=version)
    assert [each.node for each in machine.allocator.move("one", moved).members] == [each.node for each in begun.members]
    machine.report_all()
    assert {each.cabinet for each in machine.allocator.cut_over("one", moved).members} == {"sn0-c00", "sn0-c01"}
    with pytest.raises(StaleTopology):
        machine.allocator.move("one", moved.model_copy(update={"nodes": 3}))
    machine.check()
