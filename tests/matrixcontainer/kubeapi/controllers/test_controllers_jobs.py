"""Jobs under virtual time: completions, limits, indexes, suspension, and counting that no crash spoils."""

from __future__ import annotations

import asyncio
from typing import Any

from matrixcontainer.kubeapi.kubelet.pod_info import JOB_TRACKING_FINALIZER
from tests.matrixcontainer.kubeapi.virtual import JOBS, PODS, Cluster, condition_of, in_virtual_time

WORK = f"{JOBS}/work"


def a_job(command: list[str] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox"} | ({"command": command} if command else {})
    policy = spec.pop("restart", "Never")
    return {
        "metadata": {"name": "work"},
        "spec": {"template": {"spec": {"restartPolicy": policy, "containers": [container]}}} | spec,
    }


def finished(body: dict[str, Any]) -> bool:
    return any(condition_of(body, kind).get("status") == "True" for kind in ("Complete", "Failed"))


@in_virtual_time
async def test_a_job_runs_to_completion(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(completions=5, parallelism=2))
    body = await cluster.eventually(WORK, finished)
    assert condition_of(body, "Complete")["reason"] == "CompletionsReached"
    assert body["status"]["succeeded"] == 5
    assert "active" not in body["status"]
    assert body["status"]["completionTime"] >= body["status"]["startTime"]
    pods = await cluster.items(PODS)
    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}
    assert not any(pod["metadata"].get("finalizers") for pod in pods)
    await asyncio.sleep(2)
    assert await cluster.settle(1800) == 0


@in_virtual_time
async def test_failures_back_off_up_to_the_limit(cluster: Cluster) -> None:
    await cluster.node()
    began = cluster.now
    await cluster.create(JOBS, a_job(["false"], backoffLimit=2))
    body = await cluster.eventually(WORK, finished)
    assert condition_of(body, "Failed")["reason"] == "BackoffLimitExceeded"
    assert body["status"]["failed"] == 3
    assert cluster.now - began >= 10 + 20


@in_virtual_time
async def test_restarts_in_place_count_against_the_limit(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(["sh", "-c", "sleep 1; exit 3"], backoffLimit=2, restart="OnFailure"))
    body = await cluster.eventually(WORK, finished)
    assert condition_of(body, "Failed")["reason"] == "BackoffLimitExceeded"


@in_virtual_time
async def test_a_job_has_a_deadline_and_a_time_to_live(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(["sleep", "1h"], activeDeadlineSeconds=20, ttlSecondsAfterFinished=60))
    body = await cluster.eventually(WORK, finished)
    assert condition_of(body, "Failed")["reason"] == "DeadlineExceeded"
    assert 20 <= cluster.now < 25
    await cluster.eventually(JOBS, lambda b: not b["items"])
    assert 80 <= cluster.now < 90
    assert not await cluster.items(PODS)


@in_virtual_time
async def test_indexes_are_each_done_once(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(completions=4, parallelism=3, completionMode="Indexed"))
    body = await cluster.eventually(WORK, finished)
    assert body["status"]["completedIndexes"] == "0-3"
    pods = await cluster.items(PODS)
    found = sorted(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for pod in pods)
    assert found == ["0", "1", "2", "3"]
    assert {pod["spec"]["hostname"] for pod in pods} == {f"work-{index}" for index in range(4)}


@in_virtual_time
async def test_suspended_and_resumed(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(["sleep", "30"], suspend=True))
    body = await cluster.eventually(WORK, lambda b: condition_of(b, "Suspended").get("status") == "True")
    assert not await cluster.items(PODS)
    await cluster.patch(WORK, {"spec": {"suspend": False}})
    await cluster.eventually(WORK, lambda b: b["status"].get("ready") == 1)
    await cluster.patch(WORK, {"spec": {"suspend": True}})
    await cluster.eventually(PODS, lambda b: not b["items"])
    await cluster.patch(WORK, {"spec": {"suspend": False}})
    body = await cluster.eventually(WORK, finished)
    assert body["status"]["succeeded"] == 1
    assert "failed" not in body["status"]


@in_virtual_time
async def test_a_deleted_pod_is_a_failure_and_is_replaced(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(["sleep", "40"]))
    await cluster.eventually(WORK, lambda b: b.get("status", {}).get("ready") == 1)
    name = (await cluster.items(PODS))[0]["metadata"]["name"]
    await cluster.delete(f"{PODS}/{name}")
    body = await cluster.eventually(WORK, finished)
    assert (body["status"]["succeeded"], body["status"]["failed"]) == (1, 1)


@in_virtual_time
async def test_crashes_neither_lose_nor_repeat_a_count(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(["sleep", "1"], completions=6, parallelism=3))
    for turns in range(40):
        await cluster.restart()
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
    body = await cluster.eventually(WORK, finished)
    assert body["status"]["succeeded"] == 6
    assert len(await cluster.items(PODS)) == 6


@in_virtual_time
async def test_deleting_a_job_leaves_no_pod_behind(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(["sleep", "1h"], parallelism=3, completions=3))
    await cluster.eventually(WORK, lambda b: b.get("status", {}).get("ready") == 3)
    await cluster.delete(WORK, propagationPolicy="Background")
    await cluster.eventually(PODS, lambda b: not b["items"])


@in_virtual_time
async def test_unsupported_job_fields_are_refused(cluster: Cluster) -> None:
    reported = await cluster.post(JOBS, a_job(successPolicy={"rules": [{"succeededCount": 1}]}))
    assert reported.code == 422
    assert "spec.successPolicy" in reported.causes


@in_virtual_time
async def test_pods_of_a_replaced_job_are_released(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(["sleep", "1h"]))
    await cluster.eventually(WORK, lambda b: b.get("status", {}).get("ready") == 1)
    former = (await cluster.items(PODS))[0]["metadata"]["name"]
    await asyncio.gather(
        cluster.delete(WORK, propagationPolicy="Background"), cluster.create(JOBS, a_job(["sleep", "1h"]))
    )
    await cluster.eventually(WORK, lambda b: b.get("status", {}).get("ready") == 1)
    await cluster.eventually(PODS, lambda b: [pod["metadata"]["name"] != former for pod in b["items"]] == [True])


@in_virtual_time
async def test_a_pod_is_tracked_only_by_its_controller_job(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.create(JOBS, a_job(["sleep", "1h"]))
    await cluster.eventually(WORK, lambda b: b.get("status", {}).get("ready") == 1)
    pod = (await cluster.items(PODS))[0]
    path = f"{PODS}/{pod['metadata']['name']}"
    labels = pod["metadata"]["labels"]
    await cluster.patch(path, {"metadata": {"labels": dict.fromkeys(labels)}})
    released = await cluster.eventually(path, lambda b: "ownerReferences" not in b["metadata"])
    assert "finalizers" not in released["metadata"]
    await cluster.patch(path, {"metadata": {"labels": labels}})
    await cluster.patch(WORK, {"metadata": {"annotations": {"look": "again"}}})
    adopted = await cluster.eventually(path, lambda b: "ownerReferences" in b["metadata"])
    assert adopted["metadata"]["finalizers"] == [JOB_TRACKING_FINALIZER]


@in_virtual_time
async def test_orphaned_pods_are_released_after_a_restart(cluster: Cluster) -> None:
    await cluster.api.manager.stop()
    pod = {
        "metadata": {"name": "p", "finalizers": [JOB_TRACKING_FINALIZER]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    await cluster.create(PODS, pod)
    await cluster.restart()
    await cluster.eventually(f"{PODS}/p", lambda b: "finalizers" not in b["metadata"])
