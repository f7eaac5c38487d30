"""A MatrixFault whose name somebody else's fault has: it says so, and takes nothing of theirs with it."""

from __future__ import annotations

import pytest

from matrixcontainer.client.client import FAULT
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime


def reason(body: dict | None) -> tuple[str, str]:
    status = (body or {}).get("status") or {}
    ready = next((each["reason"] for each in status.get("conditions") or [] if each["type"] == "Ready"), "")
    return status.get("state", ""), ready


async def test_fault_injected_by_others_under_the_name_is_kept(tmp_path):
    async with Cluster(tmp_path) as cluster:
        theirs = {"kind": "agent-hang", "target": "sn0-c01-n0"}
        assert (await cluster.http["agents"].put("/v1/faults/dark", json=theirs)).is_success
        await cluster.apply_resource(FAULT, "dark", {"kind": "node-down", "target": "sn0-c00-n0"})
        refused = await cluster.settles(FAULT, "dark", lambda b: reason(b) == ("Refused", "Conflict"), "it says so")
        ready = next(each for each in refused["status"]["conditions"] if each["type"] == "Ready")
        assert "agent-hang on sn0-c01-n0" in ready["message"]
        await cluster.kube.delete(FAULT, "dark")
        await cluster.settles(FAULT, "dark", lambda b: b is None, "the resource is gone")
        left = (await cluster.get("agents", "/v1/faults")).json()["items"]
        assert [(each["name"], each["target"]) for each in left] == [("dark", "sn0-c01-n0")]

        await cluster.apply_resource(FAULT, "dark", {"kind": "node-down", "target": "sn0-c00-n0"})
        assert (await cluster.http["agents"].delete("/v1/faults/dark")).is_success
        await cluster.settles(FAULT, "dark", lambda b: reason(b) == ("Injected", "Injected"), "the name is free")
        await cluster.kube.delete(FAULT, "dark")
        await cluster.settles(FAULT, "dark", lambda b: b is None, "the resource is gone")
        assert not (await cluster.get("agents", "/v1/faults")).json()["items"]
