"""A machine that does at once what a maintenance asks of it, and MatrixCompute's part of it over a database in a file.

`crash_at` counts what is asked and what is written: at that one MatrixCompute dies, before or after it was done, and
`restart` begins its next life on what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sqlalchemy import event

from matrixcommon.api.client import WatchEvent
from matrixcommon.persistence.database_session import Database
from matrixcompute.instances.maintenances import Maintenances
from matrixcompute.maintenance.spec import MaintenanceRequest, MaintenanceView
from matrixcompute.reconcilers.maintenance import MaintenanceReconciler
from matrixcompute.store.maintenances import MaintenanceRow
from matrixcompute.store.store import Base, ComputeStore
from matrixlink.contract.drains import DrainView
from matrixresource.contract.allocations import AllocationView
from matrixresource.contract.nodes import NodeView
from services.chassis.database import DatabaseEngine
from services.compute.main import MIGRATIONS
from tests.clocks import FixedClock
from tests.matrixcompute.test_maintenance_decision import node_view


class Crashed(BaseException):
    """MatrixCompute is no more."""


class FakeMachine:
    """Some free nodes of one cabinet, and its switches. The firmware of those in `bad` cannot be written."""

    def __init__(self, nodes: int = 2) -> None:
        self.nodes_by_name = {name: node_view(name) for name in (f"sn0-c00-n{number}" for number in range(nodes))}
        self.bad: set[str] = set()
        self.drain: DrainView | None = None
        self.request_count = 0
        self.moments: list[tuple[int, str]] = []
        self.crash_at: tuple[int, str] | None = None

    # -- what is asked of it -------------------------------------------------------------------------------------------

    async def announce(self) -> None:
        """Nobody else leads."""

    async def watch(self, collection: str, since: int | None) -> AsyncIterator[WatchEvent]:
        return
        yield

    async def nodes(self, filter: str) -> list[NodeView]:
        field, _, value = filter.partition("=")
        return [node for node in self.nodes_by_name.values() if getattr(node, field) == value]

    async def allocations(self) -> list[AllocationView]:
        return []

    async def domains(self, filter: str) -> list[NodeView]:
        return []

    async def knows_switch(self, name: str) -> bool:
        return True

    async def routed_over(self, switch: str) -> list[str]:
        return []

    async def find_drain(self, name: str) -> DrainView | None:
        return self.drain

    async def ensure_drain(self, name: str, switch: str, reason: str) -> None:
        self.count("before")
        self.drain = DrainView(name=name, state="Drained", elements=[switch], ports=1, waiting_for=0)
        self.count("after")

    async def delete_drain(self, name: str) -> None:
        self.count("before")
        self.drain = None
        self.count("after")

    async def cordon(self, node: str, by: str, cordoned: bool = True) -> None:
        self._change(node, cordoned_by=[by] if cordoned else [])

    async def call_node_verb(self, node: str, verb: str, reason: str, firmware: str | None = None) -> None:
        if verb == "service":
            self._change(node, state="Servicing", desired_state="Servicing")
        elif verb == "recover":
            self._change(node, state="Available", desired_state="Available")
        elif node in self.bad:
            self._change(node, state_reason="StageFailed", state_message="write-firmware: no")
        else:
            self._change(node, firmware=firmware)

    def _change(self, node: str, **fields: object) -> None:
        self.count("before")
        self.nodes_by_name[node] = self.nodes_by_name[node].model_copy(update=fields)
        self.count("after")

    def count(self, moment: str) -> None:
        """One more thing that was asked or written; dies where it is to."""
        self.request_count += moment == "before"
        self.moments.append((self.request_count, moment))
        if self.crash_at == self.moments[-1]:
            self.crash_at = None
            raise Crashed


class MaintenanceHarness:
    """MatrixCompute's maintenances over such a machine."""

    def __init__(self, folder: Path, machine: FakeMachine) -> None:
        self.machine, self.clock = machine, FixedClock()
        self.database = DatabaseEngine(f"sqlite:///{folder / 'compute.db'}")
        self.database.migrate(MIGRATIONS)
        self.restart()

    def restart(self) -> None:
        """A life that knows what the last one wrote."""
        records = Database(self.database.sessions, Base.metadata, self.clock)
        self.store = ComputeStore(records)
        control_plane: Any = self.machine
        self.verbs = Maintenances(self.store, control_plane, self.clock)
        self.reconciler = MaintenanceReconciler(self.store, control_plane, self.clock)

    def count_writes(self) -> None:
        """From now on writing counts as something that is asked, too."""
        event.listen(self.database.engine, "commit", lambda _: self.machine.count("before"))

    def put(self, name: str, **spec: Any) -> MaintenanceView:
        return asyncio.run(self.verbs.ensure(name, MaintenanceRequest.model_validate(spec)))

    def view(self, name: str) -> MaintenanceView:
        with self.store.reading() as session:
            row = session.get(MaintenanceRow, name)
            assert row is not None
            return row.view()

    def reconcile(self) -> None:
        asyncio.run(self.reconciler.reconcile())

    def run_until_over(self, name: str) -> MaintenanceView:
        """Looks until it is over; whoever dies on the way lives again."""
        for _ in range(60):
            try:
                self.reconcile()
            except Crashed:
                self.restart()
            self.clock.at += 60.0
            if (view := self.view(name)).finished_at is not None:
                return view
        raise AssertionError(f"it does not end: {self.view(name)}")
