"""The fleet: emulated nodes, the agents on their Qingtian cards, and the faults put on the hardware.

A fault acts here and only here. A node without power runs nothing; when power returns its agents begin a new life, one
epoch on, from what the card remembers. An agent that hangs neither reports nor takes orders, while its node goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any, Protocol

from matrixresource.hardware import SWITCH_KINDS, EmulatedNode, InjectedFault
from matrixresource.topology.layout import Layout
from matrixresource.topology.spec import SupernodeSpec
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.names import NodeName
from services.node_agent.memory import FleetMemory
from services.node_agent.offered import Load
from services.node_agent.traffic import EmulatedTraffic
from services.node_agent.uplink import Line, Uplink

log = logging.getLogger(__name__)

HEARTBEAT_S, HEARTBEAT_FLOOR_WALL_S = 10.0, 0.5
"""A heartbeat each 10 s (the incumbent's node daemon updates at 5 s or more: Ascend/mind-cluster documentation)."""


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
        self.traffic = EmulatedTraffic({str(name): node for name, node in self.nodes.items()}, self.spec, clock)
        self.traffic.loads = {name: Load.model_validate(body) for name, body in memory.all("traffic").items()}
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
        self.traffic.settle()
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
        self._strike(fault)

    def clear(self, name: str) -> None:
        """Mend what this fault broke."""
        fault = self.faults.pop(name)
        self._memory.remove("fault", name)
        self._strike(fault)

    def switches(self) -> set[str]:
        """The switches that ports of these nodes lead to."""
        layouts = [Layout(self.spec, name) for name in {node.supernode for node in self.nodes}]
        ub = {switch.name for layout in layouts for switch in layout.ub_switches()}
        return ub | {switch.name for layout in layouts for switch in layout.rdma_switches() if switch.kind == "leaf"}

    def _strike(self, fault: InjectedFault) -> None:
        """Have everything that a fault can touch feel what is broken now."""
        for name in list(self.nodes) if fault.kind in SWITCH_KINDS else [NodeName(fault.target)]:
            self._suffer(name)

    # -- traffic --------------------------------------------------------------------------------------------------

    def offer(self, name: str, load: Load) -> None:
        """Put a load on the nodes' ports, or change it. Durable before it acts."""
        self._memory.put("traffic", {name: load.wire()})
        self.traffic.put(name, load)

    def withdraw_load(self, name: str) -> None:
        self._memory.remove("traffic", name)
        self.traffic.remove(name)

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
