"""A whole stack on a machine whose nodes have four NPUs: every service counts what its own spec says."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from matrixcontainer.client.client import POD
from matrixresource.machines import DEFAULT_FILE
from matrixresource.topology.loading import load_spec
from tests.cluster import Cluster
from tests.stories.test_kubernetes_life import gang_pod as whole_node_pod

pytestmark = pytest.mark.looptime

OTHER = {
    "node": {"npus": 4, "dies": 8, "ub_gbps": 1568, "ub_optical_ports": 28, "rdma_optical_ports": 4},
    "cabinet": {"npus": 16, "ub_optical_links": 112},
    "supernode": {"npus": 192, "dies": 384, "l2_switches": 56, "optical_modules": 3456},
    "ub": {
        "l2_per_sub_plane": 8, "l1_uplink_gbps": 224, "bus_devices": 28, "bus_devices_per_sub_plane": 4,
        "bus_devices_per_cabinet": 7, "optical_links": 1344, "optical_modules": 2688,
    },
    "rdma": {"spines": 4, "optical_modules": 768},
}  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    document = yaml.safe_load(DEFAULT_FILE.read_text())
    for section, cells in OTHER.items():
        for key, value in cells.items():
            document[section][key]["value"] = value
    file = tmp_path / "four.yaml"
    file.write_text(yaml.safe_dump(document))
    assert load_spec(file).node.npus == 4
    return file


def gang_pod(name: str, group: str, count: int, npus: int) -> dict:
    body = whole_node_pod(name, group, count)
    body["spec"]["containers"][0]["resources"] = {"limits": {"huawei.com/Ascend910": str(npus)}}
    return body


async def test_four_npus_are_counted_in_instances_programs_and_faults(tmp_path, spec):
    async with Cluster(tmp_path, spec=spec) as stack:
        asked = {"nodes": 2, "network": {"ub": {"qosClass": "Guaranteed", "floorGbpsPerNpu": 10}}}
        plan = await stack.http["compute"].put("/v1/instances/i", json=asked, params={"validateOnly": True})
        assert plan.json()["npus"] == 8
        assert (await stack.http["compute"].put("/v1/instances/i", json=asked)).json()["npus"] == 0
        assert (await stack.active("i", nodes=2)).npus == 8
        member = (await stack.resource.find_allocation("i")).members[0].node
        program = stack.fleet.agent("link", member).tables("i-ub")
        assert program["floor_gbps"] == 10 * 4
        fault = {"kind": "npu-fault", "target": member, "parameters": {"npu": 4}}
        refused = await stack.http["agents"].put("/v1/faults/f", json=fault)
        assert (refused.status_code, refused.json()["detail"]) == (422, "must be the number of an NPU, 0 to 3")


async def test_gang_takes_the_nodes_that_its_pods_need(tmp_path, spec):
    async with Cluster(tmp_path, spec=spec) as cluster:
        for index in range(3):
            await cluster.kube.create(POD, gang_pod(f"w-{index}", "whole", 3, npus=4), "default")
        for index in range(4):
            await cluster.kube.create(POD, gang_pod(f"h-{index}", "half", 4, npus=2), "default")
        await cluster.kube.create(POD, gang_pod("much", "much", 1, npus=8), "default")

        async def bound() -> bool:
            await cluster.tick()
            return sum(bool(pod["spec"].get("nodeName")) for pod in await cluster.pods()) == 7

        await cluster.until(bound, "seven pods are bound", within_s=600, every_s=5)
        pods = {pod["metadata"]["name"]: pod for pod in await cluster.pods()}
        assert len({pods[f"w-{index}"]["spec"]["nodeName"] for index in range(3)}) == 3
        assert len({pods[f"h-{index}"]["spec"]["nodeName"] for index in range(4)}) == 2
        assert sorted(each.npus for each in await cluster.resource.allocations()) == [8, 12]
        (scheduled,) = pods["much"]["status"]["conditions"]
        assert "a node has 4: use a gang of pods that request up to 4 each" in scheduled["message"]
