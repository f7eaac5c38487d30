"""The same server under virtual time: an hour of watching costs nothing, and ages follow the clock handed in."""

import asyncio
import random
from itertools import pairwise

import looptime

from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.storage.factory import open_database
from tests.matrixcontainer.kubeapi.api_session import ApiSession, ManualClock
from tests.matrixcontainer.kubeapi.asgi import build_api
from tests.matrixcontainer.kubeapi.tables import create_tables

NS = "/api/v1/namespaces"


def test_an_hour_of_watching() -> None:
    loop = looptime.patch_event_loop(asyncio.new_event_loop(), start=0)
    try:
        loop.run_until_complete(_watch_for_an_hour())
    finally:
        loop.close()


async def _watch_for_an_hour() -> None:
    loop = asyncio.get_running_loop()
    database = open_database("sqlite://")
    create_tables(database)

    def now() -> float:
        return 1_790_000_000.0 + loop.time()

    api = build_api(
        database, now, random.Random(7), {"admin": User("admin", ("system:masters", "system:authenticated"))}
    )
    await api.start()
    session = ApiSession(api, ManualClock())
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    await session.post(f"{NS}/default/events", event)
    revision = api.store.revision
    query = {"resourceVersion": revision, "allowWatchBookmarks": "true", "timeoutSeconds": 3600}
    seen = []
    async with session.watch(f"{NS}/default/events", **query) as stream:
        while (line := await stream.event(within_s=120)) is not None:
            seen.append((line["type"], loop.time()))
    kinds = [kind for kind, _ in seen]
    assert 70 <= kinds.count("BOOKMARK") <= 75
    gaps = [later - sooner for (_, sooner), (_, later) in pairwise(seen)]
    assert max(gaps) <= 60
    assert loop.time() >= 3600
    await asyncio.sleep(120)
    assert (await session.get(f"{NS}/default/events/e")).code == 404
    await api.stop()
