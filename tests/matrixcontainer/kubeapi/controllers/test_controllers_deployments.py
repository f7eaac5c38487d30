"""Deployments end to end under virtual time: scheduler stand-in, emulated kubelets, ReplicaSets and rollouts."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.matrixcontainer.kubeapi.virtual import (
    DEPLOYMENTS,
    NS,
    PODS,
    SETS,
    Cluster,
    a_deployment,
    condition_of,
    in_virtual_time,
    rolled_out,
)

WEB = f"{DEPLOYMENTS}/web"


def image(text: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": text}]}}}}


@in_virtual_time
async def test_a_deployment_rolls_out_and_writes_stop(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment())
    body = await cluster.eventually(WEB, rolled_out)
    assert condition_of(body, "Available")["status"] == "True"
    assert condition_of(body, "Progressing")["reason"] == "NewReplicaSetAvailable"
    assert body["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"
    pods = await cluster.items(PODS)
    assert len(pods) == 3
    assert len({pod["status"]["podIP"] for pod in pods}) == 3
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    await asyncio.sleep(2)
    assert await cluster.settle(1800) == 0


@in_virtual_time
async def test_rolling_update_stays_within_surge_and_unavailable(cluster: Cluster) -> None:
    await cluster.node()
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=4, strategy=rolling))
    await cluster.eventually(WEB, rolled_out)
    await cluster.patch(WEB, image("web:2"))
    most, least = 0, 99
    while not rolled_out(body := (await cluster.get(WEB)).body):
        pods = [pod for pod in await cluster.items(PODS) if "deletionTimestamp" not in pod["metadata"]]
        ready = [
            pod
            for pod in pods
            if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        ]
        most, least = max(most, len(pods)), min(least, len(ready))
        await asyncio.sleep(0.1)
    assert (most, least) == (5, 4)
    assert body["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    sizes = {
        rs["spec"]["template"]["spec"]["containers"][0]["image"]: rs["spec"]["replicas"]
        for rs in await cluster.items(SETS)
    }
    assert sizes == {"web:1": 0, "web:2": 4}


@in_virtual_time
async def test_going_back_reuses_the_old_set_under_a_new_revision(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment())
    await cluster.eventually(WEB, rolled_out)
    await cluster.patch(WEB, image("web:2"))
    await cluster.eventually(WEB, rolled_out)
    await cluster.patch(WEB, image("web:1"))
    body = await cluster.eventually(WEB, rolled_out)
    assert body["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    sets = {rs["spec"]["template"]["spec"]["containers"][0]["image"]: rs for rs in await cluster.items(SETS)}
    assert len(sets) == 2
    assert sets["web:1"]["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"


@in_virtual_time
async def test_recreate_ends_every_old_pod_first(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(strategy={"type": "Recreate"}))
    await cluster.eventually(WEB, rolled_out)
    await cluster.patch(WEB, image("web:2"))
    while not rolled_out((await cluster.get(WEB)).body):
        images = {pod["spec"]["containers"][0]["image"] for pod in await cluster.items(PODS)}
        assert len(images) <= 1
        await asyncio.sleep(0.1)


@in_virtual_time
async def test_a_rollout_that_cannot_succeed_exceeds_its_deadline(cluster: Cluster) -> None:
    await cluster.node()
    notes = {"kubelet.cloudmatrix.io/image-pull": "fail"}
    await cluster.create(DEPLOYMENTS, a_deployment(progressDeadlineSeconds=30, notes=notes))
    body = await cluster.eventually(WEB, lambda b: condition_of(b, "Progressing").get("status") == "False")
    assert condition_of(body, "Progressing")["reason"] == "ProgressDeadlineExceeded"
    assert condition_of(body, "Available")["status"] == "False"
    await cluster.patch(
        WEB, {"spec": {"template": {"metadata": {"annotations": {"kubelet.cloudmatrix.io/image-pull": None}}}}}
    )
    body = await cluster.eventually(WEB, rolled_out)
    assert condition_of(body, "Progressing")["reason"] == "NewReplicaSetAvailable"


@in_virtual_time
async def test_paused_means_scaled_but_not_rolled(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment())
    await cluster.eventually(WEB, rolled_out)
    await cluster.patch(WEB, {"spec": {"paused": True}})
    await cluster.patch(WEB, image("web:2"))
    await cluster.patch(f"{WEB}/scale", {"spec": {"replicas": 5}})
    body = await cluster.eventually(WEB, lambda b: b.get("status", {}).get("readyReplicas") == 5)
    assert condition_of(body, "Progressing")["reason"] == "DeploymentPaused"
    assert len(await cluster.items(SETS)) == 1
    await cluster.patch(WEB, {"spec": {"paused": None}})
    await cluster.eventually(WEB, rolled_out)
    assert len(await cluster.items(SETS)) == 2


@in_virtual_time
async def test_old_sets_beyond_the_history_limit_are_deleted(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(revisionHistoryLimit=1))
    for number in range(1, 5):
        await cluster.patch(WEB, image(f"web:{number}"))
        await cluster.eventually(WEB, rolled_out)
    await asyncio.sleep(5)
    revisions = {rs["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for rs in await cluster.items(SETS)}
    assert revisions == {"3", "4"}


@in_virtual_time
async def test_orphans_are_adopted_again(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment())
    await cluster.eventually(WEB, rolled_out)
    pods = {pod["metadata"]["name"] for pod in await cluster.items(PODS)}
    await cluster.delete(WEB, propagationPolicy="Orphan")
    await cluster.eventually(DEPLOYMENTS, lambda b: not b["items"])
    assert not (await cluster.items(SETS))[0]["metadata"].get("ownerReferences")
    await cluster.create(DEPLOYMENTS, a_deployment())
    await cluster.eventually(WEB, rolled_out)
    assert {pod["metadata"]["name"] for pod in await cluster.items(PODS)} == pods
    assert len(await cluster.items(SETS)) == 1


@in_virtual_time
async def test_deleting_a_deployment_deletes_its_dependents(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment())
    await cluster.eventually(WEB, rolled_out)
    await cluster.delete(WEB)
    await cluster.eventually(PODS, lambda b: not b["items"])
    assert not await cluster.items(SETS)
    reasons = {event["reason"] for event in await cluster.items(f"{NS}/events")}
    assert {"ScalingReplicaSet", "SuccessfulCreate", "Scheduled", "Started", "Killing"} <= reasons


@in_virtual_time
async def test_a_restart_between_any_two_reconciles_changes_nothing(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(DEPLOYMENTS, a_deployment(replicas=4))
    for number in (1, 2, 3):
        await cluster.patch(WEB, image(f"web:{number}"))
        for _ in range(12):
            await cluster.restart()
            for _ in range(number * 3):
                await asyncio.sleep(0)
            await asyncio.sleep(0.15)
        await cluster.eventually(WEB, rolled_out)
        pods = [pod for pod in await cluster.items(PODS) if "deletionTimestamp" not in pod["metadata"]]
        assert len(pods) == 4
    assert len(await cluster.items(SETS)) == 3
