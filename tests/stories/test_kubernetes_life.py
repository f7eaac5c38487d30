"""The same life spoken in Kubernetes: a resource is applied, becomes so, is scaled, healed, deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from matrixcommon.model.errors import InvalidField
from matrixcontainer.client.client import (
    EVENT,
    FAULT,
    INFER,
    INSTANCE,
    LEASE,
    NETWORK_SLICE,
    NODE,
    POD,
    SUPERNODE,
    Kind,
)
from matrixcontainer.operator.leader_election import LEASE_DURATION_S, LeaderElector
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime


def condition(body, type: str) -> str | None:
    conditions = ((body or {}).get("status") or {}).get("conditions") or []
    return next((c["status"] for c in conditions if c["type"] == type), None)


def ready(nodes: int):
    return lambda body: (
        body is not None
        and condition(body, "Ready") == "True"
        and body["status"].get("observedGeneration") == body["metadata"]["generation"]
        and body["status"]["readyNodes"] == nodes
    )


async def test_resource_becomes_a_serving_instance_and_is_cleaned_up(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 6, "spares": 1})
        await cluster.apply_resource(INFER, "one", {"instance": "one"})
        body = await cluster.settles(INSTANCE, "one", ready(6), "the instance is ready")
        assert len(body["status"]["members"]) == 7
        assert {each["plane"] for each in body["status"]["slices"]} == {"ub", "rdma", "vpc"}

        served = await cluster.settles(INFER, "one", lambda b: condition(b, "Ready") == "True", "the model is served")
        reported = [
            e["reason"] for e in (await cluster.kube.list(EVENT))[0] if e["involvedObject"]["kind"] == INFER.kind
        ]
        assert {"Loading", "Serving"} <= set(reported)
        assert served["status"]["pods"] == 6
        running = lambda: all(pod["status"]["phase"] == "Running" for pod in pods)  # noqa: E731
        pods = await cluster.pods()
        assert len(pods) == 6
        assert running()
        members = {m["node"] for m in body["status"]["members"] if m["role"] == "member"}
        assert {pod["spec"]["nodeName"] for pod in pods} == members

        nodes, _ = await cluster.kube.list(NODE)
        assert len(nodes) == 48
        taken = {
            n["metadata"]["name"] for n in nodes if n["metadata"]["labels"].get("cloudmatrix.io/instance") == "one"
        }
        assert taken == {m["node"] for m in body["status"]["members"]}
        assert len((await cluster.kube.list(NETWORK_SLICE))[0]) == 3
        supernode = await cluster.kube.find(SUPERNODE, "sn0")
        assert supernode is not None
        assert supernode["status"]["allocatedNodes"] == 7

        await cluster.kube.merge(INSTANCE, "one", {"spec": {"replicas": 4}}, "default", "scale")
        await cluster.settles(INSTANCE, "one", ready(4), "scaled by the scale subresource")
        await cluster.settles(INFER, "one", lambda b: b["status"]["pods"] == 4, "pods follow the nodes")

        await cluster.kube.delete(INFER, "one", "default")
        await cluster.kube.delete(INSTANCE, "one", "default")
        await cluster.settles(INSTANCE, "one", lambda b: b is None, "the instance is gone")
        await cluster.settles(INFER, "one", lambda b: b is None, "the deployment is gone")
        assert await cluster.pods() == []
        await cluster.nothing_left()
        await cluster.tick()
        assert (await cluster.kube.list(NETWORK_SLICE))[0] == []


async def test_fault_resource_triggers_a_repair(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 4, "spares": 1})
        body = await cluster.settles(INSTANCE, "one", ready(4), "the instance is ready")
        lost = body["status"]["members"][1]["node"]
        await cluster.apply_resource(FAULT, "dark", {"kind": "node-down", "target": lost})
        await cluster.operator.faults.reconcile("dark")
        healed = await cluster.settles(
            INSTANCE, "one", lambda b: ready(4)(b) and b["status"]["repairs"] == 1, "the instance healed", within_s=900
        )
        assert lost not in {m["node"] for m in healed["status"]["members"]}
        for event in (await cluster.get("compute", "/v1/events")).json()["items"]:
            await cluster.operator.instances.record(event)
            await cluster.operator.instances.record(event)
        events, _ = await cluster.kube.list(EVENT)
        reasons = [event["reason"] for event in events]
        assert {"Scheduled", "Active", "NodeLost", "NodeReplaced"} <= set(reasons)
        assert len(reasons) == len({event["metadata"]["name"] for event in events})
        await cluster.kube.delete(FAULT, "dark")
        assert await cluster.operator.faults.reconcile("dark") is None
        assert await cluster.operator.faults.reconcile("dark") is None
        assert cluster.fleet is not None
        assert "dark" not in cluster.fleet.faults


async def test_immutable_fields_are_restored_and_invalid_specs_refused(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.tick()
        await cluster.kube.merge(NODE, "sn0-c00-n0", {"metadata": {"labels": {"cloudmatrix.io/cabinet": "moon"}}})
        cluster.mirrors._nodes.invalidate()
        await cluster.tick()
        node = await cluster.kube.find(NODE, "sn0-c00-n0")
        assert node is not None
        assert node["metadata"]["labels"]["cloudmatrix.io/cabinet"] == "sn0-c00"

        for spec, field in [
            ({"nodes": 0}, "spec.nodes"),
            ({"nodes": 10**9}, "spec.nodes"),
            ({}, "spec.nodes"),
            ({"nodes": 1, "placement": {"policy": "anyhow"}}, "spec.placement.policy"),
            ({"nodes": 3, "placement": {"blocks": [{"nodes": 2}]}}, "spec.placement.blocks"),
            ({"nodes": 2, "placement": {"blocks": [{"nodes": 2}, {"nodes": 1}]}}, "spec.placement.blocks"),
            ({"nodes": 2, "placement": {"maxPerDomain": 1}}, "spec.placement.maxPerDomain"),
            ({"nodes": 1, "affinity": {"instances": []}}, "spec.affinity.instances"),
            ({"nodes": 1, "affinity": {"instances": ["bad"]}}, "spec.affinity.instances"),
            (
                {"nodes": 1, "affinity": {"instances": ["a"]}, "antiAffinity": {"instances": ["b", "a"]}},
                "spec.antiAffinity.instances",
            ),
            ({"nodes": 1, "antiAffinity": {"instances": ["a"], "level": "planet"}}, "spec.antiAffinity.level"),
            ({"nodes": 1, "priority": 10**10}, "spec.priority"),
            ({"nodes": 1, "preemption": "Always"}, "spec.preemption"),
            ({"nodes": 1, "leaseS": 0}, "spec.leaseS"),
            ({"nodes": 1, "network": {"ub": {"floorGbpsPerNpu": 5, "ceilingGbpsPerNpu": 1}}}, "ceilingGbpsPerNpu"),
            (
                {"nodes": 1, "network": {"ub": {"qosClass": "BestEffort", "floorGbpsPerNpu": 5}}},
                "BestEffort guarantees",
            ),
        ]:
            with pytest.raises(InvalidField, match=field):
                await cluster.apply_resource(INSTANCE, "bad", spec)
        assert (await cluster.kube.list(INSTANCE))[0] == []


async def test_mirrors_are_restored_at_the_next_resync(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.settles(INSTANCE, "one", ready(2), "the instance is ready")
        await cluster.tick()
        other = "one-rdma"
        before = [await shown(cluster, kind, name) for kind, name in MIRRORS_OF_ONE]
        await cluster.kube.delete(SUPERNODE, "sn0")
        await cluster.kube.delete(NETWORK_SLICE, "one-ub")
        await cluster.kube.delete(NODE, "sn0-c05-n2")
        await cluster.kube.merge(NETWORK_SLICE, other, {"spec": {"floorGbpsPerNpu": 77}})
        await cluster.kube.merge(NETWORK_SLICE, other, {"status": {"state": "Broken"}}, subresource="status")
        await cluster.tick()
        assert [await shown(cluster, kind, name) for kind, name in MIRRORS_OF_ONE] == before

        kinds = (SUPERNODE, NETWORK_SLICE, NODE)
        written = [await cluster.kube.list(kind) for kind in kinds]
        await cluster.mirror()
        assert [(await cluster.kube.list(kind))[0] for kind in kinds] == [bodies for bodies, _ in written]


async def test_what_the_mirror_wrote_into_a_node_is_restored_and_additions_stay(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 1})
        name = (await cluster.settles(INSTANCE, "one", ready(1), "it is ready"))["status"]["members"][0]["node"]
        await cluster.tick()
        before = await shown(cluster, NODE, name)
        added = {"labels": {"cloudmatrix.io/instance": "other", "team": "a"}}
        await cluster.kube.merge(NODE, name, {"metadata": added, "spec": {"taints": None}})
        await cluster.kube.merge(NODE, name, {"status": {"allocatable": {"cpu": "1"}}}, subresource="status")
        await cluster.tick()
        assert await shown(cluster, NODE, name) == before
        written = await cluster.kube.find(NODE, name)
        assert written["metadata"]["labels"].items() >= {"cloudmatrix.io/instance": "one", "team": "a"}.items()
        await cluster.tick()
        assert await cluster.kube.find(NODE, name) == written

        taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
        await cluster.kube.merge(NODE, name, {"spec": {"taints": [*written["spec"]["taints"], taint]}})
        await cluster.tick()
        await cluster.kube.delete(INSTANCE, "one", "default")
        await cluster.settles(INSTANCE, "one", lambda body: body is None, "it is gone")
        await cluster.tick()
        assert (await cluster.kube.find(NODE, name))["spec"]["taints"] == [taint], "ours went, the user's stayed"
        await cluster.kube.merge(NODE, name, {"spec": {"taints": None}})
        await cluster.tick()
        assert "taints" not in (await cluster.kube.find(NODE, name))["spec"]


MIRRORS_OF_ONE = (
    (SUPERNODE, "sn0"),
    (NETWORK_SLICE, "one-ub"),
    (NETWORK_SLICE, "one-rdma"),
    (NODE, "sn0-c05-n2"),
)


async def shown(cluster: Cluster, kind: Kind, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a mirror says, without when it was written."""
    body = await cluster.kube.find(kind, name)
    assert body is not None, (kind.kind, name)
    status = {key: value for key, value in body["status"].items() if key != "conditions"}
    return body["spec"], status


async def test_one_operator_leads_and_the_other_takes_over(tmp_path):
    async with Cluster(tmp_path) as cluster:
        one = LeaderElector(cluster.kube, "one", cluster.clock.now)
        two = LeaderElector(cluster.kube, "two", cluster.clock.now)
        await one.acquire()
        waiting = asyncio.create_task(two.acquire())
        keeping = asyncio.create_task(one.renew())
        await asyncio.sleep(60)
        assert not waiting.done()
        keeping.cancel()  # the first one falls silent
        started = cluster.clock.now()
        await waiting
        assert cluster.clock.now() - started >= LEASE_DURATION_S - 2
        assert not await one._try_acquire_or_renew(), "who was replaced finds out"
        lease = await cluster.kube.find(LEASE, "cloudmatrix-operator", "kube-system")
        assert lease is not None
        assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("two", 1)
        again = LeaderElector(cluster.kube, "two", cluster.clock.now)
        before = cluster.clock.now()
        await again.acquire()
        assert cluster.clock.now() == before, "who comes back under its old name continues at once"


async def test_dry_run_shows_its_plan_and_creates_nothing(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "plan", {"nodes": 6, "spares": 1, "dryRun": True})
        fits = await cluster.settles(INSTANCE, "plan", lambda b: "plan" in b.get("status", {}), "it is planned")
        assert fits["status"]["state"] == "Planned"
        assert fits["status"]["plan"]["fits"]
        assert len(fits["status"]["plan"]["members"]) == 7
        await cluster.apply_resource(INSTANCE, "plan", {"nodes": 60, "dryRun": True})
        not_so = await cluster.settles(INSTANCE, "plan", lambda b: not b["status"]["plan"]["fits"], "it does not fit")
        assert not_so["status"]["plan"]["reason"] == "ExceedsDomain"
        assert await cluster.compute.instances() == []
        await cluster.apply_resource(INSTANCE, "plan", {"nodes": 3, "dryRun": False})
        body = await cluster.settles(INSTANCE, "plan", ready(3), "without dryRun it is committed")
        assert "plan" not in body["status"]


@pytest.mark.soak
async def test_plan_names_preempted_instances_and_ended_lease_is_not_renewed(tmp_path):
    async with Cluster(tmp_path) as cluster:
        shape = {"nodes": 30, "leaseS": 900, "placement": {"level": "cabinet"}}
        await cluster.apply_resource(INSTANCE, "guest", shape)
        await cluster.settles(INSTANCE, "guest", ready(30), "it serves")
        desired = {"nodes": 30, "priority": 5, "preemption": "LowerPriority", "dryRun": True}
        await cluster.apply_resource(INSTANCE, "urgent", desired)
        plan = await cluster.settles(INSTANCE, "urgent", lambda b: "plan" in b.get("status", {}), "it is planned")
        assert plan["status"]["plan"]["preempts"] == ["guest"]
        await cluster.settles(INSTANCE, "guest", lambda b: b["status"]["state"] == "Ended", "its lease has ended")
        for _ in range(5):
            await cluster.tick()
        assert await cluster.compute.find_instance("guest") is None
        await cluster.apply_resource(INSTANCE, "guest", {"nodes": 2, "leaseS": 900})
        await cluster.settles(INSTANCE, "guest", ready(2), "another spec begins another lease")


async def test_move_is_planned_in_the_status_and_then_made(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 3})
        before = await cluster.settles(INSTANCE, "one", ready(3), "it is ready")
        spread = {"nodes": 3, "placement": {"policy": "spread"}}
        await cluster.apply_resource(INSTANCE, "one", spread | {"dryRun": True})
        planned = await cluster.settles(INSTANCE, "one", lambda b: "plan" in b["status"], "it is planned")
        assert (planned["status"]["state"], condition(planned, "Ready")) == ("Active", "True")
        assert len(planned["status"]["plan"]["moves"]) == 2
        assert [m["node"] for m in planned["status"]["members"]] == [m["node"] for m in before["status"]["members"]]
        await cluster.apply_resource(INSTANCE, "one", spread | {"dryRun": False})
        after = await cluster.settles(INSTANCE, "one", ready(3), "it has moved")
        places = {m["rank"]: m["node"] for m in after["status"]["members"]}
        assert all(places[move["rank"]] == move["to"] for move in planned["status"]["plan"]["moves"])
        assert all(c["status"] == "True" for m in after["status"]["members"] for c in m["conditions"])


def gang_pod(name: str, group: str, count: int, **annotations: str) -> dict:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/pod-group-name": group},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(count), **annotations},
        },
        "spec": {
            "schedulerName": "matrix-scheduler",
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "resources": {"limits": {"huawei.com/Ascend910": "8"}, "requests": {"huawei.com/Ascend910": "8"}},
                }
            ],
        },
    }


async def test_gang_of_pods_is_placed_in_one_cabinet_and_released(tmp_path):
    async with Cluster(tmp_path) as cluster:
        required = {"kueue.x-k8s.io/podset-required-topology": "cloudmatrix.io/cabinet"}
        for index in range(3):
            await cluster.kube.create(POD, gang_pod(f"p{index}", "job", 4, **required), "default")
        for _ in range(3):
            await cluster.tick()
            await asyncio.sleep(30)
        assert await cluster.resource.allocations() == [], "three of four are no gang"
        pod = await cluster.kube.find(POD, "p0", "default")
        assert pod is not None
        assert "3 of the gang's 4" in pod["status"]["conditions"][0]["message"]

        await cluster.kube.create(POD, gang_pod("p3", "job", 4, **required), "default")
        await cluster.settles(POD, "p3", lambda b: b["status"]["phase"] == "Running", "the gang runs", within_s=900)
        pods = await cluster.pods()
        nodes = [pod["spec"]["nodeName"] for pod in pods]
        assert len(set(nodes)) == 4
        assert len({node.rsplit("-", 1)[0] for node in nodes}) == 1
        reasons = {event["reason"] for event in (await cluster.kube.list(EVENT))[0]}
        assert {"FailedScheduling", "Scheduled"} <= reasons

        for pod in pods:
            await cluster.kube.delete(POD, pod["metadata"]["name"], "default")

        async def released() -> bool:
            await cluster.tick()
            return await cluster.resource.allocations() == []

        await cluster.until(released, "the nodes are given back", every_s=5)
        assert await cluster.pods() == []


async def test_unschedulable_gang_emits_an_event(tmp_path):
    async with Cluster(tmp_path) as cluster:
        required = {"kueue.x-k8s.io/podset-required-topology": "cloudmatrix.io/cabinet"}
        for index in range(5):
            await cluster.kube.create(POD, gang_pod(f"p{index}", "big", 5, **required), "default")
        await cluster.tick()
        await cluster.tick()
        messages = [e["message"] for e in (await cluster.kube.list(EVENT))[0] if e["reason"] == "FailedScheduling"]
        assert len(messages) == 5, "reported once for each pod"
        assert all("a cabinet has 4 nodes, but 5 are required in one" in message for message in messages)
        assert all(not pod["spec"].get("nodeName") for pod in await cluster.pods())


async def test_impossible_pod_waits_without_blocking_others(tmp_path):
    async with Cluster(tmp_path) as cluster:
        for name, wanted in (("a-poison", "1k"), ("b-fine", "8")):
            body = gang_pod(name, name, 1)
            body["spec"]["containers"][0]["resources"] = {"limits": {"huawei.com/Ascend910": wanted}}
            await cluster.kube.create(POD, body, "default")
        await cluster.settles(POD, "b-fine", lambda b: b["status"]["phase"] == "Running", "it runs", within_s=900)
        poison = await cluster.kube.find(POD, "a-poison", "default")
        assert not poison["spec"].get("nodeName")
        (waits,) = poison["status"]["conditions"]
        assert (waits["type"], waits["status"]) == ("PodScheduled", "False")
        assert "requests 1000 huawei.com/Ascend910, but a node has 8" in waits["message"]


async def test_pods_share_a_node_until_preempted(tmp_path):
    async with Cluster(tmp_path) as cluster:

        def small(name: str, npus: str, **spec: Any) -> dict[str, Any]:
            body = gang_pod(name, name, 1)
            amount = {"huawei.com/Ascend910": npus}
            body["spec"]["containers"][0]["resources"] = {"limits": amount, "requests": amount}
            body["spec"] |= spec
            return body

        for name, npus in (("a", "2"), ("b", "3")):
            await cluster.kube.create(POD, small(name, npus), "default")
        for name in ("a", "b"):
            await cluster.settles(POD, name, lambda b: b["status"]["phase"] == "Running", "it runs", within_s=900)
        (node,) = {pod["spec"]["nodeName"] for pod in await cluster.pods()}
        current = await cluster.resource.allocations()
        assert sorted(each.npus for each in current) == [2, 3]
        dies = [die for each in current for member in each.members for die in member.dies or []]
        assert len(dies) == len(set(dies)) == 10

        urgent = {"priority": 10, "preemption": "LowerPriority", "nodes": 48}
        await cluster.apply_resource(INSTANCE, "urgent", urgent)
        await cluster.settles(INSTANCE, "urgent", ready(48), "it has every node")
        await cluster.tick()
        assert await cluster.pods() == [], "who was preempted has left its node"
        reasons = {event["reason"] for event in (await cluster.kube.list(EVENT))[0]}
        assert "Preempted" in reasons
        assert node in {member.node for member in (await cluster.compute.find_instance("urgent")).members}
