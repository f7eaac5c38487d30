"""More of everything than one page shows: whoever walks a list has all of it, every mirror is complete, and who comes
last in a list is looked after like who comes first.

In `make test` the services show a few at a time; `make soak` has the machine at its full size.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from matrixcommon.api import list_params
from matrixcommon.api.client import list_all
from matrixcontainer.client.client import INSTANCE, NETWORK_SLICE, NODE, SUPERNODE, Kind
from matrixcontainer.operator.decision import key_of_resource
from tests.cluster import Cluster
from tests.services.every_route import RULES

pytestmark = pytest.mark.looptime


@dataclass(frozen=True)
class Size:
    """How much there is: `resources` of the instances are CloudMatrixInstances, the others made over REST; `by_hand`
    allocations belong to no instance; on the first of them lie `hand_slices` more slices, one for each of the first
    instances."""

    supernodes: int
    instances: int
    resources: int
    by_hand: int = 0
    hand_slices: int = 0
    silent: int = 0
    """Supernodes that are in the inventory only: no agent reports from them."""


async def report_all(cluster: Cluster) -> None:
    """What the operator's timer does by and by: every CloudMatrixInstance once."""
    for body in (await cluster.kube.list(INSTANCE))[0]:
        await cluster.operator.instances.reconcile(key_of_resource(body))


@pytest.mark.timeout(300)
async def test_everything_is_found_across_pages(tmp_path, monkeypatch):
    size = Size(supernodes=1, instances=14, resources=11, by_hand=3, hand_slices=3, silent=1)
    async with Cluster(tmp_path) as cluster:
        monkeypatch.setattr(list_params, "PAGE_SIZE_MAX", 10)  # however many a service is asked for
        await fill(cluster, size)
        await all_is_shown(cluster, size)
        await the_last_is_repaired_like_the_first(cluster, size)


async def test_paged_lists_equal_whole_lists(tmp_path, monkeypatch):
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, Size(supernodes=1, instances=3, resources=1, by_hand=2, hand_slices=2, silent=1))
        several = set()
        for service, path in collections(cluster):
            monkeypatch.setattr(list_params, "PAGE_SIZE_MAX", 1000)
            first = (await cluster.http[service].get(path, params={"pageSize": 1000})).json()
            whole, more = names(first["items"]), "nextPageToken" in first
            if len(whole) < 2 or more:
                continue  # a page has all of it, or it is walked in pages as it is
            monkeypatch.setattr(list_params, "PAGE_SIZE_MAX", max(1, len(whole) // 3))
            assert names(await list_all(cluster.http[service], path)) == whole, (service, path)
            several.add(path)
        assert several >= {
            "/v1/nodes", "/v1/npus", "/v1/supernodes", "/v1/allocations", "/v1/domains", "/v1/slices", "/v1/programs",
            "/v1/routes", "/v1/planes", "/v1/switches", "/v1/qos-classes", "/v1/instances", "/v1/operations",
            "/v1/events",
        }  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "size",
    [
        # 510 slices: of four instances the third plane was on a page that nobody read, and they never became active.
        pytest.param(Size(supernodes=4, instances=170, resources=1), id="one-node instances on four supernodes"),
        pytest.param(
            Size(supernodes=108, instances=600, resources=100, by_hand=600, hand_slices=200), id="the full size"
        ),
    ],
)
async def test_full_size_cluster_is_shown_and_repaired(tmp_path, size):
    async with Cluster(tmp_path) as cluster:
        await fill(cluster, size)
        await all_is_shown(cluster, size)
        await the_last_is_repaired_like_the_first(cluster, size)


def name_of(at: int) -> str:
    return f"i{at:03d}"


async def fill(cluster: Cluster, size: Size) -> None:
    """Have as much of everything, all of it active."""
    resource, agents = cluster.http["resource"], cluster.http["agents"]
    for index in range(1, size.supernodes):
        assert (await resource.put(f"/v1/supernodes/sn{index}", json={})).is_success
        assert (await agents.put(f"/v1/supernodes/sn{index}")).is_success
    await cluster.until(lambda: enrolled(cluster, 48 * size.supernodes), "every node is available", every_s=20)
    for at in range(size.by_hand):
        assert (await resource.put(f"/v1/allocations/h{at:03d}", json={"nodes": 1})).is_success
    for at in range(size.instances):
        if at < size.resources:
            await cluster.apply_resource(INSTANCE, name_of(at), {"nodes": 1})
        else:
            await cluster.apply(name_of(at), 1)
    await report_all(cluster)
    await cluster.until(lambda: active(cluster, size.instances), "every instance is active", every_s=20)
    first_node = {each.name: each.members[0].node for each in await cluster.resource.allocations()}
    for at in range(size.hand_slices):
        hand = f"h{at:03d}"
        body = {
            "allocation": hand,
            "instance": name_of(at),
            "plane": "vpc",
            "members": [first_node[hand]],
            "qosClass": "BestEffort",
        }
        assert (await cluster.http["link"].put(f"/v1/slices/{hand}-vpc", json=body)).is_success
    for index in range(size.supernodes, size.supernodes + size.silent):
        assert (await resource.put(f"/v1/supernodes/sn{index}", json={})).is_success


async def enrolled(cluster: Cluster, nodes: int) -> bool:
    return [node.state for node in await cluster.resource.nodes()] == ["Available"] * nodes


async def active(cluster: Cluster, instances: int) -> bool:
    return [view.state for view in await cluster.compute.instances()] == ["Active"] * instances


async def all_is_shown(cluster: Cluster, size: Size) -> None:
    """Each service shows all there is and sees all of its neighbours', and Kubernetes mirrors all of it."""
    wanted = {name_of(at) for at in range(size.instances)}
    by_hand = {f"h{at:03d}" for at in range(size.by_hand)}
    slices = {f"{name}-{plane}" for name in wanted for plane in ("ub", "rdma", "vpc")}
    slices |= {f"h{at:03d}-vpc" for at in range(size.hand_slices)}
    supernodes = {f"sn{index}" for index in range(size.supernodes + size.silent)}

    views = {view.name: view for view in await cluster.compute.instances()}
    nodes = {node.name: node for node in await cluster.resource.nodes()}
    assert views.keys() == wanted
    assert {each.name for each in await cluster.resource.allocations()} == wanted | by_hand
    assert {each.name for each in await cluster.link.slices()} == slices
    assert {each.name for each in await cluster.resource.supernodes()} == supernodes
    assert len(nodes) == 48 * len(supernodes)
    for name, view in views.items():
        assert {each.plane.value for each in view.slices if each.programmed} == {"ub", "rdma", "vpc"}, name
        assert [nodes[member.node].allocation for member in view.members] == [name]

    await report_all(cluster)
    await cluster.mirrors.reconcile()
    assert await mirrored(cluster, NODE) == nodes.keys()
    assert await mirrored(cluster, SUPERNODE) == supernodes
    assert await mirrored(cluster, NETWORK_SLICE) == slices
    reported = {body["metadata"]["name"]: body for body in (await cluster.kube.list(INSTANCE))[0]}
    assert reported.keys() == {name_of(at) for at in range(size.resources)}
    assert {body["status"]["state"] for body in reported.values()} == {"Active"}
    assert await in_chunks(cluster, NODE, 500) == nodes.keys(), "as kubectl reads them"


async def mirrored(cluster: Cluster, kind: Kind) -> set[str]:
    return {body["metadata"]["name"] for body in (await cluster.kube.list(kind))[0]}


async def in_chunks(cluster: Cluster, kind: Kind, limit: int) -> set[str]:
    """The names of all objects, asked for so many at a time."""
    found: list[str] = []
    token = ""
    while True:
        params = {"limit": limit, **({"continue": token} if token else {})}
        answer = (await cluster.kube._http.get(kind.path(), params=params)).json()
        assert len(answer["items"]) <= limit
        found += [body["metadata"]["name"] for body in answer["items"]]
        token = answer["metadata"].get("continue", "")
        if not token:
            assert len(found) == len(set(found))
            return set(found)


async def the_last_is_repaired_like_the_first(cluster: Cluster, size: Size) -> None:
    """Two nodes are lost at one moment: that of the instance that every list begins with, and of the one it ends with."""
    first, last = name_of(0), name_of(size.instances - 1)
    lost = {}
    for name in (first, last):
        view = await cluster.compute.find_instance(name)
        assert view is not None
        lost[name] = view.members[0].node
        cluster.impair(f"dark-{name}", "node-down", lost[name])

    async def repaired(name: str) -> float:
        async def well() -> bool:
            view = await cluster.compute.find_instance(name)
            assert view is not None
            return view.state == "Active" and view.repairs == 1 and lost[name] not in {m.node for m in view.members}

        return await cluster.until(well, f"{name} is repaired", within_s=900)

    seconds = await asyncio.gather(repaired(first), repaired(last))
    # Both nodes fell silent together; what is left between them is how long the two successors take to deploy.
    assert abs(seconds[0] - seconds[1]) < 60, seconds


def collections(cluster: Cluster) -> list[tuple[str, str]]:
    """Every list of every service that asks for nothing else than its page."""
    declared = {
        (service, rule.path)
        for service, rules in RULES.items()
        for rule in rules.by_route.values()
        if rule.method == "GET" and "{" not in rule.path
    }
    return sorted((service, path) for service, path in declared if lists(cluster, service, path))


def lists(cluster: Cluster, service: str, path: str) -> bool:
    app: Any = cluster.slots[service].transport.app
    asked = app.openapi()["paths"].get(path, {}).get("get", {}).get("parameters", [])
    needed = {each["name"] for each in asked if each.get("required")}
    return not needed and any(each["name"] == "pageToken" for each in asked)


def names(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(str(item.get("project", "")), str(item["name"])) for item in items]
