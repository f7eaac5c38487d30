"""What has ended is forgotten a while later; what is still referred to stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from sqlalchemy import select

from matrixcommon.model.quantities import timestamp
from matrixresource.contract.reservations import ReservationRequest
from matrixresource.contract.topology import SupernodeRequest
from matrixresource.store.history import delete_history
from matrixresource.store.topology_versions import SpecRow, TopologyVersionRow, supernodes
from matrixresource.topology.loading import load_spec
from tests.matrixresource.machine import Machine
from tests.matrixresource.topology.three_cabinets import three_cabinets

DAY_S = 86_400.0


class MachineWithHistory(Machine):
    """One small supernode, and what is left of it when everything older than a day is forgotten."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, spec=load_spec(three_cabinets()))

    def versions(self) -> list[int]:
        delete_history(self.store, self.clock.now() - DAY_S)
        with self.store.reading() as session:
            return sorted(session.scalars(select(TopologyVersionRow.number)))

    def graphs(self) -> int:
        with self.store.reading() as session:
            return len(session.scalars(select(SpecRow.fingerprint)).all())

    def promised(self, name: str, within_s: float = 60) -> None:
        request = {"nodes": 1, "startsAt": timestamp(self.clock.now() + within_s), "durationS": 600}
        self.allocator.reservations.put(name, ReservationRequest.model_validate(request))

    def known(self) -> list[str]:
        delete_history(self.store, self.clock.now() - DAY_S)
        return [each.name for each in self.reservations()]


@pytest.fixture
def machine(tmp_path: Path) -> MachineWithHistory:
    return MachineWithHistory(tmp_path)


def test_a_version_is_forgotten_a_day_after_another_superseded_it(machine: MachineWithHistory) -> None:
    machine.clock.at += 5 * DAY_S
    assert machine.versions() == [1], "the newest stays, however old"
    machine.topology_manager.close("sn0-c01", by="me")
    machine.clock.at += DAY_S / 2
    machine.topology_manager.open("sn0-c01", by="me")
    assert machine.versions() == [1, 2, 3]
    machine.clock.at += DAY_S / 2 + 1
    assert machine.versions() == [2, 3], "until half a day ago the machine was the second"
    machine.clock.at += DAY_S / 2
    assert machine.versions() == [3]


def test_a_version_that_an_allocation_was_made_on_stays_as_long_as_that(machine: MachineWithHistory) -> None:
    machine.provision("job", nodes=1)
    machine.topology_manager.close("sn0-c01", by="me")
    machine.clock.at += 2 * DAY_S
    assert machine.versions() == [1, 2]
    machine.allocator.release("job")
    machine.report_all()
    assert machine.versions() == [2]


def test_a_graph_goes_with_the_last_version_that_has_it(machine: MachineWithHistory) -> None:
    other = yaml.safe_load(three_cabinets().read_text())
    other["latency"]["die_die_us"]["value"] = 0.21
    machine.topology_manager.ensure_supernode("sn1", SupernodeRequest(spec=other), by="me")
    machine.topology_manager.remove_supernode("sn1", by="me")
    assert machine.graphs() == 2
    machine.clock.at += DAY_S + 1
    assert machine.versions() == [3]
    assert machine.graphs() == 1
    with machine.store.reading() as session:
        assert [*supernodes(session)] == ["sn0"]


def test_a_reservation_is_forgotten_a_day_after_its_end(machine: MachineWithHistory) -> None:
    machine.promised("soon")
    machine.promised("later", within_s=10 * DAY_S)
    machine.clock.at += 60
    machine.allocator.reservations.reconcile()
    machine.allocator.release("soon")
    machine.allocator.reservations.reconcile()
    assert machine.reservation("soon").state == "Ended"
    machine.clock.at += DAY_S - 1
    assert machine.known() == ["later", "soon"]
    machine.clock.at += 2
    assert machine.known() == ["later"], "what is promised stays, however long ago that was"
    machine.check()


def test_a_reservation_stays_while_an_allocation_has_nodes_of_it(machine: MachineWithHistory) -> None:
    machine.promised("soon")
    machine.clock.at += 60
    machine.allocator.reservations.reconcile()
    machine.reserve("job", nodes=1, reservation="soon")
    assert machine.reservation("soon").state == "Ended", "all of it was taken"
    machine.clock.at += 2 * DAY_S
    assert machine.known() == ["soon"]
    machine.allocator.release("job")
    machine.report_all()
    assert machine.known() == []
    machine.check()
