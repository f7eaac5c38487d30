"""Overload: leases ask for what the process that plays the nodes can renew, and a service that was too busy to hear
holds nobody's silence against them. While machines keep up, leases are a node's own."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise
from types import SimpleNamespace

import pytest

from matrixcommon.model.errors import Unavailable
from matrixcommon.model.hardware_names import NodeName
from matrixcommon.model.process_pauses import ProcessPauses
from matrixcommon.model.resource_model import ApiModel
from matrixlink.controllers.agent_leases import Leases
from matrixresource.contract.agents import LOST_AFTER_LEASES
from services.node_agent.channels.agent_gateway import REPORTS_PER_CALL, AgentGateway, Channel
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.fleet.store import FleetStore
from tests.clocks import FixedClock, LoopClock
from tests.matrixresource.reporting import ReportingService

OWN_S = 30.0
NODES = [f"n{number}" for number in range(22 * REPORTS_PER_CALL)]


class Report(ApiModel):
    node: str
    lease_s: float = OWN_S
    labels: dict[str, str] = {}


class Service:
    """Takes reports, so many seconds for each call, and remembers which leases each node asked for, and when."""

    def __init__(self, call_s: float) -> None:
        self.call_s = call_s
        self.heard: dict[str, list[tuple[float, float]]] = {}

    async def report(self, reports: list[Report]) -> list[SimpleNamespace]:
        await asyncio.sleep(self.call_s)
        now = asyncio.get_running_loop().time()
        for each in reports:
            self.heard.setdefault(each.node, []).append((now, each.lease_s))
        return [SimpleNamespace(accepted=True) for _ in reports]

    def silences(self) -> list[float]:
        """Between two reports of a node, in leases that the first asked for."""
        return [(then - at) / lease_s for heard in self.heard.values() for (at, lease_s), (then, _) in pairwise(heard)]


async def played(
    call_s: float, seconds: float, nodes=NODES, period_s: float = 10.0, own_s: float = OWN_S
) -> tuple[Service, AgentGateway]:
    service = Service(call_s)
    agents = {node: SimpleNamespace(report=lambda node=node: Report(node=node, lease_s=own_s)) for node in nodes}
    reply = lambda agent, report, answer: None  # noqa: E731
    channel = Channel("resource", service, "assignments", ApiModel, "name", reply, leases_until_lost=LOST_AFTER_LEASES)
    gateway = AgentGateway(channel, LoopClock(), period_s, lambda: list(agents), agents.get, lambda: None)
    reporting = asyncio.create_task(gateway.report())
    await asyncio.sleep(seconds)
    reporting.cancel()
    return service, gateway


@pytest.mark.looptime
async def test_a_fleet_is_ready_once_every_service_has_answered_its_nodes():
    fleet = Fleet([NodeName("sn0-c00-n0")], FleetStore(None), LoopClock(), 1)
    for kind in ("resource", "link"):
        fleet.add_agents(
            kind, lambda node, _, changed: SimpleNamespace(memory=dict, report=lambda: Report(node=node.name))
        )
        service = Service(5.0 if kind == "link" else 1.0)
        fleet.connect(Channel(kind, service, "assignments", ApiModel, "name", lambda agent, report, answer: None))
    assert fleet.waiting_for() == "the first reports of its nodes to link and resource"
    reporting = [asyncio.create_task(gateway.report()) for gateway in fleet._gateways.values()]
    await asyncio.sleep(2)
    assert fleet.waiting_for() == "the first reports of its nodes to link"
    await asyncio.sleep(4)
    assert fleet.waiting_for() is None
    for each in reporting:
        each.cancel()


@pytest.mark.looptime
async def test_what_changes_during_a_round_is_on_the_cards_before_it_is_reported():
    statuses, written = dict.fromkeys(NODES, 0), dict.fromkeys(NODES, 0)
    ahead = list[str]()

    class Changing(Service):
        async def report(self, reports: list[Report]) -> list[SimpleNamespace]:
            ahead.extend(each.node for each in reports if each.labels["status"] != str(written[each.node]))
            for node in statuses:
                statuses[node] += 1
            return await super().report(reports)

    def agent(node: str) -> SimpleNamespace:
        return SimpleNamespace(report=lambda: Report(node=node, labels={"status": str(statuses[node])}))

    service, agents = Changing(1.0), {node: agent(node) for node in NODES}
    channel = Channel("resource", service, "assignments", ApiModel, "name", lambda agent, report, answer: None)
    gateway = AgentGateway(channel, LoopClock(), 10.0, lambda: NODES, agents.get, lambda: written.update(statuses))
    reporting = asyncio.create_task(gateway.report())
    await asyncio.sleep(60)
    reporting.cancel()
    assert service.heard.keys() == set(NODES)
    assert not ahead


@pytest.mark.looptime
@pytest.mark.parametrize("call_s", [1.0, 5.0, 20.0])
async def test_a_process_that_is_behind_asks_for_leases_it_can_renew_from_its_first_round(call_s):
    service, gateway = await played(call_s, 8 * 22 * call_s)
    assert all(len(service.heard[node]) > 1 for node in NODES)
    assert max(service.silences()) < 2.0, "who is silent for two leases is given up for lost"
    assert gateway.pace.behind


@pytest.mark.looptime
async def test_who_keeps_up_asks_for_a_nodes_own_lease(caplog):
    service, gateway = await played(0.1, 300.0)
    assert {lease_s for heard in service.heard.values() for _, lease_s in heard} == {OWN_S}
    assert not gateway.pace.behind
    assert not caplog.records


@pytest.mark.looptime
@pytest.mark.parametrize("call_s", [0.0, 0.05, 0.09, 0.11, 0.13, 0.14, 0.15, 0.2])
async def test_a_dead_node_is_found_little_later_by_a_machine_that_is_a_little_behind(call_s):
    """At the fastest settings, whenever it dies: what could still arrive of it, three intervals and more only in
    proportion to how far behind it is, and a look at leases."""
    period_s, look_s = 0.1, 0.1
    service, gateway = await played(call_s, 20.0, NODES[:REPORTS_PER_CALL], period_s, 0.3)
    interval_s = gateway.pace.interval_s
    found_s = 0.0
    for heard in service.heard.values():
        for (at, lease_s), (then, _) in pairwise(heard[len(heard) // 2 :]):
            assert then - at < LOST_AFTER_LEASES * lease_s, "one that lives is not given up"
            died_at = at - call_s  # right after it had said what arrives at `at`
            found_s = max(found_s, at + LOST_AFTER_LEASES * lease_s + look_s - died_at)
    silent = 3 + 1.5 * min(2.0, max(0.0, interval_s / period_s - 2))
    assert found_s <= call_s + max(LOST_AFTER_LEASES * 0.3, silent * interval_s) + look_s + 1e-6
    assert found_s <= 1.0 or call_s > 0.13, f"it is found after {found_s:.2f} s"


@pytest.mark.looptime
async def test_a_machine_that_is_far_behind_may_stall_for_six_intervals():
    service, gateway = await played(5.0, 1200.0)
    assert gateway.pace.interval_s > 4 * 10.0
    leases = {lease_s for heard in service.heard.values() for _, lease_s in heard[-1:]}
    assert min(leases) * LOST_AFTER_LEASES == pytest.approx(6 * gateway.pace.interval_s, rel=0.35)


@pytest.mark.looptime
async def test_who_falls_behind_says_so_once_rests_and_recovers(caplog):
    service, _ = await played(5.0, 1200.0)
    assert [record.message for record in caplog.records] == ["reports are behind"]
    at = sorted({moment for heard in service.heard.values() for moment, _ in heard})
    assert max(then - now for now, then in pairwise(at)) > 5.0 * 22 / 2, "a rest between rounds"


async def test_a_service_that_was_too_busy_to_hear_gives_nobody_up(tmp_path):
    service = ReportingService(tmp_path)
    service.reports._pauses = ProcessPauses(service.clock, 5.0)
    service.report(lease_s=30.0)
    await service.reports.watch_leases()
    service.clock.at += 500  # the process stood still; reports wait in its sockets
    await service.reports.watch_leases()
    assert service.node.agent == "Connected"
    assert service.reports.suspended_s == 490
    for _ in range(14):
        service.clock.at += 5
        await service.reports.watch_leases()
    assert service.node.agent == "Lost", "silence while it listened counts"


async def test_who_is_heard_by_another_replica_is_not_given_up_for_a_pause_that_may_have_stopped_both(tmp_path):
    service = ReportingService(tmp_path)
    service.report(lease_s=300.0)
    service.start()  # a replica that knows of that report from the table alone
    service.reports._pauses = ProcessPauses(service.clock, 5.0)
    for _ in range(14):  # until it is no longer new
        await service.reports.watch_leases()
        service.clock.at += 5
    service.clock.at += 5000
    await service.reports.watch_leases()
    assert service.node.agent == "Connected"
    while service.clock.at < 1_750_000_000 + 5070 + 900:
        service.clock.at += 5
        await service.reports.watch_leases()
    assert service.node.agent == "Lost", "nobody heard it, and we listened"


def test_matrixlink_reaches_whom_it_could_not_hear():
    clock = FixedClock()
    pauses = ProcessPauses(clock, 5.0)
    leases = Leases(clock, 60.0, pauses)
    pauses.record_beat()
    leases.renew("n", 30.0, 1, 1)
    clock.at += 500
    assert leases.reachable("n"), "before the first beat"
    pauses.record_beat()
    assert leases.reachable("n"), "and after it"
    assert leases.silent_s("unknown") == 10, "since the start it has heard for ten seconds"
    for _ in range(7):
        clock.at += 5
        pauses.record_beat()
    assert not leases.reachable("n"), "silence while it listened counts"


@pytest.mark.looptime
async def test_a_service_that_stays_away_is_logged_once_for_each_time(caplog):
    """Away, back, away again: each is tried more than once."""
    asked, enough = 0, asyncio.Event()

    class Away(Service):
        async def report(self, reports: list[Report]) -> list[SimpleNamespace]:
            nonlocal asked
            asked += 1
            if asked == 20:
                enough.set()
            if asked == 10:
                return await super().report(reports)
            raise Unavailable("it does not answer")

    fleet = Fleet([NodeName("sn0-c00-n0")], FleetStore(None), LoopClock(), 1)
    fleet.add_agents(
        "link", lambda node, _, changed: SimpleNamespace(memory=dict, report=lambda: Report(node=node.name))
    )
    fleet.connect(Channel("link", Away(0.0), "assignments", ApiModel, "name", lambda agent, report, answer: None))
    with caplog.at_level(logging.WARNING, "services.node_agent.channels.agent_gateway"):
        reporting = asyncio.create_task(fleet._gateways["link"].report())
        await enough.wait()
        reporting.cancel()
    assert [each.message for each in caplog.records] == ["report refused"] * 2
