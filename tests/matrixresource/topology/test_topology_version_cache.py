"""The newest version of the topology is asked for when a watch tells of one, and each time while there is no watch."""

from __future__ import annotations

import pytest

from matrixcommon.api.client import WatchEvent
from matrixresource.client import TopologyVersionCache

EVENT = WatchEvent("ADDED", 1, {"name": "topology-2"})


class Resource:
    def __init__(self):
        self.asked, self.version, self.meanwhile = 0, "topology-1", None

    async def topology_version(self):
        self.asked += 1
        found = self.version
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return found


@pytest.fixture
def resource():
    return Resource()


@pytest.fixture
def newest(resource):
    return TopologyVersionCache(resource)


async def test_version_is_fetched_each_time_without_a_watch(resource, newest):
    assert [await newest.name() for _ in range(3)] == ["topology-1"] * 3
    assert resource.asked == 3


async def test_version_is_cached_while_the_watch_is_quiet(resource, newest):
    await newest.handle_event(EVENT)
    assert [await newest.name() for _ in range(3)] == ["topology-1"] * 3
    assert resource.asked == 1


async def test_new_version_is_fetched_and_announced(resource, newest):
    changes = []
    newest.changed = lambda: changes.append(True)
    await newest.handle_event(EVENT)
    await newest.name()
    resource.version = "topology-2"
    await newest.handle_event(EVENT)
    assert await newest.name() == "topology-2"
    assert len(changes) == 2


async def test_broken_watch_invalidates_the_cache(resource, newest):
    await newest.handle_event(EVENT)
    await newest.name()
    await newest.handle_event(None)
    resource.version = "topology-2"
    assert await newest.name() == "topology-2"
    resource.version = "topology-3"
    assert await newest.name() == "topology-3"


@pytest.mark.parametrize("heard", [EVENT, None], ids=["another version", "the watch broke off"])
async def test_event_during_a_fetch_invalidates_it(resource, newest, heard):
    await newest.handle_event(EVENT)

    async def meanwhile():
        resource.version = "topology-2"
        await newest.handle_event(heard)

    resource.meanwhile = meanwhile
    assert await newest.name() == "topology-1", "the answer that was under way"
    assert await newest.name() == "topology-2"
