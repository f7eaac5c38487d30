"""A database of MatrixResource in which its supernodes are already known: made once, copied by every test."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from matrixcommon.persistence.database_session import Database
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import Base as Tables
from matrixresource.supernodes.topology_manager import TopologyManager
from matrixresource.topology.spec import SupernodeSpec
from services.chassis.database import DatabaseEngine
from services.resource.main import MIGRATIONS
from tests.clocks import FixedClock
from tests.databases import close_whole

_made: dict[tuple[tuple[str, ...], str], bytes] = {}


def copy_seeded_database(file: Path, names: Sequence[str], spec: SupernodeSpec) -> None:
    """Write what a first start with these supernodes leaves, at the moment at which a FixedClock begins."""
    key = tuple(names), spec.fingerprint
    if key not in _made:
        _made[key] = _seeded_database(names, spec)
    file.write_bytes(_made[key])


def _seeded_database(names: Sequence[str], spec: SupernodeSpec) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file, clock = Path(folder) / "resource.db", FixedClock()
        database = DatabaseEngine(f"sqlite:///{file}")
        database.migrate(MIGRATIONS)
        store = ResourceStore(Database(database.sessions, Tables.metadata, clock))
        TopologyManager(store, clock, spec).seed(names)
        close_whole(database)
        return file.read_bytes()
