"""A cordon is one thing with owners, whichever side it is asked on: kubectl's keeps MatrixResource's newcomers off, and
MatrixResource's shows in Kubernetes; taken back on one side, the other's stays."""

from __future__ import annotations

import pytest

from matrixcontainer.client.client import EVENT, NODE
from matrixcontainer.mirrors.cordons import CORDONED_BY
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime

NAME = "sn0-c03-n2"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


async def kubectl(cluster: Cluster, cordoned: bool) -> None:
    """As `kubectl cordon` and `uncordon` do it: where the Node says so already, nothing is sent."""
    mirror = await cluster.kube.find(NODE, NAME)
    if mirror is not None and bool(mirror["spec"].get("unschedulable")) == cordoned:
        return
    await cluster.kube.merge(NODE, NAME, {"spec": {"unschedulable": cordoned or None}})
    await cluster.tick()


async def rest(cluster: Cluster, verb: str, **params: str) -> None:
    answer = await cluster.http["resource"].post(f"/v1/nodes/{NAME}:{verb}", params=params)
    assert answer.status_code == 200, answer.text
    await cluster.tick()


async def seen(cluster: Cluster) -> tuple[list[str], str | None, bool, str, bool]:
    """Who keeps newcomers off, and why not, in MatrixResource; unschedulable, by whom, and tainted in Kubernetes."""
    node = (await cluster.http["resource"].get(f"/v1/nodes/{NAME}")).json()
    mirror = await cluster.kube.find(NODE, NAME)
    assert mirror is not None
    owners = (mirror["metadata"].get("annotations") or {}).get(CORDONED_BY, "")
    tainted = any(taint["key"] == UNSCHEDULABLE for taint in mirror["spec"].get("taints") or [])
    unschedulable = bool(mirror["spec"].get("unschedulable"))
    return node["cordonedBy"], node.get("unschedulableReason"), unschedulable, owners, tainted


async def test_kubectl_cordon_excludes_a_node_until_uncordoned(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.tick()
        await kubectl(cluster, True)
        assert await seen(cluster) == (["kubernetes"], "Cordoned", True, "", True)
        answer = await cluster.http["resource"].put("/v1/allocations/all", json={"nodes": 48})
        assert (answer.status_code, answer.json()["reason"]) == (409, "InsufficientCapacity")
        await kubectl(cluster, False)
        assert await seen(cluster) == ([], None, False, "", False)
        assert (await cluster.http["resource"].put("/v1/allocations/all", json={"nodes": 48})).status_code == 200


async def test_matrixresource_cordon_shows_in_kubernetes_and_is_kept(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.tick()
        await rest(cluster, "cordon")
        assert await seen(cluster) == (["admin"], "Cordoned", True, "admin", True)
        await kubectl(cluster, False)
        assert await seen(cluster) == (["admin"], "Cordoned", True, "admin", True)
        await rest(cluster, "uncordon")
        assert await seen(cluster) == ([], None, False, "", False)


async def test_each_owner_removes_only_its_own_cordon(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.tick()
        await kubectl(cluster, True)
        await rest(cluster, "cordon", by="rack-team")
        assert await seen(cluster) == (["kubernetes", "rack-team"], "Cordoned", True, "rack-team", True)
        await rest(cluster, "uncordon", by="rack-team")
        assert await seen(cluster) == (["kubernetes"], "Cordoned", True, "", True)
        await rest(cluster, "cordon", by="rack-team")
        await kubectl(cluster, False)
        assert await seen(cluster) == (["rack-team"], "Cordoned", True, "rack-team", True)
        await rest(cluster, "uncordon", by="rack-team")
        assert await seen(cluster) == ([], None, False, "", False)


async def closings(cluster: Cluster) -> list[tuple[str, str]]:
    """Type and message of the events that tell why the Node was closed."""
    events = (await cluster.kube.list(EVENT))[0]
    return [
        (each["type"], each["message"])
        for each in events
        if (each["involvedObject"]["name"], each["reason"]) == (NAME, "NodeNotSchedulable")
    ]


async def test_uncordon_of_a_node_held_by_others_emits_an_event(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.tick()
        await kubectl(cluster, True)
        await rest(cluster, "cordon", by="rack-team")
        await rest(cluster, "cordon", by="cooling")
        assert await closings(cluster) == [], "a user closed it"
        await kubectl(cluster, False)
        assert await seen(cluster) == (["cooling", "rack-team"], "Cordoned", True, "cooling,rack-team", True)
        answer = ("Warning", "uncordoned in Kubernetes, but still cordoned by cooling,rack-team")
        assert await closings(cluster) == [answer]
        for _ in range(3):
            await cluster.tick()
        assert await closings(cluster) == [answer], "told once"


async def test_repeated_kubectl_cordon_is_a_no_op(tmp_path):
    """kubectl looks first, and finds the Node as it would make it: the first owner's cordon is the only one."""
    async with Cluster(tmp_path) as cluster:
        await cluster.tick()
        await rest(cluster, "cordon", by="rack-team")
        assert await closings(cluster) == [("Normal", "cordoned by rack-team")]
        version = (await cluster.kube.find(NODE, NAME))["metadata"]["resourceVersion"]
        await kubectl(cluster, True)
        await cluster.kube.merge(NODE, NAME, {"spec": {"unschedulable": True}})
        after = (await cluster.kube.find(NODE, NAME))["metadata"]["resourceVersion"]
        assert after == version, "even sent, it changes nothing that anybody could see"
        await rest(cluster, "uncordon", by="rack-team")
        assert await seen(cluster) == ([], None, False, "", False)


async def test_domain_maintenance_shows_on_nodes_and_cannot_be_uncordoned(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.tick()
        await cluster.http["resource"].post("/v1/domains/sn0-c03:close", json={"reason": "cooling"})
        await cluster.tick()
        assert await seen(cluster) == (["maintenance"], "DomainClosed", True, "maintenance", True)
        refused = await cluster.http["resource"].post(f"/v1/nodes/{NAME}:uncordon", params={"by": "maintenance"})
        assert (refused.status_code, refused.json()["field"]) == (422, "by")
        await cluster.http["resource"].post("/v1/domains/sn0-c03:open")
        await cluster.tick()
        assert await seen(cluster) == ([], None, False, "", False)


async def test_concurrent_cordon_is_not_attributed_to_the_mirror(tmp_path):
    """The mirror writes at the version it read: what a user set meanwhile is read before."""
    async with Cluster(tmp_path) as cluster:
        await cluster.tick()
        await cluster.http["resource"].post(f"/v1/nodes/{NAME}:cordon")
        cluster.mirrors.cordons.replace((await cluster.kube.list(NODE))[0])
        await cluster.kube.merge(NODE, NAME, {"spec": {"unschedulable": True}})
        await cluster.mirrors.reconcile()
        assert await seen(cluster) == (["admin", "kubernetes"], "Cordoned", True, "admin", True)
