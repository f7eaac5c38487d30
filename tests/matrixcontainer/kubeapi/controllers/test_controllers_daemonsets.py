"""DaemonSets under virtual time: a pod on every node that admits one, updates node by node, what kubectl waits for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.virtual import NS, PODS, Cluster, a_deployment, in_virtual_time

DAEMONS = "/apis/apps/v1/namespaces/default/daemonsets"
AGENT = f"{DAEMONS}/web"
NODES = "/api/v1/nodes"


def a_daemon_set(image: str = "i", pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    body = a_deployment(replicas=1, pod=pod or {}, **spec)
    del body["spec"]["replicas"]
    body["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return body


def rolled_out(count: int) -> Any:
    """What `kubectl rollout status` waits for."""

    def holds(body: dict[str, Any]) -> bool:
        status = body.get("status") or {}
        return (
            status.get("observedGeneration") == body["metadata"]["generation"]
            and status.get("desiredNumberScheduled") == count
            and status.get("updatedNumberScheduled", 0) == count == status.get("numberAvailable", 0)
        )

    return holds


def placed(listed: dict[str, Any]) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in listed["items"])


async def nodes_of(cluster: Cluster) -> list[str]:
    return placed((await cluster.get(PODS)).body)


async def nodes(cluster: Cluster, count: int) -> list[str]:
    names = [f"n{number}" for number in range(count)]
    for name in names:
        await cluster.node(name)
    return names


@in_virtual_time
async def test_every_node_has_a_pod_also_those_that_come_later(cluster: Cluster) -> None:
    await nodes(cluster, 3)
    await cluster.create(DAEMONS, a_daemon_set())
    body = await cluster.eventually(AGENT, rolled_out(3))
    assert body["status"] == {
        "currentNumberScheduled": 3, "desiredNumberScheduled": 3, "numberAvailable": 3, "numberMisscheduled": 0,
        "numberReady": 3, "observedGeneration": 1, "updatedNumberScheduled": 3,
    }  # fmt: skip
    assert await nodes_of(cluster) == ["n0", "n1", "n2"]
    await cluster.node("n3")
    await cluster.eventually(AGENT, rolled_out(4))
    await cluster.delete(f"{NODES}/n0")
    await cluster.eventually(AGENT, rolled_out(3))
    await cluster.eventually(PODS, lambda b: placed(b) == ["n1", "n2", "n3"])
    assert await cluster.settle() == 0


@in_virtual_time
async def test_selector_taints_and_cordons_decide_on_which_nodes(cluster: Cluster) -> None:
    await nodes(cluster, 4)
    for name in ("n0", "n1", "n2"):
        await cluster.patch(f"{NODES}/{name}", {"metadata": {"labels": {"npu": "yes"}}})
    await cluster.patch(f"{NODES}/n1", {"spec": {"taints": [{"key": "own", "effect": "NoSchedule"}]}})
    await cluster.patch(f"{NODES}/n2", {"spec": {"unschedulable": True}})
    await cluster.create(DAEMONS, a_daemon_set(pod={"nodeSelector": {"npu": "yes"}}))
    await cluster.eventually(AGENT, rolled_out(2))
    assert await nodes_of(cluster) == ["n0", "n2"], "a cordon does not keep daemon pods away"
    await cluster.patch(f"{NODES}/n1", {"spec": {"taints": []}})
    await cluster.patch(f"{NODES}/n2", {"metadata": {"labels": {"npu": None}}})
    await cluster.patch(f"{NODES}/n0", {"spec": {"taints": [{"key": "own", "effect": "NoSchedule"}]}})
    await cluster.eventually(PODS, lambda b: placed(b) == ["n0", "n1"])
    body = await cluster.eventually(AGENT, lambda b: b["status"].get("numberMisscheduled") == 1)
    assert body["status"]["desiredNumberScheduled"] == 1, "the pod on n0 stays, though none would be placed there now"


@pytest.mark.parametrize(
    ("strategy", "fewest"),
    [
        ({}, 3),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}, 2),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}, 3),
    ],
)
def test_update_keeps_within_the_strategy(strategy: dict[str, Any], fewest: int) -> None:
    @in_virtual_time
    async def story(cluster: Cluster) -> None:
        await nodes(cluster, 4)
        await cluster.create(DAEMONS, a_daemon_set(minReadySeconds=5, updateStrategy=strategy))
        await cluster.eventually(AGENT, rolled_out(4))
        await cluster.patch(AGENT, a_patch("other"))
        seen = set()

        def watched(body: dict[str, Any]) -> bool:
            seen.add(body["status"].get("numberAvailable", 0))
            return bool(rolled_out(4)(body))

        await cluster.eventually(AGENT, watched, within_s=300)
        assert min(seen) >= fewest
        images = {pod["spec"]["containers"][0]["image"] for pod in await cluster.items(PODS)}
        assert images == {"other"}
        assert await nodes_of(cluster) == ["n0", "n1", "n2", "n3"]

    story()


def a_patch(image: str) -> dict[str, Any]:
    containers = a_daemon_set(image)["spec"]["template"]["spec"]["containers"]
    return {"spec": {"template": {"spec": {"containers": containers}}}}


@in_virtual_time
async def test_pods_are_updated_on_delete_only_if_so_asked(cluster: Cluster) -> None:
    await nodes(cluster, 2)
    await cluster.create(DAEMONS, a_daemon_set(updateStrategy={"type": "OnDelete"}))
    await cluster.eventually(AGENT, rolled_out(2))
    await cluster.patch(AGENT, a_patch("other"))
    await cluster.eventually(AGENT, lambda b: b["status"]["observedGeneration"] == 2)
    await cluster.settle(60)
    (first, second) = await cluster.items(PODS)
    assert {pod["spec"]["containers"][0]["image"] for pod in (first, second)} == {"i"}
    await cluster.delete(f"{PODS}/{first['metadata']['name']}")
    await cluster.eventually(AGENT, lambda b: b["status"].get("updatedNumberScheduled") == 1)


@in_virtual_time
async def test_daemon_pods_end_with_their_set_and_are_adopted_by_another(cluster: Cluster) -> None:
    await nodes(cluster, 2)
    await cluster.create(DAEMONS, a_daemon_set())
    await cluster.eventually(AGENT, rolled_out(2))
    before = sorted(pod["metadata"]["uid"] for pod in await cluster.items(PODS))
    await cluster.delete(AGENT, propagationPolicy="Orphan")
    await cluster.eventually(PODS, lambda b: not any(p["metadata"].get("ownerReferences") for p in b["items"]))
    await cluster.create(DAEMONS, a_daemon_set())
    await cluster.eventually(AGENT, rolled_out(2))
    assert sorted(pod["metadata"]["uid"] for pod in await cluster.items(PODS)) == before
    await cluster.delete(AGENT)
    await cluster.eventually(PODS, lambda b: not b["items"])


@in_virtual_time
async def test_restart_of_the_api_changes_nothing(cluster: Cluster) -> None:
    await nodes(cluster, 2)
    await cluster.create(DAEMONS, a_daemon_set())
    await cluster.eventually(AGENT, rolled_out(2))
    before = sorted(pod["metadata"]["uid"] for pod in await cluster.items(PODS))
    await cluster.restart()
    await cluster.settle(60)
    assert sorted(pod["metadata"]["uid"] for pod in await cluster.items(PODS)) == before


@in_virtual_time
async def test_failed_pod_is_replaced_at_growing_intervals(cluster: Cluster) -> None:
    await nodes(cluster, 1)
    await cluster.create(DAEMONS, a_daemon_set())
    await cluster.eventually(AGENT, rolled_out(1))
    waited = []
    for _ in range(4):
        (pod,) = await cluster.items(PODS)
        path, failed_at = f"{PODS}/{pod['metadata']['name']}", cluster.now
        await cluster.patch(f"{path}/status", {"status": {"phase": "Failed", "conditions": None}})
        await cluster.eventually(
            PODS, lambda b, n=pod["metadata"]["name"]: [p["metadata"]["name"] for p in b["items"]] != [n]
        )
        waited.append(cluster.now - failed_at)
        await cluster.eventually(PODS, lambda b: len(b["items"]) == 1)
    assert waited == sorted(waited), waited
    events = [each["reason"] for each in await cluster.items(f"{NS}/events")]
    assert "FailedDaemonPod" in events


@in_virtual_time
async def test_refused_template_is_reported(cluster: Cluster) -> None:
    await nodes(cluster, 1)
    await cluster.create(DAEMONS, a_daemon_set(pod={"priorityClassName": "high"}))
    await cluster.eventually(
        f"{NS}/events", lambda b: any("no PriorityClass" in each["message"] for each in b["items"])
    )
    status = (await cluster.eventually(AGENT, lambda b: b.get("status", {}).get("desiredNumberScheduled") == 1))[
        "status"
    ]
    assert (status["currentNumberScheduled"], status["numberUnavailable"]) == (0, 1)


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}, "maxUnavailable"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}, "maxSurge"),
        ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "many"}}, "maxUnavailable"),
        ({"type": "Recreate"}, "type"),
    ],
)
def test_strategy_that_cannot_be_followed_is_refused(strategy: dict[str, Any], field: str) -> None:
    @in_virtual_time
    async def story(cluster: Cluster) -> None:
        refused = await cluster.post(DAEMONS, a_daemon_set(updateStrategy=strategy))
        assert refused.code == 422, refused.body
        assert refused.body["details"]["causes"][0]["field"].endswith(f".{field}")

    story()
