"""The store: one counter, groups of writes in one transaction, nothing half kept, everything there after a restart."""

import asyncio
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from matrixcontainer.kubeapi.endpoints.nonresource import NonResource
from matrixcontainer.kubeapi.endpoints.request import Request
from matrixcontainer.kubeapi.registry.resource import Registry
from matrixcontainer.kubeapi.registry.store_errors import storage_api_error
from matrixcontainer.kubeapi.storage.factory import open_database
from matrixcontainer.kubeapi.storage.objects import Conflict, Record, StorageError
from matrixcontainer.kubeapi.storage.store import Store
from tests.matrixcontainer.kubeapi.postgres import a_postgres, needs_postgres
from tests.matrixcontainer.kubeapi.tables import create_tables

KEY = ("things", "ns", "a")


def obj(name: str = "a", **more: object) -> dict:
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": name, "uid": f"uid-{name}"}} | more


def make_store(url: str = "sqlite://") -> Store:
    database = open_database(url)
    create_tables(database)
    return Store(database, lambda: 1000.0)


async def test_revisions_count_up_for_everybody() -> None:
    store = make_store()
    first = await store.put(KEY, obj(), None)
    other = await store.put(("others", "", "x"), obj("x"), None)
    second = await store.put(KEY, obj(n=1), first)
    assert [first.revision, other.revision, second.revision] == [1, 2, 3]
    assert store.get(KEY).obj["metadata"]["resourceVersion"] == "3"


async def test_expectations_are_checked() -> None:
    store = make_store()
    first = await store.put(KEY, obj(), None)
    with pytest.raises(Conflict):
        await store.put(KEY, obj(), None)
    await store.put(KEY, obj(n=1), first)
    with pytest.raises(Conflict):
        await store.put(KEY, obj(n=2), first)
    with pytest.raises(Conflict):
        await store.remove(KEY, obj(), first)
    with pytest.raises(Conflict):
        await store.put(("things", "ns", "none"), obj("none"), first)


async def test_writes_of_one_moment_are_one_transaction() -> None:
    store = make_store()
    commits = []
    store.database.connection.set_trace_callback(lambda reported: commits.append(1) if reported == "COMMIT" else None)
    await asyncio.gather(*(store.put(("things", "", f"n{i}"), obj(f"n{i}"), None) for i in range(50)))
    assert (len(commits), store.revision, store.count("things")) == (1, 50, 50)


async def test_stored_objects_use_exact_buffers() -> None:
    """orjson's buffer, which is its result, is of 4 KiB at least."""
    store = make_store()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for each in range(200):
            name = f"n{each}"
            await store.put(("things", "", name), obj(name, text="x" * 1000), None)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 2 * sum(len(record.body) for record in store.objects_of("things"))


async def test_readers_see_only_what_is_committed() -> None:
    store = make_store()
    writing = asyncio.ensure_future(store.put(KEY, obj(), None))
    await asyncio.sleep(0)
    assert store.get(KEY) is None or writing.done()
    record = await writing
    assert store.get(KEY) is record


async def test_a_failed_batch_leaves_nothing(tmp_path: Path) -> None:
    store = make_store(f"sqlite:///{tmp_path}/k.db")
    first = await store.put(KEY, obj(), None)
    store.database.connection.execute("UPDATE kube_counters SET value = 99 WHERE name = 'revision'")
    results = await asyncio.gather(
        store.put(KEY, obj(n=1), first), store.put(("things", "", "b"), obj("b"), None), return_exceptions=True
    )
    assert [type(result) for result in results] == [StorageError, StorageError]
    assert store.get(KEY) is first
    assert store.get(("things", "", "b")) is None
    assert store.latest(KEY) is first
    store.database.connection.execute("UPDATE kube_counters SET value = 1 WHERE name = 'revision'")
    assert (await store.put(KEY, obj(n=1), first)).revision == 2


async def test_read_only_database_is_a_retryable_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = make_store(f"sqlite:///{tmp_path}/k.db")
    first = await store.put(KEY, obj(), None)
    refuse = "BEGIN SELECT RAISE(ABORT, 'attempt to write a readonly database'); END"
    store.database.connection.execute(f"CREATE TRIGGER closed BEFORE UPDATE ON kube_counters {refuse}")
    for _ in range(2):
        (failed,) = await asyncio.gather(store.put(KEY, obj(n=1), first), return_exceptions=True)
    assert isinstance(failed, StorageError)
    answer = storage_api_error(failed)
    assert (str(tmp_path) in str(failed), str(tmp_path) in answer.message) == (True, False)
    assert [record.message for record in caplog.records] == ["writes lost"], "once, though both failed"
    assert (answer.code, answer.reason, answer.headers) == (503, "ServiceUnavailable", {"Retry-After": "1"})
    documents = NonResource(Registry(), lambda: store.lost_writes.reason)
    ready = documents.answer(Request("GET", "/readyz", {}, {}), "/readyz")
    assert (ready.code, str(tmp_path).encode() in ready.body) == (500, False)
    assert b"its storage, which takes no writes: " in ready.body
    assert documents.answer(Request("GET", "/livez", {}, {}), "/livez").code == 200, "a restart would not help"
    store.database.connection.execute("DROP TRIGGER closed")
    assert (await store.put(KEY, obj(n=1), first)).revision == 2
    assert documents.answer(Request("GET", "/readyz", {}, {}), "/readyz").code == 200


async def test_reopened_store_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/k.db"
    store = make_store(url)
    first = await store.put(KEY, obj(), None)
    await store.put(("things", "ns", "b"), obj("b"), None)
    await store.remove(KEY, obj(), first)
    store.close()
    store = make_store(url)
    assert (store.revision, store.count("things")) == (3, 1)
    assert [(c.type, c.record.key[2], c.revision) for c in store.log("things").changes] == [
        ("ADDED", "a", 1),
        ("ADDED", "b", 2),
        ("DELETED", "a", 3),
    ]
    assert [r.key[2] for r in store.objects_at("things", "", 2)] == ["a", "b"]
    assert [r.key[2] for r in store.objects_at("things", "", 1)] == ["a"]


async def test_compaction_discards_old_changes(tmp_path: Path) -> None:
    now = [1000.0]
    url = f"sqlite:///{tmp_path}/k.db"
    database = open_database(url)
    create_tables(database)
    store = Store(database, lambda: now[0])
    record: Record | None = None
    for number in range(5):
        record = await store.put(KEY, obj(n=number), record)
        now[0] += 200
    assert await store.compact() == 4
    assert (store.compacted_revision, len(store.log("things").changes)) == (4, 1)
    assert store.log("things").position_after(4) == 4
    store.close()
    again = Store(open_database(url), lambda: now[0])
    assert (again.compacted_revision, again.revision, again.get(KEY).obj["n"]) == (4, 5, 4)


async def test_cancelled_compaction_leaves_the_store_writable(tmp_path: Path) -> None:
    """Controllers are stopped in the middle of one when their process no longer leads."""
    database = open_database(f"sqlite:///{tmp_path}/k.db")
    create_tables(database)
    store = Store(database, lambda: 1000.0, threaded=True)
    compacting = asyncio.ensure_future(store.compact())
    await asyncio.sleep(0)
    compacting.cancel()
    async with asyncio.timeout(5):
        await store.put(KEY, obj(), None)
    store.close()


def test_unknown_durability_is_refused() -> None:
    with pytest.raises(ValueError, match="NORMAL or FULL"):
        open_database("sqlite:///x", "OFF")


class Shared:
    """Two stores over one PostgreSQL, each following the other's commits when it looks."""

    def __init__(self, url: str) -> None:
        first = open_database(url)
        create_tables(first)
        self.one, self.two = Store(first, lambda: 1000.0), Store(open_database(url), lambda: 1000.0)

    def close(self) -> None:
        self.one.close()
        self.two.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with a_postgres() as url:
        yield url


@pytest.fixture
def shared(postgres: str) -> Iterator[Shared]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS kube_changes, kube_counters, kube_objects, kube_identity")
    stores = Shared(postgres)
    yield stores
    stores.close()


@needs_postgres
async def test_stores_on_one_database_write_one_after_the_other(shared: Shared) -> None:
    one, two = shared.one, shared.two
    first = await one.put(KEY, obj(), None)
    assert two.get(KEY) is None, "nobody has heard of it yet"
    other = await two.put(("things", "ns", "b"), obj("b"), None)
    assert (first.revision, other.revision) == (1, 2)
    assert two.get(KEY).obj["metadata"]["resourceVersion"] == "1", "seen before its own write"
    assert other.obj["metadata"]["resourceVersion"] == "2", "numbered anew, inside the object too"
    with pytest.raises(Conflict):
        await one.put(("things", "ns", "b"), obj("b"), None)
    await one.read_latest()
    both = await asyncio.gather(
        one.put(KEY, obj(by="one"), one.get(KEY)), two.put(KEY, obj(by="two"), two.get(KEY)), return_exceptions=True
    )
    assert sorted(type(outcome) for outcome in both if isinstance(outcome, Conflict)) == [Conflict]
    await asyncio.gather(one.read_latest(), two.read_latest())
    shown = [[(c.type, c.record.key, c.revision) for c in store.log("things").changes] for store in (one, two)]
    assert shown[0] == shown[1]
    assert [revision for _, _, revision in shown[0]] == [1, 2, 3]
    assert one.get(KEY).body == two.get(KEY).body


@needs_postgres
async def test_writes_after_a_lost_write_are_lost(shared: Shared) -> None:
    one, two = shared.one, shared.two
    await two.put(KEY, obj(by="two"), None)

    async def twice() -> None:
        made = asyncio.ensure_future(one.put(KEY, obj(by="one"), None))
        await asyncio.sleep(0)
        await asyncio.gather(made, one.put(KEY, obj(by="one", again=True), one.latest(KEY)))

    with pytest.raises(Conflict):
        await twice()
    assert one.get(KEY).obj["by"] == "two"
    assert (await one.put(("things", "ns", "c"), obj("c"), None)).revision == 2


@needs_postgres
async def test_history_gap_reloads_everything(shared: Shared) -> None:
    one, two = shared.one, shared.two
    record = None
    for number in range(5):
        record = await one.put(KEY, obj(n=number), record)
    one.now = lambda: 5000.0
    assert await one.compact() == 5
    await two.read_latest()
    assert (two.revision, two.compacted_revision, two.get(KEY).obj["n"]) == (5, 5, 4)
    assert (await two.put(KEY, obj(n=9), two.get(KEY))).revision == 6


@needs_postgres
async def test_leadership_passes_on_when_the_leader_ends(shared: Shared) -> None:
    assert await shared.one.try_acquire_leadership()
    assert await shared.one.try_acquire_leadership()
    assert not await shared.two.try_acquire_leadership()
    shared.one.close()
    async with asyncio.timeout(5):
        while not await shared.two.try_acquire_leadership():
            await asyncio.sleep(0.02)
