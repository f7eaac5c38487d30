"""A user draws the supernode with one edge less: routes, admission, blast radius and tables follow; then puts it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from matrixresource.topology import Supernode
from matrixresource.topology.graph_document import pack, read_drawing
from matrixresource.topology.observed_graph import node_link
from tests.stack import Stack

pytestmark = pytest.mark.looptime

HERE, PEER = "sn0-c00-n0", "sn0-c00-n1"
CABLE = f"{HERE}.ub-p3-k11"


def drawing(folder: Path, less: str = "") -> Path:
    """The supernode in a file, without one link."""
    document = node_link(Supernode().model_graph())
    document["edges"] = [edge for edge in document["edges"] if edge.get("name") != less]
    file = folder / "drawn.json"
    file.write_text(json.dumps(document))
    return file


def slice_of(*members: str, floor: float) -> dict:
    return {
        "allocation": "two", "instance": "two", "plane": "ub", "members": list(members), "qosClass": "Guaranteed",
        "floorGbpsPerNpu": floor,
    }  # fmt: skip


async def learnt(stack: Stack, cable: bool) -> None:
    async def known() -> bool:
        return (await stack.get("link", f"/v1/links/{CABLE}")).is_success == cable

    await stack.until(known, "MatrixLink knows the graph", within_s=120)


async def worst_switch(stack: Stack, nodes: int) -> float:
    plan = (await stack.http["resource"].post("/v1/plans", json={"nodes": nodes})).json()
    assert plan["fits"]
    return next(each["ubShare"] for each in plan["blastRadius"] if each["over"] == "l1")


async def test_removed_edge_changes_routes_admission_and_blast_radius(tmp_path):
    async with Stack(tmp_path, topology=drawing(tmp_path, CABLE)) as stack:
        await learnt(stack, cable=False)
        graph = (await stack.get("resource", "/v1/supernodes/sn0/topology?level=die")).json()["graph"]
        assert CABLE not in {edge["name"] for edge in graph["edges"]}

        # blast radius: of a node with a cable less, an L1 switch with all its cables is a larger part
        assert await worst_switch(stack, 48) == pytest.approx(448 / 3108 / 48, rel=1e-6)

        # routes: towards the node and from it chip 11 of sub-plane 3 is left out
        await stack.http["resource"].put("/v1/allocations/two", json={"nodes": 48})
        link = stack.http["link"]
        full = await link.put("/v1/slices/two-ub", json=slice_of(HERE, PEER, floor=392))
        assert (full.status_code, full.json()["reason"]) == (409, "InsufficientBandwidth"), "admission: no room for 392"
        fits, *links = full.json()["blocking"]
        assert fits["fitsFloorGbpsPerNpu"] == 392 * 3108 / 3136
        assert all(each["link"].startswith(f"{HERE}.") for each in links[:5])
        asked = await link.put("/v1/slices/two-ub", json=slice_of(HERE, PEER, floor=300))
        assert asked.is_success, asked.text
        assert (await link.post("/v1/slices/two-ub:program")).is_success
        routes = (await link.get("/v1/routes")).json()["items"]
        detour = next(each for each in routes if each["node"] == PEER)["detours"][HERE]
        by_plane = {stripe["subPlane"]: stripe["spread"] for stripe in detour}
        assert (by_plane[3][11], len(by_plane[3])) == (0, 16)
        assert by_plane[2] == []

        # forwarding tables: the L2 chip leads nowhere towards that node
        table = (await link.get("/v1/forwarding-tables", params={"switch": "sn0-l2p3-k11", "pageSize": 1000})).json()
        nowhere = [entry["name"] for entry in table["items"] if "port" not in entry]
        assert len(nowhere) == 20
        assert all(end.startswith(f"{HERE}-") for end in nowhere)
        what = (await link.post("/v1/what-ifs", json={"fail": ["sn0-l2p3-k11"]})).json()
        assert sum(plane["portsChanged"] for plane in what["planes"]) == 47

        # probes: nobody accuses the cable that is not there
        assert (await link.get("/v1/probes")).json()["suspicions"] == []

        # and the user draws it again: one version on, everything follows
        whole = await stack.http["resource"].put(
            "/v1/supernodes/sn0", json={"graph": pack(read_drawing(node_link(Supernode().model_graph())))}
        )
        assert whole.is_success, whole.text
        versions = (await stack.resource.get("/v1/topology-versions"))["items"]
        assert [change["kind"] for change in versions[-1]["changes"]] == ["SupernodeRedrawn"]
        await learnt(stack, cable=True)
        assert len((await stack.get("link", f"/v1/links/{CABLE}")).json()["ends"]) == 2
        assert (await link.put("/v1/slices/two-ub", json=slice_of(HERE, PEER, floor=392))).is_success


async def test_invalid_graph_is_refused_without_changes(tmp_path):
    async with Stack(tmp_path) as stack:
        document = node_link(Supernode().model_graph())
        for edge in document["edges"]:
            if edge.get("name") == CABLE:
                edge["capacity_gbps"] = 56.0
        for name in ("sn0", "sn1"):
            refused = await stack.http["resource"].put(
                f"/v1/supernodes/{name}", json={"graph": pack(read_drawing(document))}
            )
            assert (refused.status_code, refused.json()["field"]) == (422, "graph")
            assert refused.json()["detail"] == f"{CABLE} is drawn at 56.0 GB/s; l1-l2 of the ub plane has 28"
        assert len((await stack.resource.get("/v1/topology-versions"))["items"]) == 1


async def test_node_exists_once_it_is_in_the_graph(tmp_path):
    gone = "sn0-c00-n1"
    document = node_link(Supernode().model_graph())
    document["nodes"] = [each for each in document["nodes"] if gone not in (each["id"], each.get("node"))]
    document["edges"] = [
        each for each in document["edges"] if not any(each[end].startswith(gone) for end in ("source", "target"))
    ]
    file = tmp_path / "drawn.json"
    file.write_text(json.dumps(document))
    async with Stack(tmp_path, topology=file) as stack:
        assert len(await stack.resource.nodes()) == 47
        plan = (await stack.http["resource"].post("/v1/plans", json={"nodes": 48})).json()
        assert not plan["fits"]

        async def away() -> bool:
            assert stack.fleet is not None
            links = await stack.get("link", "/v1/links", params={"node": gone})
            return len(stack.fleet.nodes) == 47 and links.status_code == 404

        await stack.until(away, "neither the racks nor MatrixLink have it", within_s=120)
        stack.impair("dark", "link-down", HERE, port="ub-p3-k11")
        await stack.http["resource"].put("/v1/allocations/one", json={"nodes": 47})
        graph = {"graph": pack(read_drawing(json.loads(drawing(tmp_path).read_text())))}
        assert (await stack.http["resource"].put("/v1/supernodes/sn0", json=graph)).is_success

        async def up() -> bool:
            found = {node.name: node.state for node in await stack.resource.nodes()}
            return len(found) == 48 and found[gone] == "Available"

        await stack.until(up, "it comes up by itself", within_s=600)
        back = {"graph": pack(read_drawing(document))}
        assert (await stack.http["resource"].put("/v1/supernodes/sn0", json=back)).is_success
        assert len(await stack.resource.nodes()) == 47
        drawn = json.loads(drawing(tmp_path).read_text())
        drawn["nodes"] = [each for each in drawn["nodes"] if HERE not in (each["id"], each.get("node"))]
        drawn["edges"] = [
            each for each in drawn["edges"] if not any(each[end].startswith(HERE) for end in ("source", "target"))
        ]
        refused = await stack.http["resource"].put("/v1/supernodes/sn0", json={"graph": pack(read_drawing(drawn))})
        assert (refused.status_code, refused.json()["reason"]) == (409, "Conflict")
