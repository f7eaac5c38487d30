"""The operator's kubelets, for a cluster that has none for our nodes: pods run and end, Leases are renewed, taints stand."""

from __future__ import annotations

import asyncio

import pytest

from matrixcontainer.client.client import EVENT, LEASE, NODE, POD
from matrixcontainer.mirrors.mirrors import Mirrors
from matrixcontainer.mirrors.virtual_kubelet import Kubelets
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime
HOME = "sn0-c00-n0"


def a_pod(name: str) -> dict:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": HOME, "schedulerName": "any", "containers": [{"name": "c", "image": "i"}]},
    }


async def test_kubelets_renew_leases_and_run_bound_pods(tmp_path):
    async with Cluster(tmp_path) as cluster:
        mirrors = Mirrors(cluster.kube, cluster.resource, cluster._slices, cluster.clock.now, shared=True)
        kubelets = Kubelets(cluster.kube, cluster.resource, cluster.clock.now)
        await mirrors.reconcile()
        node = await cluster.kube.find(NODE, HOME)
        assert node is not None
        taints = [{"key": "huawei.com/Ascend910", "value": "present", "effect": "NoSchedule"}]
        assert node["spec"]["taints"] == taints

        assert await kubelets.renew_leases() == "48 leases renewed"
        await asyncio.sleep(20)
        await kubelets.renew_leases()
        lease = await cluster.kube.find(LEASE, HOME, "kube-node-lease")
        assert lease is not None
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]

        await cluster.kube.create(POD, a_pod("works"), "default")
        await asyncio.sleep(30)
        pod = await cluster.kube.find(POD, "works", "default")
        assert pod is not None
        assert pod["status"]["phase"] == "Pending", "the embedded API's kubelets leave a node with a Lease alone"
        phases = []
        while "Running" not in phases:
            await kubelets.reconcile()
            pod = await cluster.kube.find(POD, "works", "default")
            assert pod is not None
            phases.append(pod["status"]["phase"])
            await asyncio.sleep(kubelets.requeue_after_s or 0)
        assert pod["status"]["podIP"].startswith("10.")

        cluster.impair("dark", "node-down", HOME)
        lost = lambda: _agent(cluster, HOME)  # noqa: E731
        await cluster.until(lambda: _is(lost, "Lost"), "the node is lost")
        assert await kubelets.renew_leases() == "47 leases renewed"
        await cluster.kube.delete(POD, "works", "default")
        await asyncio.sleep(60)
        await kubelets.reconcile()
        assert await cluster.kube.find(POD, "works", "default"), "nobody there confirms that it ended"
        await mirrors.reconcile()
        node = await cluster.kube.find(NODE, HOME)
        assert node is not None
        effects = sorted((t["key"], t["effect"]) for t in node["spec"]["taints"])[1:]
        key = "node.kubernetes.io/unreachable"
        quarantined = ("node.kubernetes.io/unschedulable", "NoSchedule")
        assert effects == [(key, "NoExecute"), (key, "NoSchedule"), quarantined]

        cluster.repair("dark")
        await cluster.until(lambda: _is(lost, "Connected"), "it is back")
        for _ in range(3):
            await kubelets.reconcile()
            await asyncio.sleep(kubelets.requeue_after_s or 0)
        assert await cluster.kube.find(POD, "works", "default") is None
        reasons = [event["reason"] for event in (await cluster.kube.list(EVENT))[0]]
        assert reasons.count("Started") == reasons.count("Killing") == 1


async def _agent(cluster: Cluster, name: str) -> str:
    return next(node.agent for node in await cluster.resource.nodes() if node.name == name)


async def _is(found, wanted: str) -> bool:
    return await found() == wanted
