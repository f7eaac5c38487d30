"""The fleet: emulated nodes, the agents on their Qingtian cards, and the faults put on the hardware.

A fault acts here and only here. A node without power runs nothing; when power returns its agents begin a new life, one
epoch on, from what the card remembers. An agent that hangs neither reports nor takes orders, while its node goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from random import Random
from typing import Any, Protocol

from matrixlink.agent import LinkAgent
from matrixlink.client import LinkClient
from matrixlink.contract import ProgramView
from matrixresource.agent import ResourceAgent
from matrixresource.client import ResourceClient
from matrixresource.contract import AssignmentView, NodeReport, ReportAnswer
from matrixresource.hardware import EmulatedNode, InjectedFault
from matrixresource.stages import Stages
from matrixresource.topology.spec import SupernodeSpec
from matrixresource.vocabulary.calls import WatchEvent
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.errors import MatrixError
from matrixresource.vocabulary.names import NodeName
from services.node_agent.memory import FleetMemory
from services.node_agent.uplink import Line, Uplink

log = logging.getLogger(__name__)

HEARTBEAT_S, HEARTBEAT_FLOOR_WALL_S = 10.0, 0.5
LEASE_S, LEASE_FLOOR_WALL_S = 30.0, 2.0
"""A heartbeat each 10 s and a lease of 30 s (the incumbent's node daemon updates at 5 s or more, its HCCL heartbeat is
lost at 30 s: Ascend/mind-cluster documentation); in wall time never below the floors."""

REPORTS_A_CALL = 48
"""A report that tells an inventory and all ports takes 14 KB; a body may have 1 MiB."""


class Agent(Protocol):
    """What the fleet asks of either kind of agent."""

    async def live(self) -> None: ...
    def power_lost(self) -> None: ...
    def memory(self) -> dict[str, Any]: ...
    def restore(self, memory: dict[str, Any]) -> None: ...


class Fleet:
    """Many nodes in one process. `lines` are made by the fleet's builder, one per service the agents talk to."""

    def __init__(
        self,
        names: Iterable[NodeName],
        memory: FleetMemory,
        clock: Clock,
        seed: int | None,
        spec: SupernodeSpec | None = None,
    ) -> None:
        self.spec = spec or SupernodeSpec.load()
        self.nodes = {name: EmulatedNode(name, spec=self.spec) for name in names}
        self.clock = clock
        self.seed = seed
        self._memory = memory
        self._agents: dict[str, dict[NodeName, Agent]] = {}
        self._uplinks: dict[str, Uplink] = {}
        self._lives: dict[NodeName, list[asyncio.Task[None]]] = {}
        self._dirty: dict[str, set[NodeName]] = {}
        self.faults = {name: InjectedFault.model_validate(body) for name, body in memory.all("fault").items()}
        for node in self.nodes.values():
            node.suffer(list(self.faults.values()))

    # -- building ------------------------------------------------------------------------------------------------

    def add_agents(self, kind: str, make: Callable[[EmulatedNode, Random, Callable[[], None]], Agent]) -> None:
        """An agent of a kind on every node, each with its own random stream and what its card remembers."""
        remembered = self._memory.all(kind)
        agents: dict[NodeName, Agent] = {}
        self._dirty[kind] = set()
        for name, node in self.nodes.items():
            random = Random(f"{self.seed}:{kind}:{name}") if self.seed is not None else Random()
            agents[name] = make(node, random, lambda kind=kind, name=name: self._changed(kind, name))  # type: ignore[misc]
            if name in remembered:
                agents[name].restore(remembered[name])
            self._dirty[kind].add(name)
        self._agents[kind] = agents

    def connect(self, kind: str, line: Line) -> None:
        """Join one kind of agent to its service."""
        period_s = self.clock.at_least_wall(HEARTBEAT_S, HEARTBEAT_FLOOR_WALL_S)
        self._uplinks[kind] = Uplink(line, self.clock, period_s, self.responsive, lambda: self.remember(kind))

    def agent(self, kind: str, node: str) -> Any:
        return self._agents[kind].get(NodeName(node))

    def _changed(self, kind: str, node: NodeName) -> None:
        self._dirty[kind].add(node)
        if kind in self._uplinks:
            self._uplinks[kind].news(node)

    def remember(self, kind: str) -> None:
        """Write down what changed on the cards; always before anything is reported of it."""
        dirty, self._dirty[kind] = self._dirty[kind], set()
        self._memory.put(kind, {name: self._agents[kind][name].memory() for name in dirty})

    def responsive(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.responsive]

    # -- running -------------------------------------------------------------------------------------------------

    def tasks(self) -> list[Callable[[], Awaitable[Any]]]:
        """Everything that runs from start to stop."""
        return [self._start, *(loop for up in self._uplinks.values() for loop in (up.report, up.listen))]

    async def _start(self) -> None:
        for name, node in self.nodes.items():
            if node.responsive:
                self._begin(name)
        try:
            await asyncio.Event().wait()
        finally:
            for name in list(self._lives):
                self._end(name)

    def _begin(self, name: NodeName) -> None:
        self._lives[name] = [asyncio.create_task(self._live(agents[name])) for agents in self._agents.values()]

    async def _live(self, agent: Agent) -> None:
        try:
            await agent.live()
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("agent died", extra={"agent": repr(agent)})

    def _end(self, name: NodeName) -> None:
        for task in self._lives.pop(name, []):
            task.cancel()

    # -- faults --------------------------------------------------------------------------------------------------

    def inject(self, fault: InjectedFault) -> None:
        """Put a fault on the hardware. Durable before it acts."""
        self._memory.put("fault", {fault.name: fault.wire()})
        self.faults[fault.name] = fault
        self._suffer(fault.target)

    def clear(self, name: str) -> None:
        """Mend what this fault broke."""
        fault = self.faults.pop(name)
        self._memory.remove("fault", name)
        self._suffer(fault.target)

    def _suffer(self, name: NodeName) -> None:
        node = self.nodes[name]
        responsive, powered = node.responsive, node.powered
        node.suffer(list(self.faults.values()))
        if powered and not node.powered:
            for agents in self._agents.values():
                agents[name].power_lost()
        if responsive and not node.responsive:
            self._end(name)
        elif node.responsive and not responsive:
            for kind, agents in self._agents.items():
                agents[name].restore(agents[name].memory())
                self._dirty[kind].add(name)
            self._begin(name)
        for kind in self._agents:
            self._changed(kind, name)


class ResourceLine:
    """The line between resource agents and MatrixResource."""

    name = "resource"

    def __init__(self, fleet: Fleet, client: ResourceClient) -> None:
        self._fleet = fleet
        self._client = client

    async def send(self, nodes: list[str]) -> None:
        for start in range(0, len(nodes), REPORTS_A_CALL):
            agents: list[ResourceAgent] = [
                self._fleet.agent("resource", node) for node in nodes[start : start + REPORTS_A_CALL]
            ]
            reports = [agent.report() for agent in agents]
            for agent, report, answer in zip(agents, reports, await self._client.report(reports), strict=True):
                if not answer.accepted:
                    log.warning("report refused", extra={"node": answer.node, "reason": answer.reason})
                elif agent.node.responsive:
                    self._answered(agent, report, answer)

    def _answered(self, agent: ResourceAgent, report: NodeReport, answer: ReportAnswer) -> None:
        try:
            agent.answered(report, answer)
        except MatrixError as refused:
            log.warning("wish refused", extra={"node": answer.node, "why": refused.message})

    def watch(self, since: int | None) -> AsyncIterator[WatchEvent]:
        return self._client.watch("assignments", since)

    async def take_up(self, event: WatchEvent) -> None:
        if event.type != "DELETED":
            self._ensure(AssignmentView.model_validate(event.view))

    def _ensure(self, wish: AssignmentView) -> None:
        agent = self._fleet.agent("resource", wish.name)
        if agent is None or not agent.node.responsive:
            return
        try:
            agent.ensure(wish)
        except MatrixError as refused:
            log.warning("wish refused", extra={"node": wish.name, "why": refused.message})


def resource_agents(fleet: Fleet, client: ResourceClient, stages: Stages) -> None:
    """Put a resource agent on every node and join them to MatrixResource."""
    lease_s = fleet.clock.at_least_wall(LEASE_S, LEASE_FLOOR_WALL_S)
    fleet.add_agents(
        "resource", lambda node, random, changed: ResourceAgent(node, stages, fleet.clock, random, changed, lease_s)
    )
    fleet.connect("resource", ResourceLine(fleet, client))


class LinkLine:
    """The line between link agents and MatrixLink."""

    name = "link"

    def __init__(self, fleet: Fleet, client: LinkClient) -> None:
        self._fleet = fleet
        self._client = client

    async def send(self, nodes: list[str]) -> None:
        agents: dict[str, LinkAgent] = {node: self._fleet.agent("link", node) for node in nodes}
        answers = await self._client.report([agent.report() for agent in agents.values()])
        for answer in answers:
            if not answer.accepted:
                log.warning("report refused", extra={"node": answer.node, "reason": answer.reason})
            elif self._fleet.nodes[NodeName(answer.node)].responsive:
                agents[answer.node].take_answer(answer.desired)

    def watch(self, since: int | None) -> AsyncIterator[WatchEvent]:
        return self._client.watch("programs", since)

    async def take_up(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            return  # the answer to the next report says what is no longer wished
        program = ProgramView.model_validate(event.view)
        agent = self._fleet.agent("link", program.node)
        if agent is None or not self._fleet.nodes[NodeName(program.node)].responsive:
            return
        try:
            agent.ensure(program)
        except MatrixError as refused:
            log.warning("wish refused", extra={"node": program.node, "why": refused.message})


def link_agents(fleet: Fleet, client: LinkClient, stages: Stages, built_gbps: dict[str, float]) -> None:
    """Put a link agent on every node and join them to MatrixLink. `built_gbps`: a port's full rate, by its name."""
    lease_s = fleet.clock.at_least_wall(LEASE_S, LEASE_FLOOR_WALL_S)
    fleet.add_agents(
        "link",
        lambda node, random, changed: LinkAgent(node, built_gbps, stages, fleet.clock, random, changed, lease_s),
    )
    fleet.connect("link", LinkLine(fleet, client))
