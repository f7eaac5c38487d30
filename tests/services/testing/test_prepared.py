"""What stacks start from is made once, and by one of the processes of a run."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from services.testing import prepared as module
from services.testing.prepared import Prepared, prepared


def test_workers_that_share_a_folder_make_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_shared", tmp_path)
    started: list[Path] = []

    @asynccontextmanager
    async def starting(folder: Path) -> AsyncIterator[dict[str, str]]:
        started.append(folder)
        with closing(sqlite3.connect(folder / "one.db")) as database:
            database.execute("create table t (c)")
        yield {"operation": "o-1"}

    def in_another_process(kind: str = "a stack") -> Prepared:
        monkeypatch.setattr(module, "_made", {})
        return prepared(kind, starting)

    first = in_another_process()
    assert in_another_process() == first
    assert len(started) == 1
    assert (set(first.files), first.names) == ({"one.db"}, {"operation": "o-1"})
    in_another_process("a stack of another kind")
    assert len(started) == 2
