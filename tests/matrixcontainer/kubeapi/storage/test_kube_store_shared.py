"""Stores that follow each other's commits on one database, and what they do when they come too late for some."""

from pathlib import Path
from typing import Any

import pytest

from matrixcontainer.kubeapi.storage.backend import ChangeRow, HistoryGap
from matrixcontainer.kubeapi.storage.objects import NotJson, TooLarge
from matrixcontainer.kubeapi.storage.sqlite import Sqlite
from matrixcontainer.kubeapi.storage.store import Store
from tests.matrixcontainer.kubeapi.tables import create_tables

KEY = ("things", "ns", "a")


class SharedSqlite(Sqlite):
    """A file that several stores write to in turn, as they do to PostgreSQL."""

    shared = True

    def begin(self, after: int) -> list[ChangeRow]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            return self.changes_after(after)
        except HistoryGap:
            self.rollback()
            raise

    def changes_after(self, revision: int) -> list[ChangeRow]:
        found = super().changes_after(revision)
        if found[:1] and found[0][0] != revision + 1:
            raise HistoryGap
        if not found and self.newest() != revision:
            raise HistoryGap
        return found


def obj(name: str = "a", **more: object) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name, "uid": f"uid-{name}"}} | more


def two_stores(folder: Path) -> tuple[Store, Store]:
    path = str(folder / "kube.db")
    databases = SharedSqlite(path), SharedSqlite(path)
    create_tables(databases[0])
    one, two = (Store(database, lambda: 1000.0) for database in databases)
    return one, two


async def test_a_write_that_is_refused_takes_no_revision(tmp_path: Path) -> None:
    one, two = two_stores(tmp_path)
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(NotJson):
        await one.put(KEY, obj(deep=deep), None)
    with pytest.raises(TooLarge):
        await one.put(KEY, obj(text="x" * 2_000_000), None)
    assert (await one.put(KEY, obj(), None)).revision == 1
    await two.read_latest()
    assert [change.revision for change in two.log("things").changes] == [1]
