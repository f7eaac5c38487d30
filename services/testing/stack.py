"""InProcessStack: resource, link, compute and the agents in one process, over ASGI, in the event loop's time.

In a loop with virtual time, an hour costs seconds. Every service has its own database file, so each can be killed at
any point (`kill`) and started again on its database (`start`). A stack continues from a copy of one whose nodes are
enrolled (`prepared`), unless it is told to start from nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from matrixcompute.client import ComputeClient
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.clients.inference import Inference
from matrixlink.client import LinkClient
from matrixresource.client import ResourceClient
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
from services.testing import validators
from services.testing.asgi import StreamingASGITransport
from services.testing.clocks import EPOCH_S, InlineExecutor, LoopClock
from services.testing.prepared import Prepared, databases_in, prepared
from services.testing.statements import share_statements

SERVICES = ("resource", "link", "compute", "agents")
AGENTS = ("resource", "link")
"""The kinds of agents on each node."""


class ServiceSlot:
    """One service's slot in the stack: its transport, and its current life if it is running."""

    def __init__(self) -> None:
        self.transport = StreamingASGITransport(None)
        self.transport.down = True
        self.life: AsyncExitStack | None = None
        self.database: DatabaseEngine | None = None


class InProcessStack:
    """`async with InProcessStack(folder) as stack`: all services up and nodes enrolled. With `tokens` every request
    needs a token."""

    resource_client: type[ResourceClient] = ResourceClient
    link_client: type[LinkClient] = LinkClient
    compute_client: type[ComputeClient] = ComputeClient

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
        time_scale: float = 0.0,
        start_from: Prepared | None = None,
        cached: bool = False,
    ) -> None:
        """`topology`: a file with the supernode's topology; `spec`: a file with numbers other than the published ones.
        A stack with either always starts from nothing. `settings`: more settings, by service. `time_scale`: see
        LoopClock. `start_from`: the state to continue from, by default enrolled nodes and nothing else; with `cached`
        that default is looked for in the user's cache. In a folder that another stack has used, this one continues that
        stack."""
        self.folder = folder
        self.from_nothing = from_nothing or bool(topology or spec) or any(folder.glob("*.db"))
        self.topology, self.spec = topology, spec
        self.services = (*SERVICES, *(["infer"] if infer else []))
        self.tokens = folder / "tokens.json" if tokens else None
        self._tokens: dict[tuple[str, str, str], str] = {}
        self.admin = admin = self.token("admin", project="default") if tokens else ""
        agent = self.token("agent", project="*", nodes="*") if tokens else ""
        self.seed = seed
        self.settings = settings or {}
        self.time_scale, self.start_from, self.cached = time_scale, start_from, cached
        self.epoch_s = EPOCH_S
        self.clock = LoopClock(self.epoch_s, time_scale)
        self.slots = {name: ServiceSlot() for name in self.services}
        self.http = {
            name: http_client(f"http://{name}", admin, transport=self.transport_to(name)) for name in self.services
        }
        self.agents_http = {
            name: http_client(f"http://{name}", agent, transport=self.transport_to(name)) for name in self.services
        }
        self.resource = self.resource_client(self.http["resource"])
        self.link = self.link_client(self.http["link"])
        self.compute = self.compute_client(self.http["compute"])
        self.fleet: Fleet | None = None
        self.memory: FleetStore | None = None

    def transport_to(self, name: str) -> httpx.AsyncBaseTransport:
        """Return the transport of requests to a service."""
        return self.slots[name].transport

    async def __aenter__(self) -> InProcessStack:
        if not self.from_nothing:
            self.copy_initial_state()
        for name in self.services:
            await self.start(name)
        if self.start_from is None:
            await self.until(self._enrolled, "every node is available")
        await self.until(self._all_reported, "every agent has reported in this life")
        return self

    def initial_state(self) -> Prepared:
        """Return the state that this stack continues from: `start_from`, or that of a stack with these services and
        this seed once its nodes were enrolled."""
        kind = type(self)
        services = "infer" in self.services
        return self.start_from or prepared(
            f"{kind.__name__} {services=} seed={self.seed}",
            lambda folder: kind(folder, self.seed, infer=services, from_nothing=True),
            cached=self.cached,
        )

    def copy_initial_state(self) -> None:
        """Write `initial_state()` into the folder and let the clock continue from there."""
        before = self.initial_state()
        before.write_to(self.folder)
        self.epoch_s = EPOCH_S + before.seconds - asyncio.get_running_loop().time()
        self.clock = LoopClock(self.epoch_s, self.time_scale)

    def state(self) -> Prepared:
        """Return the stack's current state."""
        return Prepared(databases_in(self.folder), self.clock.now() - EPOCH_S)

    async def __aexit__(self, *_: object) -> None:
        for name in reversed(self.services):
            await self.kill(name)
        if self.memory is not None:
            self.memory.close()
        validators.release()

    def token(self, role: str, project: str, nodes: str = "") -> str:
        """Return a token of that role, known to every service. It is created once, because all services reload the
        token file whenever it changes."""
        assert self.tokens is not None
        asked = role, project, nodes
        if asked not in self._tokens:
            name = f"{role}-of-{project}".replace("*", "all")
            self._tokens[asked] = create_token(self.tokens, name, project, role, nodes)
        return self._tokens[asked]

    async def _enrolled(self) -> bool:
        return all(node.state == "Available" for node in await self.resource.nodes())

    async def _all_reported(self) -> bool:
        """Whether every agent of a responsive node has reported. Broken nodes do not report."""
        assert self.fleet is not None
        responsive = [name for name, node in self.fleet.nodes.items() if node.responsive]
        return all(self.fleet.agent(kind, name).sequence > 1 for kind in AGENTS for name in responsive)

    # -- lives ---------------------------------------------------------------------------------------------------

    async def start(self, name: str) -> None:
        """Start this service on its database."""
        slot = self.slots[name]
        app = self._build(name, slot)
        slot.life = AsyncExitStack()
        await slot.life.enter_async_context(app.router.lifespan_context(app))
        slot.transport.app = app
        slot.transport.down = False

    async def kill(self, name: str) -> None:
        """Stop it immediately: open requests and watches are cut off, and nothing is reported."""
        slot = self.slots[name]
        slot.transport.down = True
        slot.transport.cut()
        if slot.life is not None:
            await slot.life.aclose()
            slot.life = None

    async def stop_background_tasks(self, name: str) -> None:
        """Stop a service's background tasks while it still answers requests."""
        life, self.slots[name].life = self.slots[name].life, None
        if life is not None:
            await life.aclose()

    async def restart(self, name: str) -> None:
        await self.kill(name)
        await self.start(name)

    def _build(self, name: str, slot: ServiceSlot) -> Any:
        clock, more = self.clock_of(name), self.settings.get(name, {})
        common: dict[str, Any] = {"state": self.folder, "tokens": self.tokens}
        if name == "agents":
            of_agents = agents_main.AgentSettings(seed=self.seed, spec=self.spec, **common, **more)
            clients = ResourceClient(self.agents_http["resource"]), self.link_client(self.agents_http["link"])
            self.memory = self.memory or FleetStore(self.folder / "agents.db")
            self.fleet = agents_main.build_fleet(of_agents, clock, self.memory, *clients)
            return agents_main.build(self.fleet, of_agents)
        slot.database = self.database_of(name)
        if name == "resource":
            slot.database.migrate(resource_main.MIGRATIONS)
            drawn: dict[str, Any] = {"topology": self.topology, "spec": self.spec}
            of_resource = resource_main.ResourceSettings(**common, **drawn, **more)
            return resource_main.build(of_resource, clock, slot.database, executor=InlineExecutor())
        if name == "link":
            slot.database.migrate(link_main.MIGRATIONS)
            of_link = link_main.LinkSettings(spec=self.spec, **common, **more)
            return link_main.build(of_link, clock, slot.database, self.resource)
        if name == "infer":
            slot.database.migrate(infer_main.MIGRATIONS)
            of_infer = infer_main.InferSettings(seed=self.seed, **common, **more)
            hardware = infer_main.HardwareOverHttp(self.http["agents"])
            return infer_main.build(of_infer, clock, slot.database, self.link, hardware, self.resource)
        slot.database.migrate(compute_main.MIGRATIONS)
        neighbours = ControlPlane(self.http["resource"], self.link)
        of_compute = compute_main.ComputeSettings(token=self.admin, **common, **more)
        asked = {each: self.http[each] for each in ("resource", "link", "agents")}
        inference = Inference(self.http["infer"]) if "infer" in self.http else None
        return compute_main.build(of_compute, clock, slot.database, neighbours, inference, asked)

    def clock_of(self, name: str) -> LoopClock:
        """Return a service's clock."""
        return self.clock

    def database_of(self, name: str) -> DatabaseEngine:
        """Return a service's database."""
        return share_statements(DatabaseEngine(f"sqlite:///{self.folder / f'{name}.db'}"))

    # -- waiting -------------------------------------------------------------------------------------------------

    async def until(
        self, holds: Callable[[], Awaitable[bool]], sentence: str, within_s: float = 3600, every_s: float = 0
    ) -> float:
        """Wait until `holds()` is true and return how long that took (seconds of the loop). Raises AssertionError after
        `within_s`.

        Checks every `every_s`, by default every second for the first ten seconds and then every three."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            try:
                if await holds():
                    return loop.time() - started
            except Exception as wrong:
                if loop.time() - started > within_s:
                    raise AssertionError(f"not met within {within_s} s: {sentence}") from wrong
            assert loop.time() - started <= within_s, f"not met within {within_s} s: {sentence}"
            await asyncio.sleep(every_s or (1 if loop.time() - started < 10 else 3))
