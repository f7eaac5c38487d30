"""The connection of all agents of the fleet to one service: reports up, specs down.

Reports go in batches: those of all agents periodically, which renews the leases, and those with changes at once. Specs
come over a watch; the answer to every report repeats the newest one, so a lost event heals by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from matrixcommon.api.client import WatchEvent
from matrixcommon.model.clock import Clock, Seconds, pause, seconds_now
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_model import ApiModel
from matrixresource.agent.hardware import MessageFaults
from services.chassis.periodic import RETRY_WALL_S, follow
from services.node_agent.channels.report_pace import ReportPace

log = logging.getLogger(__name__)

GATHER_S, GATHER_FLOOR_WALL_S = 1.0, 0.02
"""Changes are held back this long, so that nodes that change together report together."""


LEASE_S_MAX = 86_400.0
"""The longest lease that services grant."""
REPORTS_A_CALL = 48
"""Reports per call: one with an inventory and all ports takes 14 KB, and a body may have 1 MiB."""


@dataclass(frozen=True)
class Line:
    """One kind of agent and its service: the service's client, the collection of specs and their class, the field of a
    spec that names its node, the handler of an agent for the answer to its report, the field of a report that requests
    a lease, and the number of silent leases after which the service counts an agent as lost."""

    name: str
    client: Any
    collection: str
    spec: type[ApiModel]
    field: str
    reply: Callable[[Any, Any, Any], None]
    lease: str = "lease_s"
    lost_after: float = 1.0


class Uplink:
    """Runs one line. `news(node)` marks a node whose report has changed. `agent_of` finds a node's agent, None if it
    does not answer."""

    def __init__(
        self,
        line: Line,
        clock: Clock,
        period_s: Seconds,
        reachable: Callable[[], Iterable[str]],
        agent_of: Callable[[str], Any],
        remember: Callable[[], None],
        messages: Callable[[str], MessageFaults | None] = lambda node: None,
        random: Random | None = None,
    ) -> None:
        self._line = line
        self._clock = clock
        self._period_s = period_s
        self._reachable = reachable
        self._agent_of = agent_of
        self._remember = remember
        self._messages = messages
        self._random = random or Random()
        self._late: set[asyncio.Task[None]] = set()
        self.pace = ReportPace(line.name, clock, period_s, line.lost_after)
        self._news: set[str] = set()
        self._wake = asyncio.Event()
        self.reported = False
        """Whether the service has answered reports of the whole fleet once."""

    def news(self, node: str) -> None:
        self._news.add(node)
        self._wake.set()

    async def report(self) -> None:
        """Forever: report the whole fleet every period, and changed nodes in between."""
        due_at, changes = self._clock.now(), self._clock.changes
        refusal = ""
        while True:
            try:
                # When the clock's speed changes, leases are renewed at once.
                whole_fleet = self._clock.now() >= due_at or self._clock.changes != changes
                changes = self._clock.changes
                reachable = list(self._reachable())
                batch = reachable if whole_fleet else [node for node in reachable if node in self._news]
                self._news.clear()
                self._wake.clear()
                self._remember()
                if whole_fleet:
                    trial = batch[:REPORTS_A_CALL] if self.pace.untried and len(batch) > REPORTS_A_CALL else []
                    self.pace.begin(-(-len(trial + batch) // REPORTS_A_CALL))
                    await self._send(trial, self.pace.sent)  # sent again below, with a lease based on the cost of this
                await self._send(batch, self.pace.sent if whole_fleet else lambda: None)
                if whole_fleet:
                    due_at, self.reported = self.pace.end(), True
                refusal = ""
            except MatrixError as refused:
                if refused.message != refusal:  # a service that is down is retried twice a second but logged once
                    log.warning("report refused", extra={"line": self._line.name, "why": refused.message})
                refusal = refused.message
                self._news.update(batch)
                await asyncio.sleep(RETRY_WALL_S)
                continue
            await self._pause(due_at - self._clock.now())

    async def _pause(self, seconds: float) -> None:
        changes = self._clock.changes
        await pause(self._clock, lambda: seconds if self._clock.changes == changes else 0.0, self._wake)
        gather_s = min(GATHER_S, seconds_now(self._period_s) / 10)  # short enough not to delay a fast heartbeat
        await self._clock.sleep(self._clock.at_least_wall(gather_s, GATHER_FLOOR_WALL_S))

    async def _send(self, nodes: list[str], sent: Callable[[], None]) -> None:
        """Report these nodes and apply the specs in the answers; `sent` is called after each call. Raises
        MatrixError."""
        for start in range(0, len(nodes), REPORTS_A_CALL):
            found = ((node, self._agent_of(node)) for node in nodes[start : start + REPORTS_A_CALL])
            agents = {node: agent for node, agent in found if agent is not None}
            lease_s = self.pace.lease_s
            self._remember()  # changes during the former calls are reported too
            reports = [(node, agent, self._leased(agent.report(), lease_s)) for node, agent in agents.items()]
            await self._deliver([each for each in reports for _ in range(self._arrivals(*each))])
            sent()

    async def _deliver(self, reports: list[tuple[str, Any, Any]]) -> None:
        """Send reports of agents, and pass the answers to them."""
        if not reports:
            return
        answers = await self._line.client.report([report for _, _, report in reports])
        for (node, agent, report), answer in zip(reports, answers, strict=True):
            if not answer.accepted:
                log.warning("report refused", extra={"node": node, "reason": answer.reason, "why": answer.message})
            elif self._agent_of(node) is agent:
                with self._refusals(node):
                    self._line.reply(agent, report, answer)

    def _arrivals(self, node: str, agent: Any, report: Any) -> int:
        """How many copies of this report arrive with its batch: 0 if a fault loses it, or delays it to come later."""
        faults = self._messages(node)
        if faults is None:
            return 1
        if self._random.random() < faults.lost:
            return 0
        copies = 2 if self._random.random() < faults.doubled else 1
        if faults.delay_s <= 0:
            return copies
        late = asyncio.create_task(self._deliver_late([(node, agent, report)] * copies, faults.delay_s))
        self._late.add(late)
        late.add_done_callback(self._late.discard)
        return 0

    async def _deliver_late(self, reports: list[tuple[str, Any, Any]], delay_s: float) -> None:
        await self._clock.sleep(delay_s)
        try:
            await self._deliver(reports)
        except MatrixError as refused:
            log.info("a delayed report was lost", extra={"line": self._line.name, "why": refused.message})

    def _leased(self, report: Any, lease_s: float) -> Any:
        """The report, requesting a lease long enough for this process to renew."""
        if lease_s <= getattr(report, self._line.lease):
            return report
        return report.model_copy(update={self._line.lease: min(lease_s, LEASE_S_MAX)})

    async def listen(self) -> None:
        """Forever: apply specs as they are made; after a break, continue from there or from the present."""

        async def heard(event: WatchEvent | None) -> None:
            if event is None or event.type == "DELETED":
                return  # the answer to the next report says what is no longer requested
            spec = self._line.spec.from_stored(event.view)
            node = getattr(spec, self._line.field)
            agent = self._agent_of(node)
            if agent is not None:
                with self._refusals(node):
                    agent.ensure(spec)

        await follow(partial(self._line.client.watch, self._line.collection), heard)

    @contextmanager
    def _refusals(self, node: str) -> Iterator[None]:
        """Log the refusals of an agent."""
        try:
            yield
        except MatrixError as refused:
            log.warning("spec refused", extra={"node": node, "why": refused.message})
