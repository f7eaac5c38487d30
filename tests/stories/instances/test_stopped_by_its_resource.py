"""Stopped by its resource: `spec.power` of a CloudMatrixInstance, as kubectl sets it."""

from __future__ import annotations

import pytest

from matrixcontainer.client.client import INFER, INSTANCE, NODE
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime


def is_in(state: str, ready: int):
    def holds(body):
        status = (body or {}).get("status") or {}
        return status.get("state") == state and status.get("readyNodes") == ready

    return holds


async def test_spec_powers_an_instance_off_and_on(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 4})
        await cluster.apply_resource(INFER, "one", {"instance": "one"})
        await cluster.settles(INSTANCE, "one", is_in("Active", 4), "the instance is ready")
        await cluster.settles(INFER, "one", lambda b: b["status"].get("state") == "Serving", "the model is served")
        node = (await cluster.compute.find_instance("one")).members[0].node

        await cluster.kube.merge(INSTANCE, "one", {"spec": {"power": "Off"}}, "default")
        await cluster.settles(INSTANCE, "one", is_in("Stopped", 0), "the instance is stopped")
        mirrored = await cluster.settles(NODE, node, lambda b: not_ready(b), "its Nodes are not ready")
        reason = next(each["reason"] for each in mirrored["status"]["conditions"] if each["type"] == "Ready")
        assert reason == "SwitchedOff"
        waits = await cluster.settles(
            INFER, "one", lambda b: b["status"].get("state") != "Serving", "the model is not served"
        )
        assert waits["status"]["state"]

        await cluster.kube.merge(INSTANCE, "one", {"spec": {"power": "On"}}, "default")
        await cluster.settles(INSTANCE, "one", is_in("Active", 4), "the instance is back")
        await cluster.settles(
            INFER, "one", lambda b: b["status"].get("state") == "Serving", "the model is served again"
        )
        assert (await cluster.compute.find_instance("one")).members[0].node == node


def not_ready(body) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "False" for each in body["status"]["conditions"])
