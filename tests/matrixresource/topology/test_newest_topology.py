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


async def test_without_a_watch_it_is_asked_each_time(resource, newest):
    assert [await newest.name() for _ in range(3)] == ["topology-1"] * 3
    assert resource.asked == 3


async def test_while_a_watch_tells_nothing_it_is_known(resource, newest):
    await newest.handle_event(EVENT)
    assert [await newest.name() for _ in range(3)] == ["topology-1"] * 3
    assert resource.asked == 1


async def test_another_version_is_asked_for_and_told_of(resource, newest):
    changes = []
    newest.changed = lambda: changes.append(True)
    await newest.handle_event(EVENT)
    await newest.name()
    resource.version = "topology-2"
    await newest.handle_event(EVENT)
    assert await newest.name() == "topology-2"
    assert len(changes) == 2


async def test_a_watch_that_broke_off_is_no_longer_believed(resource, newest):
    await newest.handle_event(EVENT)
    await newest.name()
    await newest.handle_event(None)
    resource.version = "topology-2"
    assert await newest.name() == "topology-2"
    resource.version = "topology-3"
    assert await newest.name() == "topology-3"


@pytest.mark.parametrize("heard", [EVENT, None], ids=["another version", "the watch broke off"])
async def test_what_is_heard_while_the_answer_is_on_its_way_counts(resource, newest, heard):
    await newest.handle_event(EVENT)

    async def meanwhile():
        resource.version = "topology-2"
        await newest.handle_event(heard)

    resource.meanwhile = meanwhile
    assert await newest.name() == "topology-1", "the answer that was under way"
    assert await newest.name() == "topology-2"
