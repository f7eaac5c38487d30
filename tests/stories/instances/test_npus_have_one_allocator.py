"""NPUs are allocated by MatrixResource alone: the embedded API's own scheduler promises none of them to a pod."""

from __future__ import annotations

import pytest

from matrixcontainer.client.client import INSTANCE, POD
from tests.cluster import Cluster
from tests.stories.test_kubernetes_life import ready

pytestmark = pytest.mark.looptime


async def test_npus_of_a_pod_are_not_promised_to_an_instance_as_well(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.tick()
        limits = {"resources": {"limits": {"huawei.com/Ascend910": "8"}}}
        pod = {
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"} | limits]},
        }
        await cluster.kube.create(POD, pod, "default")

        def refused(body: dict) -> bool:
            return any("spec.schedulerName" in each.get("message", "") for each in body["status"].get("conditions", []))

        body = await cluster.settles(POD, "train", refused, "the default scheduler leaves it alone")
        (condition,) = body["status"]["conditions"]
        assert condition["message"] == (
            "0/48 nodes are available: 48 node(s) had huawei.com/Ascend910 allocated by another scheduler: "
            "set spec.schedulerName to matrix-scheduler."
        )
        await cluster.apply_resource(INSTANCE, "all", {"nodes": 48})
        await cluster.settles(INSTANCE, "all", ready(48), "it has every node")
        (pod,) = [each for each in await cluster.pods() if each["metadata"]["name"] == "train"]
        assert not pod["spec"].get("nodeName")
