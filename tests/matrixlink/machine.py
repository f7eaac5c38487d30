"""MatrixLink without HTTP: its verbs over a database of its own, and agents that do at once what they are reported."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.persistence.database_session import Database
from matrixcommon.workflows.runner import WorkflowRunner
from matrixlink.admission.bandwidth_ledger import ROUNDING, BandwidthLedger
from matrixlink.contract.link_reports import LinkReport
from matrixlink.contract.programs import DesiredProgram
from matrixlink.contract.slices import SliceView
from matrixlink.controllers.agent_leases import Leases
from matrixlink.controllers.link_reports import LinkReportProcessor
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.link_health.fault_localisation import FaultLocaliser
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.maintenance.drain_workflow import WORKFLOWS, DrainHost
from matrixlink.maintenance.drained_elements import DrainedElements
from matrixlink.maintenance.drains import Drains
from matrixlink.peering.peerings import Peerings
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import Base
from matrixlink.telemetry.rates import PortRates
from matrixresource.topology import Supernode
from services.chassis.database import DatabaseEngine
from services.link.main import MIGRATIONS
from tests.clocks import FixedClock
from tests.matrixlink.fleet import migrated_database

SUPERNODE = Supernode()
"""Its topology takes long to build and never changes."""


class LinkMachine:
    """One service. `restart()` is a new process over the same database."""

    def __init__(self, folder: Path, *, url: str = "", clock: FixedClock | None = None) -> None:
        self.url = url or f"sqlite:///{folder / 'link.db'}"
        self.clock = clock or FixedClock()
        if not url and not (folder / "link.db").exists():
            shutil.copy(migrated_database(), folder / "link.db")
        self.database: DatabaseEngine | None = None
        self.restart()

    def restart(self) -> None:
        if self.database is not None:
            self.database.close()
        self.database = DatabaseEngine(self.url)
        self.database.migrate(MIGRATIONS)
        records = Database(self.database.sessions, Base.metadata, self.clock)
        self.fabric = Fabric([SUPERNODE])
        self.leases = Leases(self.clock, 60.0)
        self.board = SliceController(LinkStore(records), self.fabric, self.clock, self.leases)
        self.store, self.promises, self.records = self.board.store, self.board.promises, records
        self.conditions = LinkStateTracker(self.store, self.promises, self.clock)
        diagnosis = FaultLocaliser(self.fabric, self.promises, self.conditions, self.clock)
        rates = PortRates(self.fabric, self.clock)
        self.nudges = 0
        self.reports = LinkReportProcessor(
            self.board, self.leases, self.conditions, diagnosis, rates, self.clock, self._nudged
        )
        elements = DrainedElements(self.board)
        self.runner = WorkflowRunner(WORKFLOWS, DrainHost(elements), self.clock)
        self.drains, self.peerings = Drains(elements, self.runner), Peerings(self.board)

    def _nudged(self) -> None:
        self.nudges += 1

    def close(self) -> None:
        assert self.database is not None
        self.database.close()

    def watch(self) -> None:
        """What the watcher does, but for probes."""
        if self.conditions.damped_links():
            with self.promises.transaction() as session:
                self.conditions.release(session)
        self.board.reroute()
        self.board.reconcile_all()
        assert overcommitted_links(self.promises.ledger) == []
        assert overcommitted_links(self.promises.healthy_ledger) == []

    def settle(self, agents: Iterable[ObedientAgent], rounds: int = 2) -> None:
        """These agents report and obey, and the watcher runs."""
        for _ in range(rounds):
            for agent in agents:
                (answer,) = self.reports.take([agent.report()])
                agent.obey(answer.desired)
            self.watch()

    def shown(self, name: str) -> SliceView:
        with self.store.reading() as session:
            return self.store.slice(session, name).shown()

    def memory(self) -> dict[str, Any]:
        """What is in memory and says again what the tables say."""
        promises = self.promises
        return {
            "terms": {terms.name: terms for terms in promises.slices},
            "on": {place: sorted(names) for place, names in promises.slices._on.items() if names},
            "keys": {kind: dict(keys) for kind, keys in promises.slices._keys.items() if keys},
            "trimmed": set(promises.slices.degraded),
            "peered": promises.peered_members,
            "peering keys": {kind: keys for kind, keys in promises.peering_keys.items() if keys},
            "below": self.fabric._below,
            "drained": self.fabric.all_drained(),
            "reported": {node: ports for node, ports in self.conditions._reported.items() if ports},
            "accused": dict(self.conditions.accused()),
            "damped": self.conditions.damped_links(),
        }


def contents(session: Session) -> dict[str, list[Any]]:
    """Every row of every table."""
    return {table.name: sorted(map(repr, session.execute(select(table)))) for table in Base.metadata.sorted_tables}


def ledgers_equal(one: BandwidthLedger, other: BandwidthLedger) -> None:
    """Two books hold the same, but for the rounding of sums."""
    assert one.names() == other.names()
    for name in one.names():
        mine, theirs = one.booking(name), other.booking(name)
        assert mine is not None
        assert theirs is not None
        for current, found in ((mine.floors, theirs.floors), (mine.whole, theirs.whole)):
            assert current.keys() == found.keys(), name
            for owner, amounts in current.items():
                np.testing.assert_allclose(amounts, found[owner], rtol=1e-9, atol=1e-9, err_msg=f"{name} on {owner}")
    sums = dict(other.places())
    for place, total in one.places():
        np.testing.assert_allclose(total, sums[place], rtol=1e-9, atol=1e-9, err_msg=str(place))


class ObedientAgent:
    """A node's agent that does at once what it is reported, and remembers it through everything."""

    def __init__(self, node: str) -> None:
        self.node, self.sequence = node, 0
        self.ports: dict[str, float] = {}
        self.tables: dict[str, tuple[int, Any]] = {}

    def report(self) -> LinkReport:
        self.sequence += 1
        programs = [
            {"slice": name, "generation": generation, "status": "Cleared" if body is None else "Programmed"}
            for name, (generation, body) in sorted(self.tables.items())
        ]
        ports = [{"port": port, "gbps": gbps} for port, gbps in sorted(self.ports.items())]
        reported = {"node": self.node, "epoch": 1, "sequence": self.sequence, "leaseSeconds": 30.0}
        return LinkReport.model_validate(reported | {"programs": programs, "ports": ports})

    def obey(self, desired: list[DesiredProgram]) -> None:
        for each in desired:
            current = self.tables.get(each.slice, (0, None))[0]
            if each.action == "clear":
                self.tables[each.slice] = (max(current, each.generation), None)
            elif each.program is not None and each.generation >= current:
                self.tables[each.slice] = (each.generation, each.program)
        spec = {each.slice for each in desired}
        for name in [name for name, (_, body) in self.tables.items() if body is None and name not in spec]:
            del self.tables[name]


def overcommitted_links(ledger: BandwidthLedger) -> list[str]:
    """Links promised beyond what they have."""
    found = []
    for (plane, owner), total in ledger._sum.items():
        capacity = ledger._capacity(plane, owner)
        over = np.flatnonzero(total > capacity + ROUNDING * np.maximum(capacity, 1.0))
        found += [ledger.fabric.link_names(plane, owner)[at] for at in over]
    return found
