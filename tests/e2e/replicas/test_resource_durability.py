"""What MatrixResource acknowledged is there after `kill -9`, whenever it strikes, and nothing is there by half.

Owners allocate, bind, resize and release without pause, agents report; the process is killed at a random moment, on its
way up or under load. What its database then holds is counted by die, and compared with what each owner last heard, or
with what the one request of his that was still under way would have made of it.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from matrixcommon.persistence.database_session import Database
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base
from services.chassis.database import DatabaseEngine
from tests.clocks import FixedClock
from tests.e2e.realkube.control_plane import resident_mb
from tests.e2e.resource_process import ResourceProcess
from tests.figures import Figures
from tests.matrixresource.accounting import Accounting, check_ledger_matches_tables

pytestmark = pytest.mark.e2e
OWNERS = 4
SPECS: list[dict[str, Any]] = [
    {"nodes": 1},
    {"nodes": 3, "spares": 1},
    {"npus": 0.5},
    {"npus": 3, "cpus": 1, "memoryGib": 100},
    {"nodes": 4, "npusPerNode": 2},
    {"cpus": 6, "memoryGib": 3000},
]
Members = dict[str, Any] | None
"""What of an allocation must not change by itself: its size and where it lies. None: it is not held."""


def allocation(view: dict[str, Any]) -> Members:
    if view["state"] == "Releasing":
        return None
    members = sorted((m["node"], m["role"], m.get("rank") or 0, str(m.get("dies"))) for m in view["members"])
    sizes = {key: view.get(key) for key in ("nodes", "npus", "spares", "cpus", "memoryGib", "bound")}
    return {**sizes, "members": members}


@dataclass
class Owner:
    """One client: what it was informed of each allocation, and what it asked for last without hearing an answer."""

    number: int
    chance: random.Random
    reported: dict[str, Members] = field(default_factory=dict)
    unheard: str | None = None
    acknowledged: int = 0
    wrong: list[str] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)

    def ask_until_cut_off(self, client: httpx.Client) -> None:
        try:
            while not self.wrong:
                self._ask(client)
        except httpx.TransportError:
            return

    def _ask(self, client: httpx.Client) -> None:
        mine = [name for name, what in self.reported.items() if what is not None]
        action = self.chance.random() if mine else 0.0
        if action < 0.45 and len(mine) < 5:
            name = f"o{self.number}-{len(self.reported)}"
            self._record_answer(name, lambda: client.put(f"/v1/allocations/{name}", json=self.chance.choice(SPECS)))
        elif action < 0.6:
            name = self.chance.choice(mine)
            self._record_answer(name, lambda: client.put(f"/v1/allocations/{name}/binding"))
        elif action < 0.75:
            name = self.chance.choice(mine)
            desired = {"nodes": self.chance.randint(1, 5), "spares": self.chance.randint(0, 1)}
            if (self.reported[name] or {}).get("npus") == 8 * ((self.reported[name] or {}).get("nodes") or -1):
                self._record_answer(name, lambda: client.put(f"/v1/allocations/{name}", json=desired))
        else:
            name = self.chance.choice(mine)
            self._record_answer(name, lambda: client.delete(f"/v1/allocations/{name}"))

    def _record_answer(self, name: str, request: Any) -> None:
        self.unheard = name
        reported = request()
        self.figures.answered(reported.elapsed.total_seconds())
        if reported.status_code in (200, 202, 204):
            self.reported[name] = None if reported.status_code == 204 else allocation(reported.json())
            self.acknowledged += 1
        elif reported.status_code != 409:
            self.wrong.append(f"{reported.status_code} {reported.text[:300]}")
        self.unheard = None

    def check(self, found: dict[str, Members]) -> None:
        """What was acknowledged is there; what was under way is there whole or not at all (`Accounts` says whole)."""
        for name, what in self.reported.items():
            if name != self.unheard:
                assert found.get(name) == what, f"{name}: reported {what}, found {found.get(name)}"
        if self.unheard is not None:
            self.reported[self.unheard] = found.get(self.unheard)
        self.unheard = None


def look(state: Path) -> dict[str, Members]:
    """What the dead process left, counted; by allocation what is held."""
    database = DatabaseEngine(f"sqlite:///{state / 'resource.db'}")
    store = ResourceStore(Database(database.sessions, Base.metadata, FixedClock()))
    try:
        with store.reading() as session:
            Accounting(session).check()
            check_ledger_matches_tables(session, LedgerSync(store), store)
            return {row.name: allocation(row.view().wire()) for row in store.allocations(session)}
    finally:
        database.close()


def kill_and_look(resource: ResourceProcess, owners: list[Owner], chance: random.Random) -> float:
    """One round: load, death at a random moment, and what is left against what was reported.

    The memory that the process had at its end, in MB."""
    stop = threading.Event()

    def report() -> None:
        try:
            with resource.client() as agents:
                while not stop.is_set():
                    resource.report_fulfilled(agents)
        except httpx.TransportError:
            return

    with resource.client() as client:
        threads = [threading.Thread(target=one.ask_until_cut_off, args=(client,)) for one in owners]
        threads.append(threading.Thread(target=report))
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0.0, 0.6))  # the moment of death, not a wait for anything
        assert resource.process is not None
        memory_mb = resident_mb(resource.process.pid)
        resource.kill()
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
    assert not [one.wrong for one in owners if one.wrong]
    found = look(resource.state)
    for one in owners:
        one.check(found)
    return memory_mb


def survive(folder: Path, rounds: int, seed: int, figures: Figures) -> int:
    """The number of requests acknowledged over all rounds."""
    chance = random.Random(seed)
    owners = [Owner(number, random.Random(seed * 100 + number)) for number in range(OWNERS)]
    resource = ResourceProcess(folder).start()
    try:
        with resource.client() as agents:
            resource.report_fulfilled(agents)
        memory_mb = []
        for _ in range(rounds):
            memory_mb.append(kill_and_look(resource, owners, chance))
            resource.start()
        figures.memory_before_mb, figures.memory_after_mb = memory_mb[0], memory_mb[-1]
    finally:
        resource.kill()
        figures.requests = sum(one.figures.requests for one in owners)
        figures.errors = sum(len(one.wrong) for one in owners)
        figures.worst_ms = max(one.figures.worst_ms for one in owners)
        figures.more = f"{rounds} kills"
    return sum(one.acknowledged for one in owners)


def test_acknowledged_allocations_survive_kills(tmp_path: Path, figures: Figures) -> None:
    assert survive(tmp_path, rounds=6, seed=1, figures=figures) > 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_acknowledged_allocations_survive_two_hundred_kills(tmp_path: Path, figures: Figures) -> None:
    assert survive(tmp_path, rounds=200, seed=2, figures=figures) > 0
