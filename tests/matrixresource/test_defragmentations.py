"""Plans that make room: reviewed, approved, carried out one move after the other, and over when they no longer hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from matrixcommon.model.errors import Conflict, ExceedsDomain, InsufficientCapacity, StalePlan
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.quantities import timestamp
from matrixcommon.persistence.database_session import find
from matrixresource.contract.allocations import DEPLOYMENT_LABEL, AllocationRequest
from matrixresource.contract.defragmentations import (
    INSTANCE_LABEL,
    POD_LABEL,
    DefragmentationRequest,
    DefragmentationView,
    MoveRefused,
    RelocateRequest,
)
from matrixresource.contract.reservations import ReservationRequest
from matrixresource.controllers.defragmentation import ProposedPlanReconciler
from matrixresource.defragmentation.service import DefragmentationService
from matrixresource.defragmentation.workflows import DefragmentationHost
from matrixresource.store.defragmentations import DefragmentationRow
from tests.clocks import StandingClock
from tests.matrixresource.machine import Machine

CABINET = {"policy": "pack", "level": "cabinet", "required": True}


class ScatteredMachine(Machine):
    """Nine cabinets full and three nodes of c09 taken; c10 has a, b and c11 has c, d: no cabinet has four free."""

    HOLDING = (("full", 36), ("most", 3), ("w", 1), ("a", 1), ("b", 1), ("x", 1), ("y", 1), ("c", 1), ("d", 1))

    def __init__(self, folder: Path, labels: dict[str, dict[str, str]] | None = None) -> None:
        super().__init__(folder)
        for name, nodes in self.HOLDING:
            more = {"placement": CABINET} if nodes in (2, 3) else {}
            self.reserve(name, nodes=nodes, labels=(labels or {}).get(name, {}), **more)
            self.allocator.bind(name)
        self.report_all()
        for name in "wxy":
            self.allocator.release(name)
        self.report_all()

    def start(self, names: list[str]) -> None:
        super().start(names)
        host = DefragmentationHost(self.store, self.allocator, StandingClock(self.clock))
        self.runner = host.runner()
        self.plans = DefragmentationService(self.store, self.allocator.ledger, self.clock, self.runner)
        self.proposed = ProposedPlanReconciler(self.store, self.clock)

    def run_workflows(self) -> None:
        """What runs beside requests gets as far as it can, in one life of the process."""
        asyncio.run(self._run_once())

    async def _run_once(self) -> None:
        await self.proposed.reconcile()
        self.runner.wake = self.runner.resume
        self.runner.resume()
        while self.runner.busy:
            await asyncio.sleep(0)
        await self.runner.stop()

    def propose(self, **desired: object) -> DefragmentationView:
        return self.plans.propose(DefragmentationRequest.model_validate({"name": "p"} | (desired or {"nodes": 4})))

    def plan(self) -> DefragmentationView:
        with self.store.reading() as session:
            return find(session, DefragmentationRow, "p").view()

    def approve(self, **desired: object) -> DefragmentationView:
        self.propose(**desired)
        return self.plans.approve("p")

    def run_until_done(self) -> DefragmentationView:
        """Everybody does what is asked, for as long as that takes."""
        for _ in range(5):
            self.run_workflows()
            self.report_all()
        self.run_workflows()
        self.check()
        return self.plan()

    def free(self) -> list[str]:
        with self.store.reading() as session:
            return [node.name for node in self.store.nodes(session) if node.holder is None]

    def where(self, *names: str) -> dict[str, list[str]]:
        return {name: [member.node for member in self.allocation(name).members] for name in names}


def test_proposed_plan_reserves_nothing(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    plan = machine.propose()
    assert (plan.state, plan.level, plan.block_before, plan.block_after) == ("Proposed", "cabinet", 2, 4)
    assert (plan.npus, plan.npus_moved, len(plan.room), plan.exact) == (16, 0, 4, True)
    assert {(move.allocation, move.by, move.state) for move in plan.moves} in (
        {("a", "MatrixResource", "Waiting"), ("b", "MatrixResource", "Waiting")},
        {("c", "MatrixResource", "Waiting"), ("d", "MatrixResource", "Waiting")},
    )
    assert machine.propose() == plan
    with pytest.raises(Conflict, match="exists with another spec"):
        machine.propose(nodes=3)
    with pytest.raises(Conflict, match="already room for 2 nodes"):
        machine.propose(name="q", nodes=2)
    with pytest.raises(ExceedsDomain, match="no move can change that"):
        machine.propose(name="q", nodes=5, level="cabinet")
    machine.reserve("new", nodes=5)
    machine.run_workflows()
    plan = machine.plan()
    assert (plan.state, plan.conditions[0].reason) == ("Stale", "StalePlan"), "somebody came to lie there"
    assert "new is placed on" in plan.message


def test_room_is_made_move_by_move_and_stays_reserved(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    request = {"nodes": 4, "placement": CABINET}
    with pytest.raises(InsufficientCapacity):
        machine.reserve("gang", **request)
    before = machine.where("a", "b", "c", "d")
    plan = machine.approve(request=request)
    assert plan.state == "Approved"
    with pytest.raises(InsufficientCapacity):
        machine.reserve("greedy", nodes=2)
    machine.run_workflows()
    first = machine.plan().moves[0]
    assert machine.plan().state == "Running"
    assert {(m.node, m.role) for m in machine.allocation(first.allocation).members} == {
        (first.source, "member"),
        (first.to, "successor"),
    }, "nobody leaves before somebody is there"
    machine.restart()
    assert machine.plans.approve("p").state == "Running", "asked again it changes nothing"
    done = machine.run_until_done()
    assert (done.state, done.moves_done, done.npus_moved) == ("Done", 2, 16)
    after = machine.where("a", "b", "c", "d")
    moved = {move.allocation: [move.to] for move in plan.moves}
    assert after == before | moved
    assert {member.node for member in machine.reserve("gang", **request).members} == set(plan.room)
    machine.plans.delete("p")


def test_cache_memory_blocks_no_move(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    cached = {f"sn0-c{cabinet:02d}-n{node}": 512 for cabinet in (9, 10, 11) for node in range(4)}
    machine.reserve("r1-ems", memoryGibByNode=cached, labels={DEPLOYMENT_LABEL: "r1"})
    plan = machine.approve(request={"nodes": 4, "placement": CABINET})
    assert {*plan.room, *(move.to for move in plan.moves)} <= cached.keys()
    machine.run_workflows()
    move = machine.plan().moves[0]
    ask = RelocateRequest(node=NodeName(move.source), to=NodeName(move.to), defragmentation="p")
    assert machine.allocator.relocate(move.allocation, ask).members, "the node that it moves to is taken"
    assert (machine.run_until_done().state, machine.plan().moves_done) == ("Done", 2)
    gang = machine.reserve("gang", nodes=4, placement=CABINET)
    assert {member.node for member in gang.members} == set(plan.room)
    assert {member.node: member.memory_gib for member in machine.allocation("r1-ems").members} == cached, "it stayed"


def test_parts_of_nodes_block_a_plan(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    machine.propose()
    for name in ("one", "other"):  # of five free nodes the plan needs four
        machine.reserve(name, npus=5)
    with pytest.raises(StalePlan, match="SharedByParts"):
        machine.plans.approve("p")


def test_cancelled_it_stops_after_the_move_under_way(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    plan = machine.approve()
    machine.run_workflows()
    with pytest.raises(Conflict, match="cancel it first"):
        machine.plans.delete("p")
    machine.plans.cancel("p")
    done = machine.run_until_done()
    assert (done.state, done.moves_done) == ("Cancelled", 1)
    assert [move.state for move in done.moves] == ["Moved", "Waiting"]
    assert machine.where(plan.moves[0].allocation)[plan.moves[0].allocation] == [plan.moves[0].to]
    machine.reserve("free-again", nodes=1)
    assert machine.plans.cancel("p").state == "Cancelled"


class PairedMachine(ScatteredMachine):
    """The same, with pairs that must lie in one cabinet each."""

    HOLDING = (("full", 40), ("ab", 2), ("x", 1), ("y", 1), ("cd", 2), ("w", 1))


def test_cancellation_does_not_split_an_allocation(tmp_path: Path) -> None:
    machine = PairedMachine(tmp_path)
    machine.approve()
    machine.run_workflows()
    machine.plans.cancel("p")
    done = machine.run_until_done()
    assert (done.state, done.moves_done) == ("Cancelled", 2)
    for name in ("ab", "cd"):
        assert len({member.cabinet for member in machine.allocation(name).members}) == 1


def test_pods_stay_and_instances_are_moved_by_their_owner(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path, {"a": {POD_LABEL: "p"}, "c": {INSTANCE_LABEL: "c"}})
    plan = machine.approve()
    assert {(move.allocation, move.by) for move in plan.moves} == {("c", "MatrixCompute"), ("d", "MatrixResource")}
    waits = machine.run_until_done()
    mine = next(move for move in waits.moves if move.allocation == "c")
    assert (waits.state, mine.state) == ("Running", "Moving")
    assert machine.allocation("c").members[0].node == mine.source, "only its owner moves it"
    ask = RelocateRequest(node=NodeName(mine.source), to=NodeName(mine.to), defragmentation="p")
    with pytest.raises(Conflict, match="Kept"):
        machine.allocator.relocate("c", ask.model_copy(update={"defragmentation": None}))
    for _ in range(2):
        view = machine.allocator.relocate("c", ask)
        assert sorted(member.role for member in view.members) == ["member", "successor"]
    machine.report_all()
    machine.allocator.cut_over("c", AllocationRequest(nodes=1, labels={INSTANCE_LABEL: "c"}))
    assert machine.allocator.relocate("c", ask).members[0].node == mine.to, "asked again it finds it done"
    assert machine.run_until_done().state == "Done"


def test_refused_move_ends_the_plan(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path, {name: {INSTANCE_LABEL: name} for name in "abcd"})
    machine.approve()
    move = machine.run_until_done().moves[0]
    reported = MoveRefused(
        allocation=move.allocation, node=NodeName(move.source), to=NodeName(move.to), reason="NoBandwidth", message="no"
    )
    assert machine.plans.handle_refusal("p", reported.model_copy(update={"allocation": "full"})).state == "Running"
    failed = machine.plans.handle_refusal("p", reported)
    assert (failed.state, failed.conditions[0].reason) == ("Failed", "NoBandwidth")
    machine.reserve("free-again", nodes=2)


def test_a_target_lost_on_the_way_is_planned_around_as_long_as_that_costs_no_more(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    plan = machine.approve()
    machine.run_workflows()
    machine.allocator.cordon(NodeName(plan.moves[0].to), True)
    machine.run_workflows()
    machine.report_all()
    view = machine.plan()
    assert (view.state, view.conditions[0].reason) == ("Running", "PlannedAnew")
    assert "Cordoned" in view.conditions[0].message
    assert plan.moves[0].to not in {move.to for move in view.moves} | set(view.room)
    done = machine.run_until_done()
    assert (done.state, done.npus_moved) == ("Done", 16)


def test_stale_plan_releases_its_nodes(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    plan = machine.approve()
    machine.run_workflows()
    kept = {*plan.room, *(move.to for move in plan.moves)}
    machine.allocator.cordon(NodeName(plan.moves[0].to), True)
    spare = next(name for name in machine.free() if name not in kept)
    machine.allocator.cordon(NodeName(spare), True)
    done = machine.run_until_done()
    assert (done.state, done.conditions[0].reason) == ("Stale", "StalePlan")
    assert [len(machine.allocation(name).members) for name in "abcd"] == [1, 1, 1, 1]
    with machine.store.reading() as session:
        assert not any(node.reserved_for_plan for node in machine.store.nodes(session))


def test_newly_promised_nodes_are_not_used(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    room = machine.propose().room
    starts = timestamp(machine.clock.now() + 600)
    request = ReservationRequest.model_validate({"nodes": 5, "startsAt": starts, "durationS": 600})
    promised = machine.allocator.reservations.put("later", request).nodes
    assert set(promised) & set(room)
    with pytest.raises(StalePlan, match="promised to a reservation"):
        machine.plans.approve("p")
    assert machine.plan().state == "Stale"
    source = machine.allocation("a").members[0].node
    with pytest.raises(Conflict, match="promised to a reservation"):
        machine.allocator.relocate("a", RelocateRequest.model_validate({"node": source, "to": promised[0]}))
    machine.allocator.renew("a", 60)
    moved = machine.allocator.relocate("a", RelocateRequest.model_validate({"node": source, "to": promised[0]}))
    assert promised[0] in {member.node for member in moved.members}, "it is gone by then"
    machine.check()


def test_an_old_plan_is_refused(tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    plan = machine.propose()
    machine.allocator.cordon(NodeName(plan.moves[0].to), True)
    with pytest.raises(StalePlan, match="Cordoned"):
        machine.plans.approve("p")
    assert machine.plan().state == "Stale"
    with pytest.raises(Conflict, match="Stale"):
        machine.plans.approve("p")


def test_hopeless_requests_are_not_searched(tmp_path):
    machine = ScatteredMachine(tmp_path)
    with pytest.raises(ExceedsDomain, match="a cabinet has 4 nodes, but 5 are required in one; no move can") as refused:
        machine.propose(nodes=5)
    assert refused.value.field == "nodes"
    request = {"nodes": 4, "placement": CABINET | {"level": "supernode"}}
    with pytest.raises(ExceedsDomain, match="a supernode has 48 nodes, but 60 are required in one") as refused:
        machine.propose(request=request | {"nodes": 60})
    assert refused.value.field == "request.placement.level"
    begins = timestamp(machine.clock.now() + 600)
    promised = {"nodes": 3, "startsAt": begins, "durationS": 600}
    machine.allocator.reservations.put("soon", ReservationRequest.model_validate(promised))
    with pytest.raises(
        InsufficientCapacity, match="4 nodes do not fit: the free capacity is promised to reservation soon"
    ):
        machine.propose(request=request)
