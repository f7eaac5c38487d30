"""When instances that lack members are asked for again, and for how long that is remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from matrixcommon.persistence.database_session import Database
from matrixcompute.reconcilers.capacity import CapacityReconciler
from matrixcompute.store.store import Base, ComputeStore
from matrixcompute.workflows.definitions import RETRY_S
from services.chassis.database import DatabaseEngine
from services.compute.main import MIGRATIONS
from tests.clocks import FixedClock


class NoAllocations:
    async def find_allocation(self, name: str) -> None:
        return None


async def test_refusals_are_forgotten_when_due(tmp_path: Path) -> None:
    clock = FixedClock()
    database, nothing = DatabaseEngine(f"sqlite:///{tmp_path / 'compute.db'}"), cast(Any, NoAllocations())
    database.migrate(MIGRATIONS)
    room = CapacityReconciler(ComputeStore(Database(database.sessions, Base.metadata, clock)), nothing, nothing, clock)
    for each in range(20):
        await room.restore(f"i{each}")
        assert not room.due(f"i{each}")
        clock.at += RETRY_S
        assert room.due(f"i{each}")
    assert len(room._backoff) == 1
    database.close()
