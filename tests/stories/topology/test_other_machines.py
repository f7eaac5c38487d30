"""Stacks of other machines than the CloudMatrix384: instances and their slices, a model timed by its machine, a lost node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime


async def served(stack: Stack, **fields) -> dict:
    asked = await stack.http["infer"].put("/v1/deployments/one", json={"instance": "one", **fields})
    assert asked.status_code == 200, asked.text
    seen: dict = {}

    async def serves() -> bool:
        seen.update((await stack.get("infer", "/v1/deployments/one")).json())
        return seen["state"] == "Serving"

    await stack.until(serves, "the model serves", within_s=900)
    return seen


async def test_a2_cluster_serves_over_roce_and_replaces_a_lost_server(tmp_path):
    async with Stack(tmp_path, spec=Path("atlas-800i-a2"), infer=True) as stack:
        nodes = await stack.resource.nodes()
        assert (len(nodes), {node.npus for node in nodes}) == (16, {8})
        await stack.apply("one", 6, spares=1)
        before = await stack.active("one", 6)
        assert before.npus == 48
        slices = {each.plane: each for each in await stack.link.slices() if each.instance == "one"}
        assert {each.state for each in slices.values()} == {"Active"}
        view = await stack.link.fabric_view("one")
        assert view is not None
        assert view.machine == "Atlas 800I A2"
        assert {sum(ports.uplink_gbps) for ports in view.planes["ub"].nodes.values()} == {0.0}, (
            "HCCS ends at the server"
        )
        assert {sum(ports.uplink_gbps) for ports in view.planes["rdma"].nodes.values()} == {200.0}

        over_ub = await stack.http["infer"].put("/v1/deployments/one", json={"instance": "one", "cachePlane": "ub"})
        assert (over_ub.status_code, over_ub.json()["field"]) == (422, "cachePlane"), "no waiting helps"
        deployment = await served(stack)
        assert (deployment.get("cachePlane"), deployment["pools"]["cachePlane"]) == (None, "vpc")
        over_ub = await stack.http["infer"].put("/v1/deployments/one", json={"instance": "one", "cachePlane": "ub"})
        assert (over_ub.status_code, over_ub.json()["field"]) == (422, "cachePlane")
        assert deployment["machine"] == "atlas-800i-a2"
        assert sorted(deployment["roles"]) == sorted(m.node for m in before.members if m.role == "member")

        lost = before.members[0].node
        stack.impair("dark", "node-down", lost)

        async def repaired() -> bool:
            now = await stack.compute.find_instance("one")
            assert now is not None
            members = {member.node for member in now.members if member.role == "member"}
            roles = (await stack.get("infer", "/v1/deployments/one")).json()["roles"]
            return lost not in members and len(members) == 6 and members == set(roles) and now.state == "Active"

        await stack.until(repaired, "another server serves in its place")
        await stack.check()


async def test_server_local_links_do_not_connect_servers(tmp_path):
    async with Stack(tmp_path, spec=Path("atlas-800i-a2")) as stack:
        await stack.apply("one", 2)
        members = [member.node for member in (await stack.active("one", 2)).members]
        more = {"allocation": "one", "instance": "one", "plane": "ub", "members": members, "qosClass": "Guaranteed"}
        refused = await stack.http["link"].put("/v1/slices/more", json={**more, "floorGbpsPerNpu": 197})
        assert (refused.status_code, refused.json()["field"]) == (422, "floorGbpsPerNpu"), refused.text
        tables = await stack.get("link", "/v1/forwarding-tables", params={"switch": f"{members[0]}-l1p0"})
        assert tables.status_code == 422, tables.text
        assert "ends at the node" in tables.json()["detail"]
        lost = await stack.http["link"].post("/v1/what-ifs", json={"fail": [f"{members[0]}-l1p0"]})
        assert lost.status_code in (200, 422), lost.text


async def test_single_die_npus_are_allocated_whole(tmp_path):
    async with Stack(tmp_path, spec=Path("atlas-800i-a2")) as stack:
        http = stack.http["resource"]
        for field, asked in (("npus", {"npus": 0.5}), ("npusPerNode", {"nodes": 2, "npusPerNode": 0.5})):
            refused = await http.put("/v1/allocations/half", json=asked)
            assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
        assert (await http.put("/v1/allocations/most", json={"npus": 7})).json()["npus"] == 7
        assert (await http.put("/v1/allocations/most/binding", json={})).is_success

        async def ready() -> bool:
            (member,) = (await stack.get("resource", "/v1/allocations/most")).json()["members"]
            return bool(member["ready"])

        await stack.until(ready, "its node's agent has prepared seven of eight NPUs", within_s=900)
        (member,) = (await stack.get("resource", "/v1/allocations/most")).json()["members"]
        assert (member["npus"], member["dies"]) == (7, [0, 1, 2, 3, 4, 5, 6])

        free = (await stack.get("resource", "/v1/fragmentation")).json()["freeNpus"]
        stack.impair("burnt", "hbm-fault", "sn0-c03-n3", npu=5, die=0)

        async def counted_out() -> bool:
            return bool((await stack.get("resource", "/v1/fragmentation")).json()["freeNpus"] == free - 1)

        await stack.until(counted_out, "all of the NPU whose die is broken is out", within_s=300)
        of_one = (await stack.get("resource", "/v1/npus", params={"filter": "node=sn0-c03-n3"})).json()["items"]
        dies = {each["name"].rpartition("-")[2]: each["dies"] for each in of_one}
        assert {npu: [die["die"] for die in found] for npu, found in dies.items()} == {f"npu{k}": [k] for k in range(8)}
        assert [npu for npu, (die,) in dies.items() if not die["schedulable"]] == ["npu5"]
        found = (await stack.get("resource", "/v1/nodes/sn0-c03-n3/inventory")).json()["found"]
        assert [each["dies"] for each in found["npus"]] == [[k] for k in range(8)], "numbered as its agent does"


@pytest.mark.timeout(600)
async def test_supernode_of_8192_npus_replaces_a_lost_node(tmp_path):
    async with Stack(tmp_path, spec=Path("atlas-950")) as stack:
        assert len(await stack.resource.nodes()) == 1024
        await stack.apply("one", 6, spares=1)
        lost = (await stack.active("one", 6)).members[0].node
        stack.impair("dark", "node-down", lost)

        async def repaired() -> bool:
            now = await stack.compute.find_instance("one")
            assert now is not None
            members = {member.node for member in now.members if member.role == "member"}
            return lost not in members and len(members) == 6 and now.state == "Active"

        await stack.until(repaired, "another node stands in its place")
        await stack.check()
