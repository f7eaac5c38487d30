"""Machine: MatrixResource's verbs over a database in a file, with obedient agents on every node.

`report_all` has every agent do at once what is requested of it and report so; until then specs are open. `restart` begins a new
life of the service on what the last one wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import select

from matrixcommon.persistence.database_session import Database
from matrixresource.allocations.allocator import Allocator
from matrixresource.allocations.quotas import Quotas
from matrixresource.contract.agents import NodeReport, PartReport, ReportedFault
from matrixresource.contract.allocations import AllocationRequest, AllocationView
from matrixresource.contract.reservations import ReservationView
from matrixresource.controllers.node_reports import NodeReportProcessor
from matrixresource.planning.planner import Planner
from matrixresource.store.reservations import ReservationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base as Tables
from matrixresource.supernodes.topology_manager import TopologyManager
from matrixresource.topology.loading import load_spec
from matrixresource.topology.spec import SupernodeSpec
from services.chassis.database import DatabaseEngine
from services.resource.main import MIGRATIONS
from tests.clocks import FixedClock
from tests.matrixresource.accounting import Accounting, check_cache_matches_tables, check_ledger_matches_tables
from tests.matrixresource.topology.seeded_database import copy_seeded_database


class Machine:
    """`url` of its database, SQLite in the folder unless given; one supernode unless more are asked for; `policy` of
    the allocator. `shared`: replicas write into the database too."""

    def __init__(
        self,
        folder: Path,
        supernodes: int = 1,
        url: str | None = None,
        policy: str = "best",
        spec: SupernodeSpec | None = None,
        shared: bool = False,
    ) -> None:
        self.spec = spec or load_spec()
        self.shared = shared
        self.url, self.policy = url or f"sqlite:///{folder / 'resource.db'}", policy
        self.clock = FixedClock()
        self.epoch, self.sequence = 1, 0
        names = [f"sn{number}" for number in range(supernodes)]
        file = folder / "resource.db"
        if url is None and names and not file.exists():
            copy_seeded_database(file, names, self.spec)
        self.start(names)
        self.report_all()

    def start(self, names: list[str]) -> None:
        self.database = DatabaseEngine(self.url)
        self.database.migrate(MIGRATIONS)
        self.store = ResourceStore(Database(self.database.sessions, Tables.metadata, self.clock, self.shared))
        self.topology_manager = TopologyManager(self.store, self.clock, self.spec)
        self.topology_manager.seed(names)
        self.allocator = Allocator(self.store, self.clock, self.policy)
        self.planner = Planner(self.store, self.allocator.ledger, self.clock)
        self.quotas = Quotas(self.store)
        self.reports = NodeReportProcessor(
            self.store, self.allocator, self.topology_manager, self.clock, grace_s=60, nudge=lambda: None
        )

    def reservation(self, name: str) -> ReservationView:
        return next(view for view in self.reservations() if view.name == name)

    def reservations(self) -> list[ReservationView]:
        with self.store.reading() as session:
            return [row.view() for row in session.scalars(select(ReservationRow).order_by(ReservationRow.name))]

    def restart(self) -> None:
        self.database.close()
        self.start([])

    def report_all(
        self,
        *silent: str,
        faults: Mapping[str, Sequence[tuple[str, str]]] | None = None,
        status: str | None = None,
        lease_s: float = 86_400,
    ) -> None:
        """Every agent but the `silent` reports that its spec is fulfilled, or else how far it is with it.

        `faults` are pairs of code and component by node.
        """
        self.sequence += 1
        with self.store.reading() as session:
            requests = [row.view() for row in self.store.assignments(session) if row.name not in silent]
        done = {"Clean": "Clean", "Spare": "Spare", "Member": "Active"}
        found = faults or {}
        self.reports.process(
            [
                NodeReport(
                    node=request.name,
                    epoch=self.epoch,
                    sequence=self.sequence,
                    lease_s=lease_s,
                    status=status or done[request.desired_role],
                    generation=request.generation,
                    allocation=request.allocation,
                    parts=[PartReport(allocation=part.allocation, status="Active") for part in request.parts],
                    faults=[ReportedFault(code=code, component=at) for code, at in found.get(request.name, ())],
                )
                for request in requests
            ]
        )

    def reserve(self, name: str, validate_only: bool = False, **desired: object) -> AllocationView:
        """Reserve under REST's names: `machine.reserve("a", npus=2, affinity={"allocations": ["b"]})`."""
        return self.allocator.reserve(name, AllocationRequest.model_validate(desired), validate_only=validate_only)

    def provision(self, name: str, **desired: object) -> AllocationView:
        """Reserved, bound and served."""
        self.reserve(name, **desired)
        self.allocator.bind(name)
        self.report_all()
        return self.allocation(name)

    def allocation(self, name: str) -> AllocationView:
        with self.store.reading() as session:
            return self.store.allocation(session, name).view()

    def names(self) -> list[str]:
        with self.store.reading() as session:
            return [row.name for row in self.store.allocations(session)]

    def check(self) -> None:
        """What is held is held once, as it was asked and as agents are asked; the ledger say what the tables say."""
        with self.store.reading() as session:
            Accounting(session).check()
            check_ledger_matches_tables(session, self.allocator.ledger, self.store)
            check_cache_matches_tables(session, self.store.records)
