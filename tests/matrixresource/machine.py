"""Machine: MatrixResource's verbs over a database in a file, with obedient agents on every node.

`obey` has every agent do at once what is wished of it and report so; until then wishes are open. `restart` begins a new
life of the service on what the last one wrote.
"""

from __future__ import annotations

from pathlib import Path

from matrixresource.allocator import Allocator
from matrixresource.contract import AllocationRequest, AllocationView, NodeReport, PartReport
from matrixresource.planner import Planner
from matrixresource.quotas import Quotas
from matrixresource.store import Base as Tables
from matrixresource.store import ResourceStore
from matrixresource.surveyor import Surveyor
from matrixresource.topology.spec import SupernodeSpec
from matrixresource.vocabulary.clock import FixedClock
from matrixresource.vocabulary.records import Records
from matrixresource.watchers.node_reports import NodeReports
from services.chassis.database import Database
from services.resource.main import MIGRATIONS


class Machine:
    """`url` of its database, SQLite in the folder unless given; one supernode unless more are asked for."""

    def __init__(self, folder: Path, supernodes: int = 1, url: str | None = None) -> None:
        self.url = url or f"sqlite:///{folder / 'resource.db'}"
        self.clock = FixedClock()
        self.sequence = 0
        self.begin([f"sn{number}" for number in range(supernodes)])
        self.obey()

    def begin(self, names: list[str]) -> None:
        self.database = Database(self.url)
        self.database.migrate(MIGRATIONS)
        self.store = ResourceStore(Records(self.database.sessions, Tables.metadata, self.clock))
        self.surveyor = Surveyor(self.store, self.clock, SupernodeSpec.load())
        self.surveyor.seed(names)
        self.allocator = Allocator(self.store, self.clock)
        self.planner = Planner(self.store, self.allocator.books, self.clock)
        self.quotas = Quotas(self.store)
        self.reports = NodeReports(
            self.store, self.allocator, self.surveyor, self.clock, grace_s=60, nudge=lambda: None
        )

    def restart(self) -> None:
        self.database.close()
        self.begin([])

    def obey(self, *silent: str) -> None:
        """Every agent but the `silent` reports that its wish is fulfilled."""
        self.sequence += 1
        with self.store.reading() as session:
            wishes = [row.view() for row in self.store.assignments(session) if row.name not in silent]
        done = {"Clean": "Clean", "Spare": "Spare", "Member": "Active"}
        self.reports.take(
            [
                NodeReport(
                    node=wish.name,
                    epoch=1,
                    sequence=self.sequence,
                    lease_s=86_400,
                    status=done[wish.wanted],
                    generation=wish.generation,
                    allocation=wish.allocation,
                    parts=[PartReport(allocation=part.allocation, status="Active") for part in wish.parts],
                )
                for wish in wishes
            ]
        )

    def ask(self, name: str, validate_only: bool = False, **wish: object) -> AllocationView:
        """Reserve under REST's names: `machine.ask("a", npus=2, near={"allocations": ["b"]})`."""
        return self.allocator.reserve(name, AllocationRequest.model_validate(wish), validate_only=validate_only)

    def have(self, name: str, **wish: object) -> AllocationView:
        """Reserved, bound and served."""
        self.ask(name, **wish)
        self.allocator.bind(name)
        self.obey()
        return self.held(name)

    def held(self, name: str) -> AllocationView:
        with self.store.reading() as session:
            return self.store.allocation(session, name).view()

    def names(self) -> list[str]:
        with self.store.reading() as session:
            return [row.name for row in self.store.allocations(session)]

    def check(self) -> None:
        """No die, socket or GiB is held twice, and the books say what the tables say."""
        with self.store.reading() as session:
            books = self.allocator.books
            ledger = books.open(session)
            assert ledger.index.state() == ledger.rebuilt().state()
            dies: dict[str, int] = {}
            cpus: dict[str, int] = {}
            for node in self.store.nodes(session):
                dies[node.name] = 0xFFFF if node.holder else 0
            for part in self.store.parts(session):
                assert not dies[part.node] & part.dies, f"a die of {part.node} is held twice"
                dies[part.node] |= part.dies
                cpus[part.node] = cpus.get(part.node, 0) + part.cpus
            for number, name in enumerate(books.names):
                if name is not None:
                    free = ledger.index.dies[number] | ledger.index.kept_back.get(number, 0)
                    assert free == 0xFFFF & ~dies[name], (name, bin(free), bin(dies[name]))
                    assert ledger.index.cpus[number] == 4 - cpus.get(name, 0)
            shared = {node.name: node.shared_by for node in self.store.nodes(session)}
            for name, count in shared.items():
                assert count == len(self.store.parts(session, node=name))
