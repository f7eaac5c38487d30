"""A ScalingPolicy of Kubernetes: it owns the scale of its instance, and nothing else may."""

from __future__ import annotations

import asyncio

import pytest

from matrixcommon.model.errors import InvalidField
from matrixcontainer.client.client import AUTOSCALER, EVENT, INFER, INSTANCE, SCALING_POLICY
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime

SPEC = {"scaleTargetRef": {"name": "one"}, "minReplicas": 3, "maxReplicas": 8}


def state_of(body: dict | None) -> str:
    return ((body or {}).get("status") or {}).get("state", "")


async def test_policy_owns_the_scale_of_its_resource(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.apply_resource(SCALING_POLICY, "one", SPEC)
        grown = await cluster.settles(INSTANCE, "one", lambda b: b["spec"]["nodes"] == 3, "it is as large as the least")
        assert grown["metadata"]["name"] == "one"
        await cluster.settles(INSTANCE, "one", lambda b: b["status"]["readyNodes"] == 3, "its nodes are there")
        shown = await cluster.settles(
            SCALING_POLICY, "one", lambda b: b["status"].get("desiredReplicas") == 3, "it shows what it decided"
        )
        assert shown["status"]["reason"] in ("TooFewReplicas", "MetricUnavailable")
        assert {each["type"] for each in shown["status"]["conditions"]} >= {"ScalingActive", "AbleToScale", "Ready"}


async def test_scale_to_zero_suspends_the_resource_until_a_request(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 4})
        await cluster.apply_resource(INFER, "one", {"instance": "one", "cachingNodes": 3})
        served = await cluster.settles(INFER, "one", lambda b: state_of(b) == "Serving", "the model is served")
        assert served["status"]["cachingNodes"] == 3
        spec = {
            "scaleTargetRef": {"name": "one"},
            "minReplicas": 0,
            "maxReplicas": 8,
            "cooldownPeriod": 60,
            "pools": {},
        }
        await cluster.apply_resource(SCALING_POLICY, "one", spec)
        idle = await cluster.settles(INSTANCE, "one", lambda b: state_of(b) == "Suspended", "it is suspended")
        assert (idle["spec"]["suspend"], idle["spec"]["nodes"]) == (True, 4)
        await cluster.settles(INFER, "one", lambda b: (state_of(b), b["status"]["pods"]) == ("Idle", 0), "no pods")
        shown = await cluster.settles(
            SCALING_POLICY, "one", lambda b: b["status"]["currentReplicas"] == 0, "the policy says so"
        )
        assert shown["status"]["desiredPools"] == {"prefill": 0, "decode": 0}

        body = {"model": "one", "prompt": "is anybody there", "max_tokens": 4}
        waiting = asyncio.ensure_future(cluster.http["infer"].post("/v1/completions", json=body, timeout=None))
        await cluster.settles(INSTANCE, "one", lambda b: not b["spec"]["suspend"], "it is asked for again")
        assert (await waiting).status_code == 200
        await cluster.settles(INFER, "one", lambda b: (state_of(b), b["status"]["pods"]) == ("Serving", 4), "it serves")
        events, _ = await cluster.kube.list(EVENT, "default")
        reasons = {each["reason"] for each in events if each["involvedObject"]["kind"] == "ScalingPolicy"}
        assert {"ScaleTargetDeactivated", "ScaleTargetActivated"} <= reasons


async def test_deleting_a_policy_at_zero_restores_the_size(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 4})
        await cluster.apply_resource(INFER, "one", {"instance": "one"})
        await cluster.settles(INFER, "one", lambda b: state_of(b) == "Serving", "the model is served")
        spec = SPEC | {"minReplicas": 0, "cooldownPeriod": 60, "pools": {}}
        await cluster.apply_resource(SCALING_POLICY, "one", spec)
        await cluster.settles(INSTANCE, "one", lambda b: state_of(b) == "Suspended", "it is suspended")
        await cluster.kube.delete(SCALING_POLICY, "one", "default")
        await cluster.settles(SCALING_POLICY, "one", lambda b: b is None, "the policy is gone")
        back = await cluster.settles(INSTANCE, "one", lambda b: state_of(b) == "Active", "it is had again")
        assert (back["spec"]["suspend"], back["spec"]["nodes"], back["status"]["readyNodes"]) == (False, 4, 4)
        await cluster.kube.merge(INSTANCE, "one", {"spec": {"suspend": True}}, "default")
        await cluster.settles(
            INSTANCE, "one", lambda b: state_of(b) == "Suspended", "its owner has the last word again"
        )


async def test_invalid_pool_sizes_are_refused_with_their_field(tmp_path):
    async with Cluster(tmp_path) as cluster:
        policy = {"scaleTargetRef": {"name": "one"}, "maxReplicas": 8}
        metric = {"object": {"metric": {"name": "queued"}, "target": {"type": "Value", "value": 3}}}
        for kind, spec, field in (
            (INFER, {"instance": "one", "prefillNpus": 12}, "spec.prefillNpus"),
            (INFER, {"instance": "one", "decodeNpus": 4}, "spec.decodeNpus"),
            (INFER, {"instance": "one", "cachingNodes": 0}, "spec.cachingNodes"),
            (SCALING_POLICY, policy | {"minReplicas": -1}, "spec.minReplicas"),
            (SCALING_POLICY, policy | {"pools": {"decode": {"minReplicas": 4, "maxReplicas": 2}}}, "spec.pools.decode"),
            (SCALING_POLICY, policy | {"pools": {}, "metrics": [metric]}, "spec.pools"),
        ):
            with pytest.raises(InvalidField, match=field):
                await cluster.apply_resource(kind, "one", spec)
            assert await cluster.kube.find(kind, "one", "default") is None


async def create_hpa(cluster: Cluster, least: int, most: int) -> None:
    target = {"apiVersion": "cloudmatrix.io/v1alpha1", "kind": "CloudMatrixInstance", "name": "one"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "9"}}}
    spec = {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most, "metrics": [metric]}
    await cluster.kube.create(
        AUTOSCALER, {"metadata": {"name": "hpa", "namespace": "default"}, "spec": spec}, "default"
    )


async def test_later_autoscaler_is_refused(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 3})
        await cluster.apply_resource(SCALING_POLICY, "one", SPEC)
        await cluster.settles(INSTANCE, "one", lambda b: b["status"].get("readyNodes") == 3, "its nodes are there")
        await create_hpa(cluster, 5, 6)

        for _ in range(40):
            await cluster.tick()
            await asyncio.sleep(2)
        events, _ = await cluster.kube.list(EVENT, "default")
        found = [each["involvedObject"]["name"] for each in events if each["reason"] == "ScaleOwned"]
        assert found == ["hpa"]
        policy = await cluster.settles(SCALING_POLICY, "one", lambda b: state_of(b) == "Active", "it owns the scale")
        assert policy["status"]["desiredReplicas"] == 3
        await cluster.settles(INSTANCE, "one", lambda b: b["spec"]["nodes"] == 3, "what the autoscaler wrote is gone")
        observed = await cluster.compute.find_instance("one")
        assert observed is not None
        assert observed.nodes == 3


async def test_second_owner_is_refused(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await create_hpa(cluster, 2, 4)
        await cluster.apply_resource(SCALING_POLICY, "one", SPEC)
        refused = await cluster.settles(SCALING_POLICY, "one", lambda b: state_of(b) == "Refused", "it is refused")
        assert "hpa" in next(each["message"] for each in refused["status"]["conditions"] if each["type"] == "Ready")
        answer = await cluster.http["compute"].get("/v1/scaling-policies/one")
        assert answer.status_code == 404
