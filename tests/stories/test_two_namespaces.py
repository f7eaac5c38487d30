"""Two namespaces each hold an instance and a model of one name: made, scaled, healed and deleted side by side."""

from __future__ import annotations

import pytest

from matrixcontainer.client.client import INFER, INSTANCE, NETWORK_SLICE, POD, Kind
from tests.cluster import Cluster
from tests.stories.test_kubernetes_life import condition, ready

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]

NAMESPACE = Kind("v1", "Namespace", "namespaces", namespaced=False)


def members(body) -> set[str]:
    return {each["node"] for each in body["status"]["members"]}


@pytest.mark.soak
async def test_namespaces_may_use_the_same_names(tmp_path):
    async with Cluster(tmp_path) as cluster:
        for namespace in ("red", "blue"):
            await cluster.kube.apply(NAMESPACE, {"metadata": {"name": namespace}})
            await cluster.apply_resource(INSTANCE, "a", {"nodes": 4, "spares": 1}, namespace)
            await cluster.apply_resource(INFER, "a", {"instance": "a"}, namespace)
        red = await cluster.settles(INSTANCE, "a", ready(4), "red is ready", namespace="red")
        blue = await cluster.settles(INSTANCE, "a", ready(4), "blue is ready", namespace="blue")
        assert members(red).isdisjoint(members(blue))
        for namespace in ("red", "blue"):
            serves = lambda body: condition(body, "Ready") == "True"  # noqa: E731
            await cluster.settles(INFER, "a", serves, f"{namespace} serves", namespace=namespace)
            pods, _ = await cluster.kube.list(POD, namespace)
            body = await cluster.kube.find(INSTANCE, "a", namespace)
            active = {each["node"] for each in body["status"]["members"] if each["role"] == "member"}
            assert {pod["spec"]["nodeName"] for pod in pods} == active
        assert {each.key for each in await cluster.compute.instances()} == {"red/a", "blue/a"}
        assert {each.key for each in await cluster.resource.allocations()} == {"red/a", "blue/a"}
        assert len((await cluster.kube.list(NETWORK_SLICE))[0]) == 6

        await cluster.apply_resource(INSTANCE, "a", {"nodes": 6, "spares": 1}, "red")
        red = await cluster.settles(INSTANCE, "a", ready(6), "red has grown", namespace="red")
        assert (await cluster.compute.find_instance("blue/a")).nodes == 4

        lost = next(each["node"] for each in blue["status"]["members"] if each["role"] == "member")
        cluster.impair("dark", "node-down", lost)
        healed = lambda body: ready(4)(body) and lost not in members(body)  # noqa: E731
        await cluster.settles(INSTANCE, "a", healed, "blue is healed", namespace="blue")
        after = await cluster.kube.find(INSTANCE, "a", "red")
        assert members(after) == members(red), "red is left alone"
        cluster.repair("dark")

        for namespace in ("red", "blue"):
            for kind in (INFER, INSTANCE):
                await cluster.kube.delete(kind, "a", namespace)
                gone = lambda body: body is None  # noqa: E731
                await cluster.settles(kind, "a", gone, f"{kind.kind} of {namespace} is gone", namespace=namespace)
            if namespace == "red":
                assert ready(4)(await cluster.kube.find(INSTANCE, "a", "blue")), "blue goes on"
        await cluster.nothing_left()


async def test_references_across_namespaces_are_refused(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.kube.apply(NAMESPACE, {"metadata": {"name": "red"}})
        await cluster.apply_resource(INSTANCE, "a", {"nodes": 1})
        await cluster.settles(INSTANCE, "a", ready(1), "the default namespace's is ready")
        await cluster.apply_resource(INFER, "a", {"instance": "default/a"}, "red")
        near = {"nodes": 1, "affinity": {"instances": ["default/a"]}}
        await cluster.apply_resource(INSTANCE, "b", near, "red")
        await cluster.tick()
        for kind, name in ((INFER, "a"), (INSTANCE, "b")):
            body = await cluster.kube.find(kind, name, "red")
            assert body is not None
            assert body["status"]["state"] == "Refused"
            (refusal,) = (each for each in body["status"]["conditions"] if each["type"] == "Ready")
            assert refusal["reason"] == "InvalidField"
            assert "not in namespace 'red'" in refusal["message"]
