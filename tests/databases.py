"""Databases of tests as files that can be copied."""

from __future__ import annotations

from services.chassis.database import DatabaseEngine


def close_whole(database: DatabaseEngine) -> None:
    """Close an SQLite database with nothing left in its log: its one file is all of it."""
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
