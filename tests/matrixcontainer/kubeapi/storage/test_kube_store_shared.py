"""Stores that follow each other's commits on one database, and what they do when they come too late for some."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from matrixcontainer.kubeapi.storage.backend import ChangeRow, HistoryGap
from matrixcontainer.kubeapi.storage.objects import NotJsonSerializable, TooLarge
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
        if not found and self.newest_revision() != revision:
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


async def test_refused_write_takes_no_revision(tmp_path: Path) -> None:
    one, two = two_stores(tmp_path)
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(NotJsonSerializable):
        await one.put(KEY, obj(deep=deep), None)
    with pytest.raises(TooLarge):
        await one.put(KEY, obj(text="x" * 2_000_000), None)
    assert (await one.put(KEY, obj(), None)).revision == 1
    await two.read_latest()
    assert [change.revision for change in two.log("things").changes] == [1]


class Reader:
    """A watch of one resource from now on: at which place it is, and whether it has missed anything."""

    def __init__(self, store: Store) -> None:
        self.log = store.log("things")
        self.address = self.log.end()

    @property
    def missed_something(self) -> bool:
        return self.address < self.log.start


async def much_is_missed(one: Store) -> None:
    """Something is changed, something is deleted and made anew, something is deleted, and all of it is compacted."""
    await one.put(("things", "ns", "a"), obj("a", n=2), one.get(("things", "ns", "a")))
    for name in ("b", "c"):
        await one.remove(("things", "ns", name), obj(name), one.get(("things", "ns", name)))
    await one.put(("things", "ns", "c"), obj("c") | {"metadata": {"name": "c", "uid": "another"}}, None)
    await one.put(("things", "ns", "d"), obj("d"), None)
    one.now = lambda: 9000.0
    await one.compact()


async def test_listeners_get_the_differences_after_a_history_gap(tmp_path: Path) -> None:
    one, two = two_stores(tmp_path)
    for name in ("a", "b", "c", "same"):
        await one.put(("things", "ns", name), obj(name), None)
    await two.read_latest()
    heard: list[tuple[str, str, int]] = []
    two.listeners.append(lambda change: heard.append((change.type, change.record.key[2], change.revision)))
    reader = Reader(two)
    await much_is_missed(one)
    await two.read_latest()
    assert heard == [
        ("DELETED", "b", 9),
        ("DELETED", "c", 9),
        ("MODIFIED", "a", 5),
        ("ADDED", "c", 8),
        ("ADDED", "d", 9),
    ]
    assert reader.missed_something
    assert not Reader(two).missed_something


async def test_pending_writes_are_renumbered_after_a_history_gap(tmp_path: Path) -> None:
    one, two = two_stores(tmp_path)
    for name in ("a", "b", "c"):
        await one.put(("things", "ns", name), obj(name), None)
    await two.read_latest()
    await much_is_missed(one)
    writing = asyncio.ensure_future(two.put(("things", "ns", "e"), obj("e"), None))
    reading = two.catch_up()  # answered when the write has joined a batch, and before that goes
    await asyncio.gather(reading, writing)
    assert (writing.result().revision, two.revision) == (one.revision + 1, one.revision + 1)
    await one.read_latest()
    assert one.get(("things", "ns", "e")).body == two.get(("things", "ns", "e")).body
