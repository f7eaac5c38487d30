"""Stack: resource, link, compute and the agents in one process, over ASGI, in the event loop's own time.

Under a virtual loop (looptime) an hour of it costs seconds. Every service has a database file of its own, so any of
them can be stopped in the middle of anything and started again on what it had written, which is what `kill` does.
A stack goes on from a copy of one that has enrolled its nodes (tests/prepared.py) unless it is asked to begin from nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import text

from matrixcommon.api.client import list_all
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.clients.inference import Inference
from matrixcompute.contract import InstanceRequest, InstanceView
from matrixresource.agent.hardware import InjectedFault
from matrixresource.client import ResourceClient
from matrixresource.nodes.states import NODE_STATES
from services.chassis.access import create_token
from services.chassis.database import DatabaseEngine
from services.chassis.http import http_client
from services.compute import main as compute_main
from services.infer import main as infer_main
from services.link import main as link_main
from services.node_agent import main as agents_main
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.fleet.store import FleetStore
from services.resource import main as resource_main
from tests.asgi import StreamingASGITransport
from tests.clocks import AtOnce, LoopClock
from tests.matrixcompute.client import WholeComputeClient
from tests.matrixlink.client import WholeLinkClient
from tests.matrixresource.client import WholeResourceClient
from tests.prepared import AGENTS, prepared

LEGAL = NODE_STATES.moves
SERVICES = ("resource", "link", "compute", "agents")
EPOCH_S = 1_750_000_000.0
"""Where the time of a stack that begins from nothing starts."""


class Seat:
    """Where one service runs: its present life, if it has one, and the way to it."""

    def __init__(self) -> None:
        self.transport = StreamingASGITransport(None)
        self.transport.down = True
        self.life: AsyncExitStack | None = None
        self.database: DatabaseEngine | None = None


class Stack:
    """`async with Stack(tmp_path) as stack`: everything up, nodes enrolled. With `tokens` everybody has to show one."""

    def __init__(
        self,
        folder: Path,
        seed: int = 1,
        topology: Path | None = None,
        *,
        spec: Path | None = None,
        tokens: bool = False,
        infer: bool = False,
        from_nothing: bool = False,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`topology`: a file in which its supernode is drawn; `spec`: one with other numbers than the published ones.
        Both are always begun with from nothing. `settings`: more of them, by service. On a folder that a stack has run in, this one is that stack's next
        life."""
        self.folder = folder
        self.from_nothing = from_nothing or bool(topology or spec) or any(folder.glob("*.db"))
        self.topology, self.spec = topology, spec
        self.services = (*SERVICES, *(["infer"] if infer else []))
        self.tokens = folder / "tokens.json" if tokens else None
        self.admin = admin = self.token("admin", project="default") if tokens else ""
        agent = self.token("agent", project="*", nodes="*") if tokens else ""
        self.seed = seed
        self.settings = settings or {}
        self.clock = LoopClock(EPOCH_S)
        self.seats = {name: Seat() for name in self.services}
        self.http = {name: http_client(f"http://{name}", admin, transport=self.way_to(name)) for name in self.services}
        self.agents_http = {
            name: http_client(f"http://{name}", agent, transport=self.way_to(name)) for name in self.services
        }
        self.resource = WholeResourceClient(self.http["resource"])
        self.link = WholeLinkClient(self.http["link"])
        self.compute = WholeComputeClient(self.http["compute"])
        self.fleet: Fleet | None = None
        self.memory = FleetStore(None)

    def way_to(self, name: str) -> httpx.AsyncBaseTransport:
        """How requests to a service get there."""
        return self.seats[name].transport

    async def __aenter__(self) -> Stack:
        if not self.from_nothing:
            self.continue_from_copy()
        for name in self.services:
            await self.start(name)
        await self.until(self._enrolled, "every node is available")
        await self.until(self._heard, "every agent has reported in this life")
        return self

    def continue_from_copy(self) -> None:
        """Lay down what a stack with these services and this seed had written once its nodes were enrolled."""
        kind = type(self)
        services = "infer" in self.services
        before = prepared(
            f"{kind.__name__} {services=} seed={self.seed}",
            lambda folder: kind(folder, self.seed, infer=services, from_nothing=True),
        )
        for name, content in before.files.items():
            (self.folder / name).write_bytes(content)
        for cards, documents in before.cards.items():
            self.memory.put(cards, documents)
        self.clock = LoopClock(EPOCH_S + before.seconds)

    async def __aexit__(self, *_: object) -> None:
        for name in reversed(self.services):
            await self.kill(name)

    def token(self, role: str, project: str, nodes: str = "") -> str:
        """A new token, known to every service."""
        assert self.tokens is not None
        return create_token(self.tokens, f"{role}-of-{project}".replace("*", "all"), project, role, nodes)

    async def _enrolled(self) -> bool:
        return all(node.state == "Available" for node in await self.resource.nodes())

    async def _heard(self) -> bool:
        assert self.fleet is not None
        agents = [self.fleet.agent(kind, node) for kind in AGENTS for node in self.fleet.nodes]
        return all(agent.sequence > 1 for agent in agents)

    # -- lives ---------------------------------------------------------------------------------------------------

    async def start(self, name: str) -> None:
        """Begin a life of this service on what its last one wrote."""
        seat = self.seats[name]
        app = self._build(name, seat)
        seat.life = AsyncExitStack()
        await seat.life.enter_async_context(app.router.lifespan_context(app))
        seat.transport.app = app
        seat.transport.down = False

    async def kill(self, name: str) -> None:
        """End it at once: open requests and watches are cut, nothing is reported."""
        seat = self.seats[name]
        seat.transport.down = True
        seat.transport.cut()
        if seat.life is not None:
            await seat.life.aclose()
            seat.life = None

    async def kill_quietly(self, name: str) -> None:
        """End a service's tasks and go on answering: nothing happens by itself any more."""
        life, self.seats[name].life = self.seats[name].life, None
        if life is not None:
            await life.aclose()

    async def restart(self, name: str) -> None:
        await self.kill(name)
        await self.start(name)

    def _build(self, name: str, seat: Seat) -> Any:
        clock = self.clock_of(name)
        if name == "agents":
            settings = agents_main.AgentSettings(
                seed=self.seed, state=self.folder, tokens=self.tokens, spec=self.spec, **self.settings.get("agents", {})
            )
            resource, link = ResourceClient(self.agents_http["resource"]), WholeLinkClient(self.agents_http["link"])
            self.fleet = agents_main.build_fleet(settings, clock, self.memory, resource, link)
            return agents_main.build(self.fleet, settings)
        seat.database = self.database_of(name)
        if name == "resource":
            seat.database.migrate(resource_main.MIGRATIONS)
            drawn = {"topology": self.topology, "spec": self.spec}
            settings = resource_main.ResourceSettings(
                state=self.folder, tokens=self.tokens, **drawn, **self.settings.get("resource", {})
            )
            return resource_main.build(settings, clock, seat.database, executor=AtOnce())
        if name == "link":
            seat.database.migrate(link_main.MIGRATIONS)
            settings = link_main.LinkSettings(state=self.folder, tokens=self.tokens, spec=self.spec)
            return link_main.build(settings, clock, seat.database, self.resource)
        if name == "infer":
            seat.database.migrate(infer_main.MIGRATIONS)
            settings = infer_main.InferSettings(state=self.folder, tokens=self.tokens, seed=self.seed)
            hardware = infer_main.HardwareOverHttp(self.http["agents"])
            return infer_main.build(settings, clock, seat.database, self.link, hardware)
        seat.database.migrate(compute_main.MIGRATIONS)
        neighbours = ControlPlane(self.http["resource"], self.link)
        settings = compute_main.ComputeSettings(
            state=self.folder, tokens=self.tokens, token=self.admin, **self.settings.get("compute", {})
        )
        asked = {each: self.http[each] for each in ("resource", "link", "agents")}
        inference = Inference(self.http["infer"]) if "infer" in self.http else None
        return compute_main.build(settings, clock, seat.database, neighbours, inference, asked)

    def clock_of(self, name: str) -> LoopClock:
        """By which a service tells the time."""
        return self.clock

    def database_of(self, name: str) -> DatabaseEngine:
        """What a service keeps its state in."""
        return DatabaseEngine(f"sqlite:///{self.folder / f'{name}.db'}")

    # -- what stories say ----------------------------------------------------------------------------------------

    async def until(
        self, holds: Callable[[], Awaitable[bool]], sentence: str, within_s: float = 3600, every_s: float = 0
    ) -> float:
        """Wait until it holds; returns how long that took (seconds of the loop). Fails past the limit.

        Looks every `every_s`; without it each second at first, and a third as often at what takes long."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            try:
                if await holds():
                    return loop.time() - started
            except Exception as wrong:
                if loop.time() - started > within_s:
                    raise AssertionError(f"not within {within_s} s: {sentence}") from wrong
            assert loop.time() - started <= within_s, f"not within {within_s} s: {sentence}"
            await asyncio.sleep(every_s or (1 if loop.time() - started < 10 else 3))

    async def apply(self, name: str, nodes: int, spares: int = 0, **more: Any) -> InstanceView:
        request = InstanceRequest.model_validate({"nodes": nodes, "spares": spares, **more})
        return await self.compute.ensure_instance(name, request)

    async def active(self, name: str, nodes: int | None = None, within_s: float = 3600) -> InstanceView:
        """The instance once it is Active, ready, settled on its spec (and of that many nodes)."""
        seen: list[InstanceView] = []

        async def settled() -> bool:
            view = await self.compute.find_instance(name)
            assert view is not None
            seen.append(view)
            ready = any(c.type == "Ready" and c.status == "True" for c in view.conditions)
            whole = view.state == "Active" and ready and view.observed_generation == view.generation
            return whole and (nodes is None or view.ready_nodes == nodes)

        await self.until(settled, f"{name} is active", within_s)
        return seen[-1]

    async def gone(self, name: str, within_s: float = 3600) -> None:
        async def absent() -> bool:
            return await self.compute.find_instance(name) is None

        await self.until(absent, f"{name} is gone", within_s)

    def impair(self, name: str, kind: str, target: str, **parameters: Any) -> None:
        """Break emulated hardware."""
        assert self.fleet is not None
        fault = {"name": name, "kind": kind, "target": target, "parameters": parameters}
        self.fleet.inject(InjectedFault.model_validate(fault))

    def repair(self, name: str) -> None:
        assert self.fleet is not None
        self.fleet.clear(name)

    # -- what must always hold -----------------------------------------------------------------------------------

    async def check(self) -> None:
        """The invariants, read through the services' own views."""
        instances = {each.name for each in await self.compute.instances()}
        nodes = await self.resource.nodes()
        allocations = {each.name: each for each in await self.resource.allocations()}
        current: dict[str, list[str]] = {}
        for node in nodes:
            if node.allocation is not None:
                current.setdefault(node.allocation, []).append(node.name)
        for name, members in current.items():
            assert name in allocations, f"{members} are held by {name}, which does not exist"
        for name, allocation in allocations.items():
            listed = sorted(member.node for member in allocation.members)
            assert listed == sorted(current.get(name, [])), f"{name} lists other nodes than it holds"
            ranks = [member.rank for member in allocation.members if member.role == "member"]
            assert len(ranks) == len(set(ranks)), f"{name} gives a rank twice"
        self.node_moves()
        slices = await self.link.slices()
        promised = 0
        for of in [{"plane": "rdma"}, *({"node": node} for members in current.values() for node in members)]:
            # Floors lie on what leaves the members of a slice, and on leaves and spines.
            for link in await list_all(self.http["link"], "/v1/links", of):
                assert link["floorsGbps"] <= link["gbps"] + 1e-6 or link["gbps"] < link["builtGbps"], link
                promised += link["floorsGbps"] > 0
        still = {each.name for each in await self.link.slices() if each.state == "Active"}
        floors = [each.name for each in slices if each.state == "Active" and each.floor_gbps_per_npu]
        assert promised or not still & set(floors), f"{floors} have floors, but no link has"
        # Who came or went while the rest was read is in one of the two lists: until everything of it is given back, an
        # instance is there, also while it is being deleted.
        instances |= {each.name for each in await self.compute.instances()}
        for name in allocations:
            assert name in instances, f"allocation {name} is an orphan"
        for slice in slices:
            assert slice.instance in instances, f"slice {slice.name} is an orphan"

    def node_moves(self) -> set[tuple[str, str]]:
        """The moves between states that nodes made, as far as the journal reaches back; each is in the table."""
        database = self.seats["resource"].database
        assert database is not None
        with database.engine.connect() as connection:
            rows = connection.execute(text("SELECT name, body FROM changes WHERE kind = 'node' ORDER BY rv")).all()
        at: dict[str, str] = {}
        moves = set()
        for name, body in rows:
            state = json.loads(body)["state"]
            if at.get(name, state) != state:
                moves.add((at[name], state))
            at[name] = state
        assert not (illegal := {f"{before} -> {after}" for before, after in moves if after not in LEGAL[before]}), (
            illegal
        )
        return moves

    async def nothing_left(self) -> None:
        """After a deletion: no allocation, no slice, no program, every node clean again."""
        assert await self.resource.allocations() == []
        assert await self.link.slices() == []
        await self.until(self._enrolled, "every node is available again")

    async def get(self, service: str, path: str, **more: Any) -> httpx.Response:
        return await self.http[service].get(path, **more)
