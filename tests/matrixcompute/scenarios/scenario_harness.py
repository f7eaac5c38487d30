"""A machine of three nodes on which faults show at once, and MatrixCompute's scenario runs over a database in a file.

`crash_at` counts what is written: by MatrixCompute into its database, and by what it asks of the others. At that one
MatrixCompute dies, before or after it was done; `restart` begins its next life on what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy import event

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import NotFound
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixcompute.instances.scenarios import ScenarioRuns, Scenarios
from matrixcompute.reconcilers.scenario_runs import ScenarioRunReconciler
from matrixcompute.scenarios.runs import ScenarioRunRequest, ScenarioRunView
from matrixcompute.scenarios.service_clients import ServiceClients
from matrixcompute.store.scenarios import ScenarioRunRow
from matrixcompute.store.store import Base, ComputeStore
from services.chassis.database import DatabaseEngine
from services.compute.main import MIGRATIONS
from tests.clocks import LoopClock

NODES = ("sn0-c00-n0", "sn0-c00-n1", "sn0-c00-n2")


class Crashed(BaseException):
    """MatrixCompute is no more."""


class FakeServices(ServiceClients):
    """What the services of such a machine answer. An instance is Active as soon as it is asked for."""

    def __init__(self) -> None:
        super().__init__({})
        self.faults: dict[str, dict[str, Any]] = {}
        self.instances: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.moments: list[tuple[int, str]] = []
        self.crash_at: tuple[int, str] | None = None
        self.unavailable: Exception | None = None

    async def list_all(self, service: str, collection: str) -> list[dict[str, Any]]:
        if self.unavailable is not None:
            raise self.unavailable
        unpowered = {each["target"] for each in self.faults.values()}
        return {
            "nodes": [{"name": name, "state": "Available", "powered": name not in unpowered} for name in NODES],
            "faults": list(self.faults.values()),
            "instances": list(self.instances.values()),
        }.get(collection, [])

    async def find(self, service: str, collection: str, key: str) -> dict[str, Any] | None:
        return self.instances.get(key)

    async def put(
        self, service: str, collection: str, key: str, body: dict[str, Any], *, validate_only: bool = False
    ) -> dict[str, Any]:
        ready = [{"type": "Ready", "status": "True"}]
        view = {"name": key, "project": "default", "state": "Active", "conditions": ready, "members": [], **body}
        if body.get("target", NODES[0]) not in NODES:
            raise NotFound(f"this fleet has no node {body['target']!r}", field="target")
        if not validate_only:
            self.count("before")
            (self.faults if collection == "faults" else self.instances)[key] = view
            self.count("after")
        return view

    async def delete(self, service: str, collection: str, key: str) -> None:
        self.count("before")
        (self.faults if collection == "faults" else self.instances).pop(key.rpartition("/")[2], None)
        self.count("after")

    def count(self, moment: str) -> None:
        """One more write; MatrixCompute dies where it is to."""
        self.writes += moment == "before"
        self.moments.append((self.writes, moment))
        if self.crash_at == self.moments[-1]:
            self.crash_at = None
            raise Crashed


class ScenarioHarness:
    """MatrixCompute's scenarios over such a machine."""

    def __init__(self, folder: Path, machine: FakeServices, clock: Clock | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.machine, self.clock = machine, clock or LoopClock()
        self.database = DatabaseEngine(f"sqlite:///{folder / 'compute.db'}")
        self.database.migrate(MIGRATIONS)
        self.restart()

    def restart(self) -> None:
        """A life that knows what the last one wrote."""
        records = Database(self.database.sessions, Base.metadata, self.clock)
        self.store, self.fences = ComputeStore(records), Fences(records)
        self.scenarios, self.runs = Scenarios(self.store), ScenarioRuns(self.store, self.machine, self.clock)
        self.reconciler = ScenarioRunReconciler(self.store, self.machine, self.clock)
        self.runs.wake = self.reconciler.check_stop

    def count_writes(self) -> None:
        """From now on what is committed counts as a write, too."""
        event.listen(self.database.engine, "commit", lambda _: self.machine.count("before"))

    async def put(self, under: str, validate_only: bool = False, **spec: Any) -> ScenarioRunView:
        return await self.runs.ensure(under, ScenarioRunRequest.model_validate(spec), validate_only=validate_only)

    def view(self, name: str) -> ScenarioRunView:
        with self.store.reading() as session:
            row = session.get(ScenarioRunRow, name)
            assert row is not None
            return row.view()

    async def run_until_over(
        self, name: str, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> ScenarioRunView:
        """Looks until it is over; whoever dies on the way lives again."""
        for _ in range(20):
            reconciling = asyncio.create_task(self._reconcile())
            if meanwhile is not None:
                await meanwhile()
                meanwhile = None
            if not await reconciling:
                self.restart()
            if (view := self.view(name)).finished_at is not None:
                return view
            await asyncio.sleep(15)
        raise AssertionError(f"it does not end: {self.view(name)}")

    async def _reconcile(self) -> bool:
        """One, as a process makes it; False where it died."""
        try:
            await self.reconciler.reconcile()
        except Crashed:
            return False
        return True
