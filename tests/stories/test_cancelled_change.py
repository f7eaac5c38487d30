"""Somebody cancels what a Kubernetes resource asks for: the resource says so, and asks again only with another spec."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcontainer.client.client import EVENT, INSTANCE
from tests.cluster import Cluster
from tests.stories.test_kubernetes_life import condition, ready

pytestmark = pytest.mark.looptime


async def cancelled_resize(cluster: Cluster, nodes: int) -> str:
    """Ask for that many nodes, and cancel it while it waits for them; the operation's name."""
    await cluster.apply_resource(INSTANCE, "one", {"nodes": nodes})
    body = await cluster.settles(INSTANCE, "one", lambda b: b["status"]["state"] == "Updating", "it changes")
    operation = body["status"]["operation"]
    answer = await cluster.http["compute"].post(f"/v1/operations/{operation}:cancel")
    assert answer.status_code == 202, answer.text
    return operation


def events_of(events: list[dict[str, Any]], reason: str) -> list[dict[str, Any]]:
    return [
        each for each in events if each["reason"] == reason and each["source"]["component"] == "cloudmatrix-operator"
    ]


async def operations(cluster: Cluster) -> set[str]:
    return {each["name"] for each in (await cluster.get("compute", "/v1/operations")).json()["items"]}


async def test_a_cancelled_change_is_said_and_not_asked_for_again_until_the_spec_changes(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.settles(INSTANCE, "one", ready(2), "it is ready")
        operation = await cancelled_resize(cluster, 4)
        back = lambda b: b["status"]["state"] == "Active" and condition(b, "Synced") == "False"  # noqa: E731
        body = await cluster.settles(INSTANCE, "one", back, "it is what it was", within_s=600)
        synced = next(each for each in body["status"]["conditions"] if each["type"] == "Synced")
        assert (synced["reason"], synced["observedGeneration"]) == ("Cancelled", body["metadata"]["generation"])
        assert operation in synced["message"]
        assert body["status"]["observedGeneration"] < body["metadata"]["generation"], "the spec is not followed"
        before = await operations(cluster)
        for _ in range(5):
            await cluster.tick()
        assert await operations(cluster) == before
        assert (await cluster.compute.find_instance("one")).nodes == 2
        events = events_of((await cluster.kube.list(EVENT))[0], "Cancelled")
        messages = [each["message"] for each in events if each["message"] == synced["message"]]
        assert len(messages) == 1

        # Back to what runs, which is no change, and to what was cancelled: that is asked for now.
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        body = await cluster.settles(INSTANCE, "one", ready(2), "it is as its spec says")
        assert condition(body, "Synced") is None
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 4})
        body = await cluster.settles(INSTANCE, "one", ready(4), "it has four nodes")
        assert condition(body, "Synced") is None
        assert (await cluster.compute.find_instance("one")).cancelled is None


async def test_another_spec_is_asked_for_at_once_and_what_rest_changes_is_still_put_back(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.settles(INSTANCE, "one", ready(2), "it is ready")
        await cancelled_resize(cluster, 4)
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 3})
        await cluster.settles(INSTANCE, "one", ready(3), "it has three nodes")
        view = await cluster.compute.find_instance("one")
        await cluster.compute.ensure_instance("one", view.request().model_copy(update={"nodes": 5}))
        await cluster.settles(INSTANCE, "one", ready(3), "it is back at three", within_s=3600)
        assert (await cluster.compute.find_instance("one")).nodes == 3
