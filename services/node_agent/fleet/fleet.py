"""The fleet: emulated nodes, the agents on their Qingtian cards, and the faults put on the hardware.

A fault acts here and only here. A node without power runs nothing; when power returns its agents restart in the next
epoch, from the memory of the card. An agent that hangs neither reports nor accepts specs, while its node continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from matrixcommon.model.cancellation import raise_if_cancelled
from matrixcommon.model.clock import Clock, with_wall_floor
from matrixcommon.model.errors import Conflict, NotFound
from matrixcommon.model.hardware_names import NodeName
from matrixresource.agent.fault_catalogue import CABINET_KINDS, SWITCH_KINDS
from matrixresource.agent.hardware import EmulatedNode, InjectedFault, MessageFaults, is_repaired_by
from matrixresource.topology.loading import load_spec
from matrixresource.topology.spec import SupernodeSpec
from matrixresource.topology.supernode import Supernode
from services.chassis.periodic import RETRY_WALL_S
from services.node_agent.channels.agent_gateway import AgentGateway, Channel
from services.node_agent.fleet.fences import FleetFences
from services.node_agent.fleet.flapping import Flapping
from services.node_agent.fleet.store import FleetStore
from services.node_agent.network.traffic import EmulatedTraffic
from services.node_agent.network.traffic_patterns import Load

log = logging.getLogger(__name__)

HEARTBEAT_S, HEARTBEAT_FLOOR_WALL_S = 10.0, 0.5
"""A heartbeat each 10 s (the incumbent's node daemon updates at 5 s or more: Ascend/mind-cluster documentation)."""


class Agent(Protocol):
    """What the fleet needs from either kind of agent."""

    epoch: int
    """The number of restarts so far."""

    async def run(self) -> None: ...
    def power_lost(self) -> None: ...
    def memory(self) -> dict[str, Any]: ...
    def restore(self, memory: dict[str, Any]) -> None: ...


AgentFactory = Callable[[EmulatedNode, Random, Callable[[], None]], Agent]
"""Makes one agent, from its node, its random stream, and a callback for when its report changes."""


class Fleet:
    """Many nodes in one process. The builder of the fleet adds agents and connects each kind to its service."""

    def __init__(
        self,
        names: Sequence[NodeName],
        store: FleetStore,
        clock: Clock,
        seed: int | None,
        spec: SupernodeSpec | None = None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.spec = spec or load_spec()
        self._heartbeat_s = heartbeat_s
        self._rewired: dict[str, Supernode] = {}
        self.background: list[Callable[[], Awaitable[Any]]] = []
        """Other work that runs from start to stop."""
        self._store = store
        self.fences = FleetFences(store)
        self._last_epochs = {name: int(body["epoch"]) for name, body in store.all("lives").items()}
        """By supernode, the newest epoch of removed cards: services accept only newer ones."""
        self.built_in = frozenset(name.supernode for name in names)
        installed = sorted(set(store.all("supernode")) - self.built_in)
        names = [*names, *(node for supernode in installed for node in self._nodes_of(supernode))]
        self.nodes = {name: EmulatedNode(name, spec=self.spec) for name in names}
        self.clock = clock
        self.seed = seed
        self._factories: dict[str, AgentFactory] = {}
        self._agents: dict[str, dict[NodeName, Agent]] = {}
        self._gateways: dict[str, AgentGateway] = {}
        self._agent_tasks: dict[NodeName, list[asyncio.Task[None]]] = {}
        self._dirty: dict[str, set[NodeName]] = {}
        self._running = False
        self.traffic = EmulatedTraffic(self.nodes, self.spec, clock)
        self.traffic.loads = {name: Load.from_stored(body) for name, body in store.all("traffic").items()}
        self.faults = {name: InjectedFault.from_stored(body) for name, body in store.all("fault").items()}
        self._flapping = Flapping(clock, self._apply_fault)
        self._flapping.set_faults(self.faults)
        self.background.append(self._flapping.run)
        self.ended_faults = set(store.all("ended")) & self.faults.keys()
        """Names of faults ended by a repair in place."""
        for node in self.nodes.values():
            node.on_repaired = partial(self._end_faults, node.name)
            node.apply_faults(self._active_faults())

    # -- building ------------------------------------------------------------------------------------------------

    def add_agents(self, kind: str, factory: AgentFactory) -> None:
        """Put an agent of a kind on every node, each with its own random stream and the memory of its card."""
        self._factories[kind], self._agents[kind], self._dirty[kind] = factory, {}, set()
        memories = self._store.all(kind)
        for name in self.nodes:
            self._add_agent(kind, name, memories)

    def _add_agent(self, kind: str, name: NodeName, memories: Mapping[str, Any]) -> None:
        random = Random(f"{self.seed}:{kind}:{name}") if self.seed is not None else Random()
        agent = self._factories[kind](self.nodes[name], random, lambda: self._changed(kind, name))
        if name in memories:
            agent.restore(memories[name])
        elif lived := self._last_epochs.get(name.supernode):
            agent.epoch += lived
        if not self.nodes[name].powered:
            agent.power_lost()  # idempotent; the process may have died before it wrote this to the card
        self._agents[kind][name] = agent
        self._dirty[kind].add(name)

    def connect(self, channel: Channel) -> None:
        """Connect one kind of agent to its service."""
        kind = channel.name

        def period_s() -> float:
            return with_wall_floor(self.clock, self._heartbeat_s, HEARTBEAT_FLOOR_WALL_S)

        def responsive_agent(node: str) -> Any:
            there = self.nodes.get(NodeName(node))
            return self.agent(kind, node) if there is not None and there.responsive else None

        write_memory = partial(self.write_memory, kind)
        random = Random(f"{self.seed}:messages:{kind}")
        self._gateways[kind] = AgentGateway(
            channel, self.clock, period_s, self.responsive, responsive_agent, write_memory, self._message_faults, random
        )

    def waiting_for(self) -> str | None:
        """The services that have not yet received reports of the nodes, which cannot be allocated before; then its own
        file, if it takes no writes. None: nothing."""
        unreported = sorted(kind for kind, gateway in self._gateways.items() if not gateway.reported)
        if unreported:
            return f"the first reports of its nodes to {' and '.join(unreported)}"
        refusal = self._store.write_refusal()
        return None if refusal is None else f"its database, which takes no writes: {refusal}"

    def _message_faults(self, node: str) -> MessageFaults | None:
        emulated = self.nodes.get(NodeName(node))
        return emulated.messages if emulated is not None else None

    def agent(self, kind: str, node: str) -> Any:
        return self._agents[kind].get(NodeName(node))

    def _changed(self, kind: str, node: NodeName) -> None:
        self._dirty[kind].add(node)
        self.traffic.update()
        if kind in self._gateways:
            self._gateways[kind].mark_changed(node)

    def write_memory(self, kind: str) -> None:
        """Write changes to the cards' memory, always before they are reported; what cannot be written now (the disk is
        full) is written before the next report."""
        self._store.put(kind, self._changed_memory(kind))
        self._dirty[kind].clear()

    def _changed_memory(self, kind: str) -> dict[str, Any]:
        return {name: self._agents[kind][name].memory() for name in self._dirty[kind]}

    def responsive(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.responsive]

    # -- cabinets that come and go -------------------------------------------------------------------------------

    def supernodes(self) -> list[str]:
        return sorted({name.supernode for name in self.nodes})

    def _supernode(self, supernode: str) -> Supernode:
        """A supernode as it is wired."""
        return self._rewired.get(supernode) or Supernode(supernode, self.spec)

    def _nodes_of(self, supernode: str) -> list[NodeName]:
        return [NodeName(name) for name in Supernode(supernode, self.spec).nodes()]

    def add_supernode(self, supernode: str) -> None:
        """Install one more supernode and switch its nodes on; their agents report by themselves. Durable before it
        takes effect; idempotent."""
        if supernode in self.supernodes():
            return
        self._store.put("supernode", {supernode: {}})
        self._set_nodes(supernode, self._nodes_of(supernode))

    def rewire(self, supernode: Supernode) -> None:
        """Wire a supernode as its graph says: nodes that it lacks are removed, missing ones added."""
        if self._supernode(supernode.name).topology is supernode.topology:
            return
        self._rewired[supernode.name] = supernode
        drawn = [NodeName(name) for name in supernode.nodes()]
        for name in drawn:
            if name in self.nodes:
                self.nodes[name].rack(supernode)
        self._set_nodes(supernode.name, drawn)
        for name in drawn:
            for kind in self._agents:
                self._changed(kind, name)

    def remove_supernode(self, supernode: str) -> None:
        """Remove a supernode, with its cards' memories and its faults. Raises Conflict for one that this process was
        started with."""
        if supernode in self.built_in:
            raise Conflict(
                f"{supernode} cannot be removed: it is one of the supernodes this process was started with",
                field="name",
            )
        if supernode not in self.supernodes():
            raise NotFound(f"this fleet has no supernode {supernode!r}", field="name")
        faults = [each.name for each in self.faults.values() if each.target.partition("-")[0] == supernode]
        self._forget_nodes(
            supernode, [], [("supernode", supernode), *(key for name in faults for key in _document_keys(name))]
        )
        for name in faults:
            del self.faults[name]
        self.ended_faults -= set(faults)
        self._flapping.set_faults(self.faults)
        self._rewired.pop(supernode, None)
        self._set_nodes(supernode, [])

    def _set_nodes(self, supernode: str, names: Sequence[NodeName]) -> None:
        """Make these a supernode's nodes: remove others, and add and switch on missing ones."""
        for name in self._forget_nodes(supernode, names):
            self._stop_agents(name)
            for kind, agents in self._agents.items():
                del agents[name]
                self._dirty[kind].discard(name)
            del self.nodes[name]
        racked = self._rewired.get(supernode)
        added = {name: EmulatedNode(name, spec=self.spec, racked=racked) for name in names if name not in self.nodes}
        self.nodes |= added
        self.traffic.change_nodes(self.nodes)
        for name, node in added.items():
            node.on_repaired = partial(self._end_faults, name)
            node.apply_faults(self._active_faults())
            for kind in self._agents:
                self._add_agent(kind, name, self._store.lookup(kind, name))
                self._changed(kind, name)
            if self._running and node.responsive:
                self._start_agents(name)

    def _forget_nodes(
        self, supernode: str, names: Sequence[NodeName], also: Sequence[tuple[str, str]] = ()
    ) -> list[NodeName]:
        """Delete the memory of a supernode's nodes that are not among `names`, and the documents `also` named, at once,
        so that no node ever gets an old card. Return those nodes."""
        removed = [each for each in self.nodes if each.supernode == supernode and each not in names]
        lives = {}
        if lived := [agents[name].epoch for agents in self._agents.values() for name in removed]:
            self._last_epochs[supernode] = max(*lived, self._last_epochs.get(supernode, 0))
            lives = {supernode: {"epoch": self._last_epochs[supernode]}}
        self._store.write({"lives": lives}, [*also, *((kind, name) for kind in self._agents for name in removed)])
        return removed

    # -- running -------------------------------------------------------------------------------------------------

    def tasks(self) -> list[Callable[[], Awaitable[Any]]]:
        """Everything that runs from start to stop."""
        return [
            self._start,
            *self.background,
            *(loop for gateway in self._gateways.values() for loop in (gateway.report, gateway.listen)),
        ]

    async def _start(self) -> None:
        self._running = True
        for name, node in self.nodes.items():
            if node.responsive:
                self._start_agents(name)
        try:
            await asyncio.Event().wait()
        finally:
            self._running = False
            tasks = [task for name in list(self._agent_tasks) for task in self._stop_agents(name)]
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start_agents(self, name: NodeName) -> None:
        self._agent_tasks[name] = [asyncio.create_task(self._run_agent(kind, name)) for kind in self._agents]

    async def _run_agent(self, kind: str, name: NodeName) -> None:
        """One agent's lives. What fails it ends one, and the next begins as when power returns: it would else be
        reported for ever to be at what it was doing then."""
        agent = self._agents[kind][name]
        while True:
            try:
                return await agent.run()
            except Exception as wrong:
                raise_if_cancelled(wrong)
                log.exception("agent failed, and begins its next life", extra={"agent": f"{kind} of {name}"})
            await asyncio.sleep(RETRY_WALL_S)
            agent.restore(agent.memory())
            self._changed(kind, name)

    def _stop_agents(self, name: NodeName) -> list[asyncio.Task[None]]:
        """Stop a node's agents. Return their tasks."""
        tasks = self._agent_tasks.pop(name, [])
        for task in tasks:
            task.cancel()
        return tasks

    # -- faults --------------------------------------------------------------------------------------------------

    def _active_faults(self) -> list[InjectedFault]:
        """The faults that act at present: without those ended by a repair, and flapping ones that rest."""
        active = (fault for fault in self.faults.values() if fault.name not in self.ended_faults)
        return [fault for fault in active if not self._flapping.is_resting(fault.name)]

    def _end_faults(self, node: NodeName, repair: str) -> None:
        """End the faults that a repair in place by this node's agent ends. Durable."""
        ended = [each for each in self._active_faults() if each.target == node and is_repaired_by(each, repair)]
        self._store.put("ended", {fault.name: {"by": repair} for fault in ended})
        self.ended_faults |= {fault.name for fault in ended}
        if ended:
            self._apply_faults(node)

    def inject(self, fault: InjectedFault) -> None:
        """Inject a fault into the hardware. Durable before it acts."""
        self._store.write({"fault": {fault.name: fault.wire()}}, [("ended", fault.name)])
        self.faults[fault.name] = fault
        self._flapping.set_faults(self.faults)
        self._apply_fault(fault)

    def clear(self, name: str) -> None:
        """Clear a fault. Durable before it takes effect, together with the cards' memory: once the fault is gone,
        nothing else shows that a node had lost power."""
        fault = self.faults[name]
        self._store.write({kind: self._changed_memory(kind) for kind in self._agents}, _document_keys(name))
        del self.faults[name]
        self.ended_faults.discard(name)
        self._flapping.set_faults(self.faults)
        self._apply_fault(fault)

    def switches(self) -> set[str]:
        """The switches that ports of these nodes lead to."""
        every = [switch for name in self.supernodes() for switch in self._supernode(name).switches()]
        return {switch.name for switch in every if switch.kind in ("l1", "l2", "leaf")}

    def _apply_fault(self, fault: InjectedFault) -> None:
        """Apply the present faults to all nodes that a fault affects."""
        if fault.kind in SWITCH_KINDS:
            affected = list(self.nodes)
        elif fault.kind in CABINET_KINDS:
            affected = [name for name in self.nodes if name.cabinet == fault.target]
        else:  # a node that the graph no longer has is affected when it is added again
            affected = [name for name in (NodeName(fault.target),) if name in self.nodes]
        for name in affected:
            self._apply_faults(name)

    # -- traffic --------------------------------------------------------------------------------------------------

    def offer_load(self, name: str, load: Load) -> None:
        """Put a load on the nodes' ports, or change it. Durable before it acts."""
        self._store.put("traffic", {name: load.wire()})
        self.traffic.put(name, load)

    def withdraw_load(self, name: str) -> None:
        self._store.remove("traffic", name)
        self.traffic.remove(name)

    def _apply_faults(self, name: NodeName) -> None:
        node = self.nodes[name]
        responsive, powered = node.responsive, node.powered
        node.apply_faults(self._active_faults())
        if powered and not node.powered:
            for agents in self._agents.values():
                agents[name].power_lost()
        if responsive and not node.responsive:
            self._stop_agents(name)
        elif node.responsive and not responsive:
            for kind, agents in self._agents.items():
                agents[name].restore(agents[name].memory())
                self._dirty[kind].add(name)
            if self._running:
                self._start_agents(name)
        for kind in self._agents:
            self._changed(kind, name)


def _document_keys(fault: str) -> list[tuple[str, str]]:
    """The keys of a fault's documents in the fleet's memory."""
    return [("fault", fault), ("ended", fault)]
