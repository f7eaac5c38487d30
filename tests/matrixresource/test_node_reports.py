"""What a report does: taken or refused as stale, inventories compared, parts seen; agent and service through restarts."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from sqlalchemy import select

from matrixresource.agent.agent import ResourceAgent, node_stages
from matrixresource.agent.hardware import EmulatedNode, InjectedFault
from matrixresource.contract.agents import DesiredPartition, NodeReport
from matrixresource.nodes.expected_inventory import build_inventory, mismatches, part_names
from matrixresource.store.agent_leases import LeaseRow
from matrixresource.store.allocation_tables import AssignmentRow
from matrixresource.store.node_events import NodeEventRow
from matrixresource.topology.loading import load_spec
from tests.clocks import LoopClock
from tests.matrixresource.reporting import NODE, ReportingService
from tests.stack import Stack

SPEC = load_spec()


@pytest.mark.parametrize(
    ("sentence", "epoch", "sequence", "reason"),
    [
        ("the next report of this life", 3, 11, None),
        ("a report may be lost", 3, 20, None),
        ("the same again", 3, 10, "StaleReport"),
        ("an older one", 3, 9, "StaleReport"),
        ("an earlier life, however far it came", 2, 1000, "StaleReport"),
        ("a new life begins to count anew", 4, 0, None),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_stale_report_is_refused_and_changes_nothing(tmp_path, sentence, epoch, sequence, reason, restarted):
    service = ReportingService(tmp_path)
    service.report(epoch=3, sequence=10, stage="seen")
    if restarted:
        service.start()
    answer = service.report(("220001001", "npu1"), epoch=epoch, sequence=sequence, stage="told")
    assert (answer.accepted, answer.reason) == (reason is None, reason), sentence
    assert service.node.stage == ("told" if reason is None else "seen")
    assert bool(service.node.faults) == (reason is None)


def test_reports_without_news_are_written_down_once_in_half_a_lease(tmp_path):
    service = ReportingService(tmp_path)

    def written() -> int:
        with service.store.reading() as session:
            return session.get_one(LeaseRow, NODE).sequence

    seen = []
    for after_s, stage in [(0, "seen"), (1, "seen"), (13, "seen"), (1, "seen"), (1, "seen"), (1, "told"), (1, "told")]:
        service.report(after_s=after_s, stage=stage)
        seen.append(written())
    assert seen == [1, 1, 1, 4, 4, 6, 6]


async def test_silence_and_return_of_an_agent_are_events_of_its_node(tmp_path):
    service = ReportingService(tmp_path)
    service.report()

    def events() -> list[tuple[str, str, str]]:
        with service.store.reading() as session:
            rows = session.scalars(select(NodeEventRow).order_by(NodeEventRow.at, NodeEventRow.name))
            return [(row.about, row.reason, row.message) for row in rows]

    service.clock.at += 61
    await service.reports.watch_leases()
    await service.reports.watch_leases()
    lost = (NODE, "AgentLost", "its agent has not reported for 61 s")
    assert events() == [lost], "nodes that never reported are not lost"
    service.report()
    service.report(after_s=1)
    assert (NODE, "AgentConnected", "its agent reports again") in events()
    assert len(events()) == 2


def test_outdated_agent_receives_the_newest_spec(tmp_path):
    service = ReportingService(tmp_path)
    spec(service, [part("a", 0)])
    answer = service.report(generation=1)
    assert (answer.desired.generation, answer.desired.parts[0].allocation) == (2, "a")
    assert service.node.observed_generation < service.node.assignment_generation
    assert service.report(generation=2).desired is None
    assert service.node.in_sync


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("npu5", "NPUs: expected 8, found 7 (missing npu5)"),
        ("npu5-die1", "npu5 dies: expected 10, 11, found 10; npu5 HBM: expected 128 GB, found 64 GB"),
        ("cpu3", "CPUs: expected 4, found 3"),
        ("dimm7", "memory: expected 2048 GiB, found 1984 GiB"),
        ("rdma-npu2-die0", "ports: expected 241, found 240 (missing rdma-npu2-die0)"),
        ("vpc", "ports: expected 241, found 240 (missing vpc)"),
    ],
)
def test_node_with_a_missing_part_is_unschedulable(tmp_path, missing, sentence):
    service = ReportingService(tmp_path)
    assert service.report().inventory_wanted, "nothing is known of it yet"
    assert not service.report(inventory=build_inventory(SPEC)).inventory_wanted
    assert (service.node.fault(), service.node.view().schedulable) == (None, True)
    assert sentence in "; ".join(mismatches(SPEC, build_inventory(SPEC, [missing])))
    service.report(inventory=build_inventory(SPEC, [missing]))
    service.start()
    assert not service.report().inventory_wanted
    view = service.node.view()
    assert (view.schedulable, view.unschedulable_reason) == (False, "InventoryMismatch")
    (condition,) = view.conditions
    assert (condition.type, condition.status, condition.reason) == ("InventoryMatches", "False", "InventoryMismatch")
    assert sentence in condition.message
    service.report(inventory=build_inventory(SPEC))
    assert (service.node.fault(), service.node.conditions[0]["status"]) == (None, "True")


def test_missing_parts_are_detected_exactly():
    assert mismatches(SPEC, build_inventory(SPEC)) == []
    assert mismatches(SPEC, build_inventory(SPEC, serial="x", firmware="y")) == []
    for name in part_names(SPEC):
        assert mismatches(SPEC, build_inventory(SPEC, [name])), name
    extra = build_inventory(SPEC)
    assert mismatches(SPEC, extra.model_copy(update={"ports": [*extra.ports, "usb"]})) == [
        "ports: expected 241, found 242 (unexpected usb)"
    ]


# -- agent and service together ----------------------------------------------------------------------------------


def part(allocation: str, *dies: int) -> DesiredPartition:
    return DesiredPartition(allocation=allocation, dies=list(dies))


def spec(service: ReportingService, parts: list[DesiredPartition]) -> None:
    """What the allocator does when a part is given or taken: one generation on."""
    with service.store.transaction() as session:
        row = session.get(AssignmentRow, NODE)
        row.parts, row.generation = [each.wire() for each in parts], row.generation + 1
        service.store.node(session, NODE).assignment_generation = row.generation


class AgentAndService:
    """An agent and the service, a report a second between them."""

    def __init__(self, service: ReportingService) -> None:
        self.service = service
        self.hardware = EmulatedNode(NODE)
        self.agent = self._new_agent()
        self.life = asyncio.create_task(self.agent.run())

    def _new_agent(self) -> ResourceAgent:
        return ResourceAgent(self.hardware, node_stages(), LoopClock(), Random(1), lambda: None, 30.0)

    def restart_agent(self) -> None:
        self.life.cancel()
        memory, self.agent = self.agent.memory(), self._new_agent()
        self.agent.restore(memory)
        self.life = asyncio.create_task(self.agent.run())

    def exchange(self) -> NodeReport:
        report = self.agent.report()
        self.agent.handle_reply(report, self.service.reports.process([report])[0])
        return report

    async def until(self, **parts: str) -> list[NodeReport]:
        """Reports exchanged until just these parts were seen, of the newest spec."""
        reported = []
        while not (self.service.node.in_sync and self.service.node.reported_partitions == parts):
            reported.append(self.exchange())
            await asyncio.sleep(1)
        return reported


@pytest.mark.looptime
async def test_parts_are_seen_through_restarts_of_either_side(tmp_path):
    service = ReportingService(tmp_path)
    pair = AgentAndService(service)
    spec(service, [part("a", 0, 1), part("b", 2)])
    await pair.until(a="Preparing", b="Preparing")
    pair.restart_agent()
    await pair.until(a="Active", b="Active")
    service.start()
    spec(service, [part("b", 2, 3)])
    await pair.until(a="Releasing", b="Preparing")
    pair.restart_agent()
    service.start()
    await pair.until(b="Active")
    spec(service, [])
    await pair.until()
    pair.life.cancel()


@pytest.mark.looptime
async def test_an_inventory_is_reported_once_a_life_when_it_changes_and_when_asked_for(tmp_path):
    service = ReportingService(tmp_path)
    pair = AgentAndService(service)
    assert [pair.exchange().inventory is not None for _ in range(3)] == [True, False, False]
    pair.hardware.apply_faults([InjectedFault(name="f", kind="missing-part", target=NODE, parameters={"part": "npu5"})])
    assert [pair.exchange().inventory is not None for _ in range(2)] == [True, False]
    assert service.node.fault() == "InventoryMismatch"
    spec(service, [part("a", 10, 11), part("b", 0)])
    await pair.until(a="Failed", b="Active")
    pair.hardware.apply_faults([])
    pair.restart_agent()
    assert [pair.exchange().inventory is not None for _ in range(2)] == [True, False]
    assert service.node.fault() is None
    await pair.until(a="Active", b="Active")
    service.forget_inventories()
    assert [pair.exchange().inventory is not None for _ in range(3)] == [False, True, False]
    pair.life.cancel()


@pytest.mark.looptime
async def test_unanswered_report_is_repeated(tmp_path):
    service = ReportingService(tmp_path)
    pair = AgentAndService(service)
    pair.exchange()
    pair.hardware.apply_faults(
        [
            InjectedFault(name="f", kind="missing-part", target=NODE, parameters={"part": "npu5"}),
            InjectedFault(name="g", kind="link-down", target=NODE, parameters={"port": "ub-p3-k11"}),
        ]
    )
    (taken,) = service.reports.process([pair.agent.report()])
    assert taken.accepted, "and the answer is lost on its way"
    assert service.node.fault() == "InventoryMismatch"
    pair.hardware.apply_faults([])
    corrected = pair.exchange()
    assert corrected.ports == {"ub-p3-k11": pair.hardware.peers["ub-p3-k11"]}
    assert service.node.fault() is None
    again = pair.exchange()
    assert (again.inventory, again.ports) == (None, None), "once it was answered"
    pair.life.cancel()


@pytest.mark.looptime
async def test_broken_ports_make_their_chips_raise_codes(tmp_path):
    service = ReportingService(tmp_path)
    pair = AgentAndService(service)
    ports = {"a": "ub-p3-k11", "b": "rdma-npu2-die1", "c": "vpc"}
    pair.hardware.apply_faults(
        [InjectedFault(name=n, kind="link-down", target=NODE, parameters={"port": p}) for n, p in ports.items()]
    )
    pair.exchange()
    faults = service.node.view().faults
    assert [(fault.component, fault.level) for fault in faults] == [
        ("npu2-die1", "NotHandle"),
        ("ub-p3-k11", "NotHandle"),
    ]
    pair.life.cancel()


@pytest.mark.looptime
@pytest.mark.parametrize(
    "changes",
    [{"epoch": 2**63}, {"sequence": -1}, {"leaseS": "soon"}, {"status": "Odd"}, {"x": 1}, {"stage": "s" * 41}],
)
async def test_invalid_report_does_not_affect_others(tmp_path, changes):
    async with Stack(tmp_path) as stack:
        reports = [
            {"node": node, "epoch": 2**40, "sequence": 1, "leaseS": 60, "status": "Clean", "generation": 0}
            for node in ("sn0-c00-n0", "sn0-c00-n1")
        ]
        answer = await stack.http["resource"].post(
            "/v1/node-reports", json={"reports": [reports[0] | changes, reports[1]]}
        )
        assert answer.status_code == 200, answer.text
        refused, taken = answer.json()["answers"]
        assert (refused["accepted"], refused["reason"]) == (False, "InvalidField")
        assert refused["message"].startswith(next(iter(changes)))
        assert taken["accepted"], taken
