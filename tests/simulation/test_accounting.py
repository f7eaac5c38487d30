"""The accountant finds nothing where nothing is wrong, and each thing that is."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import httpx
import pytest

from tests import rest_lists
from tests.accounting import Acknowledged, Lists, _counts, audit, fetch, fetch_over_http
from tests.stack import Stack

STARTS = {"startsAt": "2030-01-01T00:00:00Z", "durationS": 100}


async def lists_of(stack: Stack) -> Lists:
    """An instance of a project with a quota, half a node in use beside it, a cordon, a closed cabinet, a reservation."""
    await stack.apply("one", 3, spares=1, project="red")
    await stack.active("red/one", 3)
    http = stack.http["resource"]
    for path, body in (
        ("allocations/half", {"npus": 4}),
        ("quotas/red", {"npus": 40}),
        ("reservations/later", {"nodes": 2, **STARTS}),
    ):
        assert (await http.put(f"/v1/{path}", json=body)).status_code == 200
    for path in ("nodes/sn0-c05-n0:cordon", "domains/sn0-c06:close"):
        assert (await http.post(f"/v1/{path}", json={})).status_code == 200
    return await fetch(stack.http)


def first(lists: Lists, kind: str, **fields: object) -> dict:
    return next(each for each in lists[kind] if all(each.get(field) == value for field, value in fields.items()))


def half_where_one_is(lists: Lists) -> None:
    first(lists, "allocations", name="half")["members"][0]["node"] = lists["instances"][0]["members"][0]["node"]


def a_promise_twice(lists: Lists) -> None:
    lists["reservations"].append({**deepcopy(lists["reservations"][0]), "name": "again"})


def a_stranger_stays(lists: Lists) -> None:
    first(lists, "allocations", name="half")["members"][0]["node"] = lists["reservations"][0]["nodes"][0]


def a_rank_twice(lists: Lists) -> None:
    members = first(lists, "allocations", name="one")["members"]
    members[0]["rank"] = members[1]["rank"]


def a_link_too_full(lists: Lists) -> None:
    lists["links"][0]["floorsGbps"] = lists["links"][0]["builtGbps"] + 1


def floors_beyond_the_uplinks(lists: Lists) -> None:
    first(lists, "programs", plane="rdma")["floorGbps"] = 401


def a_key_twice(lists: Lists) -> None:
    lists["slices"].append({**lists["slices"][0], "name": "other"})


def a_node_uncounted(lists: Lists) -> None:
    first(lists, "nodes", name="sn0-c05-n0")["schedulable"] = True


def more_than_its_quota(lists: Lists) -> None:
    lists["quotas"][0]["usedNpus"] = 48


def not_all_counted(lists: Lists) -> None:
    lists["quotas"][0]["usedNpus"] = 8


def two_operations(lists: Lists) -> None:
    lists["operations"][0]["done"] = False
    lists["operations"].append({**lists["operations"][0], "name": "other"})


def fewer_than_its_floor(lists: Lists) -> None:
    del lists["instances"][0]["members"][0]


def more_than_its_nodes(lists: Lists) -> None:
    lists["instances"][0]["members"] *= 2


def preempted(lists: Lists) -> None:
    """Somebody of higher priority has all nodes but one, which is still being cleaned."""
    lists["instances"][0]["members"] = lists["instances"][0]["members"][:1]
    lists["instances"][0]["readyNodes"] = 0


def nobody_owns_it(lists: Lists) -> None:
    lists["instances"].clear()


def its_allocation_is_gone(lists: Lists) -> None:
    lists["allocations"].clear()


def a_plane_is_missing(lists: Lists) -> None:
    lists["slices"].remove(first(lists, "slices", plane="vpc"))


def a_stranger_in_a_slice(lists: Lists) -> None:
    first(lists, "slices", plane="ub")["members"][0] = "sn0-c09-n0"


def it_shows_others(lists: Lists) -> None:
    lists["instances"][0]["members"][0]["node"] = "sn0-c09-n0"


def still_at_work(lists: Lists) -> None:
    lists["operations"][0]["done"] = False


def not_there_yet(lists: Lists) -> None:
    lists["instances"][0]["state"] = "Updating"


ALWAYS: list[tuple[Callable[[Lists], None], str]] = [
    (half_where_one_is, "NPU 0 of sn0-c00-n0 (die 0) is allocated by "),
    (a_promise_twice, "is promised to reservations later and again at one time"),
    (a_stranger_stays, "half stays on "),
    (a_rank_twice, "red/one gives rank 1 twice"),
    (a_link_too_full, "is promised "),
    (floors_beyond_the_uplinks, "floors on sn0-c00-n0 are 401.0 GB/s of the 400.0 of its rdma uplinks"),
    (a_key_twice, "and red/other share "),
    (a_node_uncounted, "sn0 shows availableNodes "),
    (more_than_its_quota, "project red holds 48 npus of 40"),
    (not_all_counted, "project red is counted 8 NPUs and holds 32.0"),
    (fewer_than_its_floor, "instance red/one is Active with 2 members, its floor is 3 of 3"),
    (more_than_its_nodes, "instance red/one is Active with 6 members, its floor is 3 of 3"),
    (two_operations, "are both under way for instance red/one"),
]
SETTLED: list[tuple[Callable[[Lists], None], str]] = [
    (nobody_owns_it, "allocation red/one is of instance red/one, which is gone"),
    (nobody_owns_it, "slice red/one-ub is of instance red/one, which is gone"),
    (its_allocation_is_gone, "slice red/one-ub is of allocation red/one, which is gone"),
    (its_allocation_is_gone, "instance red/one is Active and has no allocation"),
    (a_plane_is_missing, "instance red/one is Active without a slice on vpc"),
    (a_plane_is_missing, "is asked to program slice red/one-vpc, which is gone"),
    (a_stranger_in_a_slice, "has member sn0-c09-n0, which is no node of allocation red/one"),
    (it_shows_others, "otherwise than its allocation"),
    (still_at_work, "is still under way"),
    (not_there_yet, "instance red/one is still Updating"),
]


@pytest.mark.looptime
async def test_accounting_finds_each_violation(tmp_path):
    async with Stack(tmp_path) as stack:
        lists = await lists_of(stack)
    assert audit(lists, settled=True, before=lists) == []
    for breaks, sentence in ALWAYS + SETTLED:
        broken = deepcopy(lists)
        breaks(broken)
        settled = (breaks, sentence) in SETTLED
        found = audit(broken, settled=settled, before=lists)
        assert any(sentence in each for each in found), (breaks.__name__, found)
    beside = deepcopy(lists)
    lends = {"npus": 3, "cpus": 1}
    beside["reservations"].append({**lists["reservations"][0], "name": "beside", "request": lends})
    assert audit(beside) == [], "which of its nodes lends only sockets nobody can read"
    waits = deepcopy(lists)
    preempted(waits)
    assert audit(waits) == [], "it has not been seen yet that it waits"
    written = Acknowledged()
    written.wrote("allocations", "half", {"npus": 8})
    written.wrote("allocations", "lost", {})
    written.wrote("instances", "red/one", None)
    assert audit(lists, settled=True, acknowledged=written) == [
        "allocations half: npus was acknowledged as 8 and is 4",
        "allocations lost was acknowledged and is not there",
        "instances red/one was acknowledged as deleted and is there",
    ]
    torn = deepcopy(lists)
    half_where_one_is(torn)
    torn.torn.add("resource")
    assert audit(torn) == [], "what is read of a service that goes on changing says nothing"


def test_accounting_reads_all_pages_over_http_and_rereads_changes(monkeypatch):
    versions = iter([1, 2, 2])
    pages = {None: {"items": [{"name": "a"}], "nextPageToken": "2"}, "2": {"items": [{"name": "b"}]}}

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"] == "Bearer secret"
        if request.url.params["pageSize"] == "1":
            return httpx.Response(200, json={"items": [], "resourceVersion": next(versions)})
        return httpx.Response(200, json=pages[request.url.params.get("pageToken")])

    client = httpx.Client
    monkeypatch.setattr(
        rest_lists.httpx,
        "Client",
        lambda **asked: client(headers=asked["headers"], transport=httpx.MockTransport(answer)),
    )
    lists = fetch_over_http({"compute": "http://compute"}, "secret")
    assert [each["name"] for each in lists["instances"]] == ["a", "b"]
    assert lists.torn == set()
    assert list(versions) == []


@pytest.mark.parametrize(("cpus", "allocated"), [(None, 0), (4, 1)])
def test_preempted_partition_counts_after_it_is_wiped(cpus: int | None, allocated: int) -> None:
    """Also where who took it let go before that: the node is to be had, and shows as shared until its agent wiped it."""
    node = {"name": "n", "supernode": "sn0", "cabinet": "c", "sharedBy": 1, "schedulable": False, "agent": "Connected"}
    member = {"node": "n", "role": "pool", "cpus": cpus}
    lists = Lists(
        {
            "nodes": [node | {"unschedulableReason": "PartlyHeld"}],
            "allocations": [{"project": "default", "name": "a", "state": "Releasing", "members": [member]}],
        },
        {"supernodes": [], "cabinets": [{"domain": "c", "nodes": 1, "free": 1, "allocated": allocated}]},
    )
    assert list(_counts(lists)) == []
