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
from matrixcommon.model.clock import Clock, Seconds, pause, resolve_seconds
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_model import ApiModel
from matrixresource.agent.hardware import MessageFaults
from services.chassis.periodic import RETRY_WALL_S, follow
from services.node_agent.channels.report_pace import ReportPace

log = logging.getLogger(__name__)

BATCH_DELAY_S, BATCH_DELAY_FLOOR_WALL_S = 1.0, 0.02
"""Changes are held back this long, so that nodes that change together report together."""


LEASE_S_MAX = 86_400.0
"""The longest lease that services grant."""
REPORTS_PER_CALL = 48
"""Reports per call: one with an inventory and all ports takes 14 KB, and a body may have 1 MiB."""


@dataclass(frozen=True)
class Channel:
    """One kind of agent and its service: the service's client, the collection of specs and their class, the field of a
    spec that names its node, the handler of an agent for the answer to its report, the field of a report that requests
    a lease, and the number of silent leases after which the service counts an agent as lost."""

    name: str
    client: Any
    collection: str
    spec_class: type[ApiModel]
    node_field: str
    handle_reply: Callable[[Any, Any, Any], None]
    lease_field: str = "lease_s"
    leases_until_lost: float = 1.0


class AgentGateway:
    """Runs one line. `news(node)` marks a node whose report has changed. `find_agent` finds a node's agent, None if it
    does not answer."""

    def __init__(
        self,
        channel: Channel,
        clock: Clock,
        period_s: Seconds,
        reachable: Callable[[], Iterable[str]],
        find_agent: Callable[[str], Any],
        write_memory: Callable[[], None],
        message_faults: Callable[[str], MessageFaults | None] = lambda node: None,
        random: Random | None = None,
    ) -> None:
        self._channel = channel
        self._clock = clock
        self._period_s = period_s
        self._reachable = reachable
        self._find_agent = find_agent
        self._write_memory = write_memory
        self._message_faults = message_faults
        self._random = random or Random()
        self._delayed: set[asyncio.Task[None]] = set()
        self.pace = ReportPace(channel.name, clock, period_s, channel.leases_until_lost)
        self._changed_nodes: set[str] = set()
        self._wake = asyncio.Event()
        self.reported = False
        """Whether the service has answered reports of the whole fleet once."""

    def mark_changed(self, node: str) -> None:
        self._changed_nodes.add(node)
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
                batch = reachable if whole_fleet else [node for node in reachable if node in self._changed_nodes]
                self._changed_nodes.clear()
                self._wake.clear()
                self._write_memory()
                if whole_fleet:
                    calibration = (
                        batch[:REPORTS_PER_CALL] if self.pace.unmeasured and len(batch) > REPORTS_PER_CALL else []
                    )
                    self.pace.begin_round(-(-len(calibration + batch) // REPORTS_PER_CALL))
                    await self._send(
                        calibration, self.pace.record_call
                    )  # sent again below, with a lease based on the cost of this
                await self._send(batch, self.pace.record_call if whole_fleet else lambda: None)
                if whole_fleet:
                    due_at, self.reported = self.pace.end_round(), True
                refusal = ""
            except MatrixError as refused:
                if refused.message != refusal:  # a service that is down is retried twice a second but logged once
                    log.warning("report refused", extra={"line": self._channel.name, "why": refused.message})
                refusal = refused.message
                self._changed_nodes.update(batch)
                await asyncio.sleep(RETRY_WALL_S)
                continue
            await self._wait(due_at - self._clock.now())

    async def _wait(self, seconds: float) -> None:
        changes = self._clock.changes
        await pause(self._clock, lambda: seconds if self._clock.changes == changes else 0.0, self._wake)
        batch_delay_s = min(
            BATCH_DELAY_S, resolve_seconds(self._period_s) / 10
        )  # short enough not to delay a fast heartbeat
        await self._clock.sleep(self._clock.at_least_wall(batch_delay_s, BATCH_DELAY_FLOOR_WALL_S))

    async def _send(self, nodes: list[str], on_sent: Callable[[], None]) -> None:
        """Report these nodes and apply the specs in the answers; `on_sent` is called after each call. Raises
        MatrixError."""
        for start in range(0, len(nodes), REPORTS_PER_CALL):
            found = ((node, self._find_agent(node)) for node in nodes[start : start + REPORTS_PER_CALL])
            agents = {node: agent for node, agent in found if agent is not None}
            lease_s = self.pace.lease_s
            self._write_memory()  # changes during the former calls are reported too
            reports = [(node, agent, self._with_lease(agent.report(), lease_s)) for node, agent in agents.items()]
            await self._deliver([each for each in reports for _ in range(self._copies_to_deliver(*each))])
            on_sent()

    async def _deliver(self, reports: list[tuple[str, Any, Any]]) -> None:
        """Send reports of agents, and pass the answers to them."""
        if not reports:
            return
        answers = await self._channel.client.report([report for _, _, report in reports])
        for (node, agent, report), answer in zip(reports, answers, strict=True):
            if not answer.accepted:
                log.warning("report refused", extra={"node": node, "reason": answer.reason, "why": answer.message})
            elif self._find_agent(node) is agent:
                with self._logging_refusals(node):
                    self._channel.handle_reply(agent, report, answer)

    def _copies_to_deliver(self, node: str, agent: Any, report: Any) -> int:
        """How many copies of this report arrive with its batch: 0 if a fault loses it, or delays it to come later."""
        faults = self._message_faults(node)
        if faults is None:
            return 1
        if self._random.random() < faults.lost:
            return 0
        copies = 2 if self._random.random() < faults.duplicated else 1
        if faults.delay_s <= 0:
            return copies
        delayed = asyncio.create_task(self._deliver_delayed([(node, agent, report)] * copies, faults.delay_s))
        self._delayed.add(delayed)
        delayed.add_done_callback(self._delayed.discard)
        return 0

    async def _deliver_delayed(self, reports: list[tuple[str, Any, Any]], delay_s: float) -> None:
        await self._clock.sleep(delay_s)
        try:
            await self._deliver(reports)
        except MatrixError as refused:
            log.info("a delayed report was lost", extra={"line": self._channel.name, "why": refused.message})

    def _with_lease(self, report: Any, lease_s: float) -> Any:
        """The report, requesting a lease long enough for this process to renew."""
        if lease_s <= getattr(report, self._channel.lease_field):
            return report
        return report.model_copy(update={self._channel.lease_field: min(lease_s, LEASE_S_MAX)})

    async def listen(self) -> None:
        """Forever: apply specs as they are made; after a break, continue from there or from the present."""

        async def apply_event(event: WatchEvent | None) -> None:
            if event is None or event.type == "DELETED":
                return  # the answer to the next report says what is no longer requested
            spec = self._channel.spec_class.from_stored(event.view)
            node = getattr(spec, self._channel.node_field)
            agent = self._find_agent(node)
            if agent is not None:
                with self._logging_refusals(node):
                    agent.ensure(spec)

        await follow(partial(self._channel.client.watch, self._channel.collection), apply_event)

    @contextmanager
    def _logging_refusals(self, node: str) -> Iterator[None]:
        """Log the refusals of an agent."""
        try:
            yield
        except MatrixError as refused:
            log.warning("spec refused", extra={"node": node, "why": refused.message})
