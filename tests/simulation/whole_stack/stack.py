"""SimulatedStack: all services and agents, each a process of a `VirtualLoop`, joined by a `Network`.

A process ends as by SIGKILL: nothing of it is written or sent any more, whatever its code does when it is cancelled.
Each has a clock of its own, which may be stepped.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import Context
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import httpx
import yaml
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from services.chassis.database import DatabaseEngine
from services.chassis.http import http_client
from services.compute import controllers as compute_controllers
from services.testing.prepared import Prepared, prepared
from tests.clocks import LoopClock
from tests.simulation.whole_stack.kubernetes import Kubernetes, Operator
from tests.simulation.whole_stack.loop import PROCESS, VirtualLoop
from tests.simulation.whole_stack.network import CALM, Network, Process
from tests.simulation.whole_stack.served import ServedModels
from tests.small_stack import SmallStack, replica_of
from tests.stack import EPOCH_S, ServiceSlot

QUICKER = 8.0
"""Stages of nodes take so much less time: what is waited for is not what goes wrong."""


OUTSIDE = ("kube", "operator")
"""Processes besides the services: the embedded Kubernetes API, and who acts on it."""
SERVED = "infer"
"""Where somebody scales, the process that serves models."""
LOOKS_S = 5.0
"""How often policies look there: a life lasts for minutes."""


class SteppedClock(LoopClock):
    """The loop's time, and what it was stepped by."""

    offset_s = 0.0

    def now(self) -> float:
        return super().now() + self.offset_s


@functools.cache
def quick_stages() -> Path:
    """The stages of nodes with shorter delays."""
    import matrixresource.agent.agent as agent

    document = yaml.safe_load((Path(agent.__file__).parent / "node_stages.yaml").read_text())
    for stages in document.values():
        for stage in stages:
            stage |= {name: stage[name] / QUICKER for name in ("delay_s", "jitter_s")}
    folder = Path(tempfile.mkdtemp(prefix="quick-stages-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "stages.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


class SimulatedStack(SmallStack):
    """`async with SimulatedStack(folder, network=network) as stack`, in a VirtualLoop."""

    def __init__(
        self,
        folder: Path,
        seed: int = 1,
        *,
        network: Network | None = None,
        replicated: tuple[str, ...] = (),
        from_nothing: bool = False,
        scaled: bool = False,
    ) -> None:
        """`replicated`: the services that have two replicas. `scaled`: models are served, for policies to scale."""
        self.network = network or Network(Random(0), CALM, lambda kind, event: None)
        self.clocks: dict[str, SteppedClock] = {}
        self.on_copied: Callable[[], None] = lambda: None
        settings = {"agents": {"stages": quick_stages()}}
        super().__init__(folder, seed, settings=settings, from_nothing=from_nothing)
        self.served = ServedModels()
        self.scaled = scaled
        self.outside = (*([SERVED] if scaled else []), *OUTSIDE)
        self.services = (*self.services, *self.outside)
        self.slots |= {name: ServiceSlot() for name in self.outside}
        if scaled:
            self.http[SERVED] = http_client(f"http://{SERVED}", transport=self.transport_to(SERVED))
        self._replicated = replicated
        for service in replicated:
            at = self.services.index(service) + 1
            self.services = (*self.services[:at], replica_of(service), *self.services[at:])
            self.slots[replica_of(service)] = ServiceSlot()
        self._processes = {name: Process(name) for name in self.services}
        for name, process in self._processes.items():
            self.network.processes.setdefault(service_of(name), []).append(process)

    def transport_to(self, name: str) -> httpx.AsyncBaseTransport:
        return self.network.transport_to(name)

    def copied(self) -> Prepared:
        """What every life begins with."""
        return prepared("simulated", lambda folder: SimulatedStack(folder, from_nothing=True), VirtualLoop)

    def copy_initial_state(self) -> None:
        before = self.copied()
        before.write_to(self.folder)
        self.clock = LoopClock(EPOCH_S + before.seconds)
        self.on_copied()

    def clock_of(self, name: str) -> LoopClock:
        """A process's own, in all its lives."""
        return self.clocks.setdefault(PROCESS.get(), SteppedClock(self.clock._epoch_s))

    def database_of(self, name: str) -> DatabaseEngine:
        database = super().database_of(service_of(name))
        database.shared = service_of(name) in self._replicated
        return database

    def _build(self, name: str, seat: ServiceSlot) -> Any:
        if name == "kube":
            return Kubernetes(self.folder / "kube.db", self.clock_of(name).now, self.seed)
        if name == "operator":
            return Operator(self.transport_to, self.clock_of(name).now, self.scaled)
        if name == SERVED:
            self.served.now = self.clock_of(name).now
            return self.served
        if self.scaled and service_of(name) == "compute":
            with patch.object(compute_controllers, "AUTOSCALING_PERIOD_S", LOOKS_S):
                return super()._build("compute", seat)
        return super()._build(service_of(name), seat)

    # -- lives of processes --------------------------------------------------------------------------------------

    async def start(self, name: str) -> None:
        context = Context()
        context.run(PROCESS.set, name)
        await asyncio.get_running_loop().create_task(self._start(name), context=context)

    async def _start(self, name: str) -> None:
        seat, process = self.slots[name], self._processes[name]
        built = self._build(name, seat)
        seat.life = AsyncExitStack()
        if name in self.outside:
            await seat.life.enter_async_context(built.life())
            process.app = getattr(built, "asgi", None)
        else:
            await seat.life.enter_async_context(built.router.lifespan_context(built))
            process.app = built
        process.up = True

    def stop_writing(self, name: str) -> None:
        """From now on nothing that this process does has any effect."""
        seat, process = self.slots[name], self._processes[name]
        process.up = False
        process.life += 1
        if seat.database is not None:
            for asked in ("begin", "before_cursor_execute"):  # some is read past SQLAlchemy's cursors
                event.listen(seat.database.engine, asked, _refuse)

    async def kill(self, name: str) -> None:
        seat, process = self.slots[name], self._processes[name]
        self.stop_writing(name)
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.resume(name)
        process.cut()
        life, seat.life = seat.life, None
        if life is not None:
            await life.aclose()


def service_of(process: str) -> str:
    return process.removesuffix("-replica")


def _refuse(*_: Any) -> None:
    raise OperationalError("nothing", {}, Exception("this process has ended"))
