"""MatrixResource without its HTTP: takes reports, on a clock that stands, and can be ended and begun again."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import delete

from matrixcommon.model.hardware_names import NodeName
from matrixcommon.persistence.database_session import Database
from matrixresource.allocations.allocator import Allocator
from matrixresource.contract.agents import NodeReport, ReportAnswer, ReportedFault
from matrixresource.contract.nodes import NpuView
from matrixresource.controllers.node_reports import NodeReportProcessor
from matrixresource.store.allocation_tables import AssignmentRow
from matrixresource.store.node_inventories import InventoryRow
from matrixresource.store.npu_views import npu_views
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base as Tables
from matrixresource.store.tables import NodeRow
from matrixresource.supernodes.topology_manager import TopologyManager
from matrixresource.topology.loading import load_spec
from services.chassis.database import DatabaseEngine
from services.resource.main import MIGRATIONS
from tests.clocks import FixedClock
from tests.matrixresource.topology.seeded_database import copy_seeded_database

NODE = NodeName("sn0-c00-n0")


class ReportingService:
    """One node's agent is played by `report`, with the next number in sequence."""

    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder / 'resource.db'}"
        self.clock = FixedClock()
        self.sequence = 0
        copy_seeded_database(folder / "resource.db", ["sn0"], load_spec())
        self.start()

    def start(self) -> None:
        """A life of the service on what its last one wrote."""
        database = DatabaseEngine(self._url)
        database.migrate(MIGRATIONS)
        self.store = ResourceStore(Database(database.sessions, Tables.metadata, self.clock))
        topology_manager = TopologyManager(self.store, self.clock, load_spec())
        self.nudges: list[str] = []
        allocator = Allocator(self.store, self.clock)
        self.reports = NodeReportProcessor(
            self.store,
            allocator,
            topology_manager,
            self.clock,
            grace_s=60,
            nudge=lambda: self.nudges.append("replenish"),
        )

    def report(self, *faults: tuple[str, str], after_s: float = 0.0, epoch: int = 1, **more: object) -> ReportAnswer:
        """A report `after_s` later; a fault is a code and a component."""
        self.clock.at += after_s
        self.sequence += 1
        reported = {"status": "Clean", "generation": 1, "sequence": self.sequence, "lease_s": 30.0} | more
        found = [ReportedFault(code=code, component=component) for code, component in faults]
        return self.reports.process([NodeReport(node=NODE, epoch=epoch, faults=found, **reported)])[0]

    @property
    def node(self) -> NodeRow:
        with self.store.reading() as session:
            node = self.store.node(session, NODE)
            session.expunge(node)
        return node

    @property
    def assignment(self) -> AssignmentRow:
        with self.store.reading() as session:
            desired = next(row for row in self.store.assignments(session) if row.name == NODE)
            session.expunge(desired)
        return desired

    def npu(self, index: int) -> NpuView:
        return npu_views(self.node, load_spec())[index]

    def forget_inventories(self) -> None:
        with self.store.transaction() as session:
            session.execute(delete(InventoryRow))
