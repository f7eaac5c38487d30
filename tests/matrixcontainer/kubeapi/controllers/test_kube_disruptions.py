"""Disruption budgets: their status is kept, and evictions ask them."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from tests.matrixcontainer.kubeapi.api_session import Answer, ApiSession
from tests.matrixcontainer.kubeapi.virtual import Cluster, in_virtual_time

NS = "/api/v1/namespaces/default"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
LABELS = {"app": "web"}


async def a_pod(session: ApiSession, name: str, ready: bool = True, **meta: Any) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
    reported = await session.post(f"{NS}/pods", {"metadata": {"name": name, "labels": LABELS} | meta, "spec": spec})
    assert reported.code == 201, reported.body
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    await session.patch(f"{NS}/pods/{name}/status", {"status": {"phase": "Running", "conditions": conditions}})


async def a_budget(session: ApiSession, name: str = "b", **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": LABELS}} | spec}
    reported = await session.post(BUDGETS, body)
    assert reported.code == 201, reported.body


async def evict(session: ApiSession, name: str, **more: Any) -> Answer:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return await session.post(f"{NS}/pods/{name}/eviction", eviction | more)


async def await_counts(session: ApiSession, *wanted: int) -> None:
    """(healthy, desired, expected, allowed)"""
    keys = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")
    await session.until(
        f"{BUDGETS}/b", lambda reported: tuple(reported.body["status"].get(key) for key in keys) == wanted
    )


async def test_evictions_decrement_the_budget(session: ApiSession) -> None:
    for name in ("p1", "p2", "p3"):
        await a_pod(session, name)
    await a_budget(session, minAvailable=2)
    await await_counts(session, 3, 2, 3, 1)
    assert (await evict(session, "p1", deleteOptions={"dryRun": ["All"]})).code == 201
    assert (await evict(session, "p1")).code == 201
    assert (await session.get(f"{NS}/pods/p1")).code == 404
    reported = await evict(session, "p2")
    assert (reported.code, reported.body["reason"]) == (429, "TooManyRequests")
    assert reported.body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    await await_counts(session, 2, 2, 2, 0)
    cause = (await evict(session, "p2")).body["details"]["causes"][0]
    text = "The disruption budget b needs 2 healthy pods and has 2 currently"
    assert cause == {"reason": "DisruptionBudget", "message": text}
    await a_pod(session, "p4")
    await await_counts(session, 3, 2, 3, 1)
    assert (await evict(session, "p2")).code == 201


async def test_percentages_are_of_the_owners_replicas(session: ApiSession) -> None:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 10, "selector": {"matchLabels": LABELS}, "template": template}
    set_ = await session.post("/apis/apps/v1/namespaces/default/replicationcontrollers", {})
    assert set_.code == 404
    made = await session.post(
        f"{NS}/replicationcontrollers", {"metadata": {"name": "rc"}, "spec": spec | {"selector": LABELS}}
    )
    owner = {"apiVersion": "v1", "kind": "ReplicationController", "name": "rc", "controller": True}
    for name in ("p1", "p2", "p3", "p4"):
        await a_pod(session, name, ownerReferences=[owner | {"uid": made.body["metadata"]["uid"]}])
    await a_budget(session, maxUnavailable="75%")
    await await_counts(session, 4, 2, 10, 2)


async def test_pods_not_counted_by_a_budget(session: ApiSession) -> None:
    await a_pod(session, "ready")
    await a_pod(session, "lame", ready=False)
    await a_pod(session, "done")
    await session.patch(f"{NS}/pods/done/status", {"status": {"phase": "Succeeded"}})
    await a_budget(session, minAvailable=1)
    await await_counts(session, 1, 1, 2, 0)
    assert (await evict(session, "ready")).code == 429
    assert (await evict(session, "lame")).code == 201
    assert (await evict(session, "done")).code == 201
    assert (await evict(session, "nobody")).code == 404
    assert (await evict(session, "ready", metadata={"name": "other"})).code == 400


async def test_two_budgets_over_one_pod(session: ApiSession) -> None:
    await a_pod(session, "p")
    await a_budget(session, "b", minAvailable=0)
    await a_budget(session, "c", minAvailable=0)
    reported = await evict(session, "p")
    assert (reported.code, "more than one PodDisruptionBudget" in reported.body["message"]) == (500, True)


@pytest.mark.parametrize(
    "spec",
    [
        {"minAvailable": 1, "maxUnavailable": 1},
        {"minAvailable": "half"},
        {"maxUnavailable": "101%"},
        {"minAvailable": -1},
    ],
)
async def test_invalid_budget_bounds(session: ApiSession, spec: dict[str, Any]) -> None:
    assert (await session.post(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})).code == 422


@in_virtual_time
async def test_eviction_without_effect_expires_after_two_minutes(cluster: Cluster) -> None:
    for name in ("p1", "p2", "p3"):
        await a_pod(cluster, name)
    await a_budget(cluster, minAvailable=2)
    await await_counts(cluster, 3, 2, 3, 1)
    refused = await evict(cluster, "p1", deleteOptions={"preconditions": {"uid": "of-another"}})
    assert refused.code == 409
    await await_counts(cluster, 2, 2, 3, 0)
    began = cluster.now
    await cluster.eventually(f"{BUDGETS}/b", lambda b: b["status"]["disruptionsAllowed"] == 1, within_s=180)
    assert 118 <= cluster.now - began <= 122


async def test_an_error_in_one_budget_does_not_hold_up_the_others(session: ApiSession) -> None:
    async def refuse(resource: Resource, verb: str, new: Any, old: Any, options: Options) -> None:
        if verb == "UPDATE" and new["metadata"]["name"] == "a":
            raise errors.forbidden(resource.plural, resource.group, "a", "nobody writes to it")

    session.api.core.verbs.writer.validating.append(refuse)
    await a_budget(session, "a", minAvailable=1)
    await a_budget(session, "b", minAvailable=1)
    await a_pod(session, "p")
    await await_counts(session, 1, 1, 1, 0)
