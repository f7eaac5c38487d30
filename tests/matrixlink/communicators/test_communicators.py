"""Communicators over HTTP: named traffic of slices, whose flows follow what agents report, and restarts on the way."""

import asyncio

import httpx
import pytest

from matrixcommon.model.errors import Conflict, InvalidField, NotFound, NotYetSupported, PreconditionFailed
from matrixlink.contract.communicators import CommunicatorRequest
from matrixresource.topology import Supernode
from services.testing.asgi import StreamingASGITransport
from tests.matrixlink.client import FullLinkClient
from tests.matrixlink.fleet import NODES, LinkStack, slice_request

DIES = [die for node in NODES for die in Supernode().dies(node)]


def ring_request(**changes) -> CommunicatorRequest:
    return CommunicatorRequest.model_validate({"slice": "a-ub", "pattern": "ring"} | changes)


@pytest.fixture
async def sliced(stack):
    await stack.active()
    return stack


async def lose_chip(stack, plane=3, chip=11, share=0.0):
    """Every node's cable to one L2 chip; share 1 repairs it."""
    for node in stack.hardware.values():
        node.ports[f"ub-p{plane}-k{chip:02d}"] = share
    await stack.report()


async def test_flows_avoid_drained_links_and_return(sliced):
    await sliced.client.ensure_communicator("ring", ring_request())
    before = await sliced.client.communicator_flows("ring")
    crossing = [flow for flow in before if any("ub-p2-k00" in link for link in flow.path)]
    assert crossing
    drained = await sliced.http.put("/v1/drains/optics", json={"elements": ["sn0-l2p2-k00"]})
    assert drained.status_code == 200
    during = await sliced.client.communicator_flows("ring")
    assert not any("ub-p2-k00" in link for flow in during for link in flow.path)
    assert sum(a.path != b.path for a, b in zip(before, during, strict=True)) == len(crossing)
    assert (await sliced.http.delete("/v1/drains/optics")).is_success
    assert await sliced.client.communicator_flows("ring") == before


# ---- what was asked ----------------------------------------------------------------------------------------------------


async def test_a_ring_over_a_slices_dies(sliced):
    view = await sliced.client.ensure_communicator("ring", ring_request())
    assert (view.state, view.generation, view.slice, view.ranks) == ("Flowing", 1, "a-ub", None)
    reported = view.traffic
    assert (reported.ranks, reported.transfers, reported.flows, reported.cut) == (64, 64, 448, 0)
    assert (reported.mean_gbps, reported.slowest_gbps, reported.last_change) == (196.0, 196.0, None)
    flows = await sliced.client.communicator_flows("ring")
    assert len(flows) == 448
    assert flows[0].path == [f"{DIES[0].partition('-npu')[0]}.npu0-die0-p0", f"{NODES[0]}.npu0-die1-p0"]
    last = flows[15 * 7 + 2]  # die 15 of the first node sends to die 0 of the next, over chip 0
    assert (last.source, last.target, last.sub_plane, last.gbps) == (DIES[15], DIES[16], 2, 28.0)
    assert last.path == [
        f"{NODES[0]}.npu7-die1-p2", f"{NODES[0]}.ub-p2-k00", f"{NODES[1]}.ub-p2-k00", f"{NODES[1]}.npu0-die0-p2",
    ]  # fmt: skip


async def test_a_repeated_spec_changes_nothing_and_another_is_a_new_generation(sliced):
    first = await sliced.client.ensure_communicator("ring", ring_request())
    again = await sliced.client.ensure_communicator("ring", ring_request())
    assert (again.generation, again.etag) == (first.generation, first.etag)
    other = await sliced.client.ensure_communicator("ring", ring_request(offered_gbps=70.0))
    assert (other.generation, other.traffic.mean_gbps) == (2, 70.0)
    assert [view.name for view in await sliced.client.communicators()] == ["ring"]


async def test_validate_only_changes_nothing(sliced):
    view = await sliced.client.ensure_communicator("ring", ring_request(), validate_only=True)
    assert (view.name, view.traffic) == ("ring", None)
    assert await sliced.client.find_communicator("ring") is None
    await sliced.client.ensure_communicator("ring", ring_request())
    answer = await sliced.http.delete("/v1/communicators/ring", params={"validateOnly": "true"})
    assert answer.status_code == 204
    assert await sliced.client.find_communicator("ring") is not None


async def test_etags_are_honoured(sliced):
    await sliced.client.ensure_communicator("ring", ring_request())
    for call in (
        sliced.http.put("/v1/communicators/ring", json=ring_request().wire(), headers={"If-Match": '"1"'}),
        sliced.http.delete("/v1/communicators/ring", headers={"If-Match": '"1"'}),
    ):
        answer = await call
        assert (answer.status_code, answer.json()["reason"]) == (412, PreconditionFailed.__name__)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"slice": "nobody"}, "slice"),
        ({"slice": "a-rdma"}, "slice"),
        ({"ranks": ["sn0-c05-n0-npu0-die0", DIES[0]]}, "ranks[0]"),
        ({"ranks": [DIES[0], DIES[1], DIES[0]]}, "ranks[2]"),
        ({"ranks": [DIES[0], f"{NODES[0]}-npu9-die0"]}, "ranks[1]"),
        ({"shift": 3}, "shift"),
        ({"holders": 3}, "holders"),
        ({"pattern": "allToAll", "routing": "planned"}, "routing"),
        ({"pattern": "allToAll", "routing": "spray"}, "pattern"),  # 451,584 flows
    ],
)
async def test_invalid_specs_are_refused_by_field_without_a_change(sliced, changes, field):
    await sliced.client.admit("a-rdma", slice_request("rdma"))
    with pytest.raises(InvalidField) as refused:
        await sliced.client.ensure_communicator("ring", ring_request(**changes))
    assert refused.value.field == field
    assert await sliced.client.communicators() == []


@pytest.mark.parametrize(
    "changes",
    [{"pattern": "gossip"}, {"routing": "luck"}, {"offeredGbps": 0}, {"offeredGbps": -3}, {"ranks": [DIES[0]]},
     {"ranks": ["die 7", "die 8"]}, {"seed": -1}, {"shift": 0}, {"colour": "red"}],
)  # fmt: skip
async def test_unparsable_specs_are_refused_by_field(sliced, changes):
    body = {"slice": "a-ub", "pattern": "permutation"} | changes
    answer = await sliced.http.put("/v1/communicators/x", json=body)
    assert answer.status_code in (400, 422)
    assert next(iter(changes)) in answer.json()["field"]


async def test_changing_the_slice_is_a_conflict(sliced):
    await sliced.client.ensure_communicator("ring", ring_request())
    await sliced.client.admit("b-ub", slice_request(instance="b", floor_gbps_per_npu=0, qos_class="BestEffort"))
    with pytest.raises(Conflict):
        await sliced.client.ensure_communicator("ring", ring_request(slice="b-ub"))


async def test_flows_of_an_unknown_communicator_are_not_found(sliced):
    for path in ("/v1/communicators/x", "/v1/communicators/x/flows", "/v1/communicators/x/changes"):
        answer = await sliced.http.get(path)
        assert (answer.status_code, answer.json()["reason"]) == (404, NotFound.__name__)
    await sliced.client.ensure_communicator("ring", ring_request())
    answer = await sliced.http.get("/v1/communicators/ring/flows", params={"watch": "true"})
    assert (answer.status_code, answer.json()["reason"]) == (501, NotYetSupported.__name__)


# ---- patterns and routings ---------------------------------------------------------------------------------------------


async def test_routings_differ_as_specified(sliced):
    await sliced.client.ensure_communicator("p", ring_request(pattern="permutation", seed=5))
    static = (await sliced.client.find_communicator("p")).traffic
    await sliced.client.ensure_communicator("p", ring_request(pattern="permutation", seed=5, routing="planned"))
    planned = (await sliced.client.find_communicator("p")).traffic
    await sliced.client.ensure_communicator("p", ring_request(pattern="permutation", seed=5, routing="ecmp"))
    hashed = (await sliced.client.find_communicator("p")).traffic
    await sliced.client.ensure_communicator("p", ring_request(pattern="permutation", seed=5, routing="spray"))
    sprayed = (await sliced.client.find_communicator("p")).traffic
    assert planned.slowest_gbps == 196.0
    assert hashed.mean_gbps < static.mean_gbps < planned.mean_gbps
    assert sprayed.flows == 16 * planned.flows
    assert sprayed.slowest_gbps == pytest.approx(196.0)


async def test_an_incast_has_one_port_and_communicators_share(sliced):
    ranks = DIES[:9]
    view = await sliced.client.ensure_communicator("in", ring_request(pattern="incast", ranks=ranks))
    assert view.traffic.mean_gbps == pytest.approx((196 / 8 * 8 + 196) / 9)  # eight senders, and what rank 0 takes in
    flows = await sliced.client.communicator_flows("in")
    assert {flow.gbps for flow in flows} == {3.5}
    await sliced.client.ensure_communicator("too", ring_request(pattern="incast", ranks=[DIES[0], *DIES[20:28]]))
    flows = await sliced.client.communicator_flows("in")
    assert {flow.gbps for flow in flows} == {1.75}
    await sliced.client.delete_communicator("too")
    assert {flow.gbps for flow in await sliced.client.communicator_flows("in")} == {3.5}


# ---- following ---------------------------------------------------------------------------------------------------------


async def test_a_lost_chip_moves_its_flows_and_a_repair_moves_them_back(sliced):
    await sliced.client.ensure_communicator("p", ring_request(pattern="permutation", shift=16))
    before = await sliced.client.communicator_flows("p")
    whole = (await sliced.client.find_communicator("p")).traffic
    await lose_chip(sliced)
    after = await sliced.client.communicator_flows("p")
    moved = {old.name for old, new in zip(before, after, strict=True) if old.path != new.path}
    assert moved == {flow.name for flow in before if any(".ub-p3-k11" in link for link in flow.path)}
    slower = {old.name for old, new in zip(before, after, strict=True) if old.gbps != new.gbps}
    reported = (await sliced.client.find_communicator("p")).traffic
    last = reported.last_change
    assert (last.event, last.ports, last.repathed) == (1, 4, len(moved))
    assert last.rerated == len(slower)
    assert reported.mean_gbps < whole.mean_gbps
    changes = await sliced.client.communicator_changes("p")
    assert {change.name for change in changes} == moved | slower
    reported_before, reported_after = ({flow.name: flow for flow in flows} for flows in (before, after))
    for change in changes:
        old, new = reported_before[change.name], reported_after[change.name]
        assert (change.path_before, change.path) == (old.path, new.path)
        assert (change.gbps_before, change.gbps) == (old.gbps, new.gbps)
        assert (change.source, change.target, change.sub_plane) == (new.source, new.target, new.sub_plane)
    await lose_chip(sliced, share=1.0)
    assert await sliced.client.communicator_flows("p") == before
    assert (await sliced.client.find_communicator("p")).traffic.last_change.event == 2


async def test_an_unchanged_report_changes_nothing(sliced):
    await sliced.client.ensure_communicator("ring", ring_request())
    await lose_chip(sliced)
    first = (await sliced.client.find_communicator("ring")).traffic
    await sliced.report()
    sliced.hardware[NODES[0]].ports["vpc"] = 0.5
    await sliced.report()
    assert (await sliced.client.find_communicator("ring")).traffic == first


async def test_only_reported_conditions_are_known(sliced):
    await sliced.client.ensure_communicator("ring", ring_request())
    sliced.hardware[NODES[0]].ports["ub-p3-k00"] = 0.0
    with sliced.quiet(NODES[0]):
        await sliced.report()
        assert (await sliced.client.find_communicator("ring")).traffic.slowest_gbps == 196.0
    await sliced.report()
    assert (await sliced.client.find_communicator("ring")).traffic.last_change.repathed > 0


async def test_a_disconnected_node_is_shown_and_recorded(sliced):
    await sliced.client.ensure_communicator("ring", ring_request())
    for plane in range(7):
        for chip in range(16):
            sliced.hardware[NODES[1]].ports[f"ub-p{plane}-k{chip:02d}"] = 0.0
    await sliced.report()
    view = await sliced.client.find_communicator("ring")
    assert (view.state, view.traffic.cut, view.traffic.slowest_gbps) == ("Cut", 2, 0.0)
    following = sliced.app.state.watchers["communicators"]
    await following.step()
    assert (await sliced.client.find_communicator("ring")).etag != view.etag
    for flow in await sliced.client.communicator_flows("ring"):
        assert bool(flow.path) == (flow.gbps > 0)


async def test_a_restart_gives_the_same_flows(sliced):
    await sliced.client.ensure_communicator("p", ring_request(pattern="permutation", seed=3, offered_gbps=150.0))
    await sliced.client.ensure_communicator(
        "e", ring_request(pattern="allToAll", routing="ecmp", ranks=DIES[:20], seed=9)
    )
    await lose_chip(sliced)
    sliced.hardware[NODES[2]].ports["npu3-die1-p5"] = 0.0
    sliced.hardware[NODES[3]].ports["ub-p0-k05"] = 0.25
    await sliced.report()
    before = {name: await sliced.client.communicator_flows(name) for name in "pe"}
    reported = (await sliced.client.find_communicator("p")).traffic
    table = await sliced.client.forwarding_entries("sn0-c00-n0-l1p3")
    sliced.restart()
    for name in "pe":
        now = await sliced.client.communicator_flows(name)
        assert [flow.path for flow in now] == [flow.path for flow in before[name]]
        assert [flow.gbps for flow in now] == pytest.approx([flow.gbps for flow in before[name]])
    again = (await sliced.client.find_communicator("p")).traffic
    assert (again.tables_version, again.mean_gbps) == (reported.tables_version, pytest.approx(reported.mean_gbps))
    assert again.last_change is None
    assert await sliced.client.forwarding_entries("sn0-c00-n0-l1p3") == table


# ---- slices ------------------------------------------------------------------------------------------------------------


async def test_flows_follow_the_slices_members(sliced):
    await sliced.client.ensure_communicator("all", ring_request())
    await sliced.client.ensure_communicator("some", ring_request(ranks=[DIES[0], DIES[20], DIES[40]]))
    await sliced.client.admit("a-ub", slice_request(members=NODES[:2]))
    assert (await sliced.client.find_communicator("all")).traffic.ranks == 32
    assert (await sliced.client.find_communicator("some")).traffic.ranks == 2
    for name in ("all", "some"):
        for flow in await sliced.client.communicator_flows(name):
            assert {end.rpartition("-npu")[0] for end in (flow.source, flow.target)} <= set(NODES[:2])
    await sliced.client.admit("a-ub", slice_request(members=[NODES[2]]))
    assert (await sliced.client.find_communicator("some")).state == "Idle"
    assert await sliced.client.communicator_flows("some") == []
    await sliced.client.admit("a-ub", slice_request())
    assert (await sliced.client.find_communicator("some")).traffic.ranks == 3


async def test_a_communicator_goes_with_its_slice(sliced):
    await sliced.client.ensure_communicator("ring", ring_request())
    await sliced.client.withdraw("a-ub")
    view = await sliced.client.find_communicator("ring")
    assert (view.state, view.traffic) == ("Idle", None)
    with pytest.raises(Conflict):
        await sliced.client.ensure_communicator("other", ring_request())
    await sliced.settle()
    assert await sliced.client.find_slice("a-ub") is None
    assert await sliced.client.find_communicator("ring") is None
    await sliced.active()
    assert await sliced.client.communicators() == []


async def test_a_communicator_of_a_deleted_slice_is_removed_after_a_restart(sliced):
    await sliced.client.ensure_communicator("ring", ring_request())
    await sliced.client.withdraw("a-ub")
    await sliced.settle()
    sliced.restart()
    assert await sliced.client.communicators() == []


async def test_communicators_can_be_watched(sliced):
    transport = StreamingASGITransport(sliced.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://link") as http:
        watching, seen = FullLinkClient(http), []

        async def see():
            async with asyncio.timeout(20):
                async for event in watching.watch("communicators", 0):
                    if event.type != "BOOKMARK":
                        seen.append((event.type, event.view["generation"]))
                    if event.type == "DELETED":
                        return

        seeing = asyncio.create_task(see())
        await sliced.client.ensure_communicator("ring", ring_request())
        await sliced.client.ensure_communicator("ring", ring_request(offered_gbps=10))
        await sliced.client.delete_communicator("ring")
        await seeing
    assert seen == [("ADDED", 1), ("MODIFIED", 2), ("DELETED", 2)]


# ---- forwarding tables -------------------------------------------------------------------------------------------------


async def test_a_chips_table(sliced):
    whole = await sliced.client.forwarding_entries("sn0-c00-n0-l1p3")
    assert len(whole) == 960
    entries = {entry.name: entry for entry in whole}
    other = entries["sn0-c05-n2-npu5-die1"]
    assert (other.port, other.to, other.aside) == ("sn0-c00-n0.ub-p3-k11", "sn0-l2p3-k11", False)
    own = entries["sn0-c00-n0-cpu2"]
    assert (own.port, own.to) == ("sn0-c00-n0.cpu2-p3", "sn0-c00-n0-cpu2")
    down = {entry.name: entry for entry in await sliced.client.forwarding_entries("sn0-l2p3-k11")}
    assert (down["sn0-c05-n2-cpu0"].port, down["sn0-c05-n2-cpu0"].to) == ("sn0-c05-n2.ub-p3-k11", "sn0-c05-n2-l1p3")
    await lose_chip(sliced)
    changed = {entry.name: entry for entry in await sliced.client.forwarding_entries("sn0-c00-n0-l1p3")}
    assert {name for name, entry in changed.items() if entry != entries[name]} == {
        name for name in entries if name.endswith("npu5-die1") and not name.startswith(NODES[0])
    }
    assert changed["sn0-c00-n2-npu5-die1"].to == "sn0-l2p3-k02"
    assert changed["sn0-c00-n2-npu5-die1"].aside


async def test_tables_are_listed_paged_and_versioned(sliced):
    answer = (await sliced.http.get("/v1/forwarding-tables", params={"filter": "kind=l2", "pageSize": 1000})).json()
    assert len(answer["items"]) == 112
    assert {(item["entries"], item["nowhere"], item["aside"]) for item in answer["items"]} == {(960, 0, 0)}
    page = (await sliced.http.get("/v1/forwarding-tables", params={"switch": "sn0-l2p3-k11", "pageSize": 7})).json()
    assert (len(page["items"]), page["switch"]) == (7, "sn0-l2p3-k11")
    await lose_chip(sliced)
    view = (await sliced.http.get("/v1/forwarding-tables/sn0-l2p3-k11")).json()
    assert (view["state"], view["nowhere"], view["entries"]) == ("Changed", 80, 880)
    assert view["version"] != page["version"]
    await lose_chip(sliced, share=1.0)
    view = (await sliced.http.get("/v1/forwarding-tables/sn0-l2p3-k11")).json()
    assert (view["state"], view["version"]) == ("Whole", page["version"])
    for path in ("/v1/forwarding-tables/sn0-l2p9-k11", "/v1/forwarding-tables?switch=sn7-l2p3-k11"):
        assert (await sliced.http.get(path)).status_code == 404


async def test_tables_of_supernodes_are_independent(tmp_path):
    stack = LinkStack(tmp_path)
    stack.settings = stack.settings.model_copy(update={"supernodes": 2})
    stack.restart()
    entries = await stack.client.forwarding_entries("sn1-c00-n0-l1p0")
    assert {entry.name.partition("-")[0] for entry in entries} == {"sn1"}
    await lose_chip(stack)
    versions = {(await stack.http.get(f"/v1/forwarding-tables/sn{s}-l2p0-k00")).json()["version"] for s in range(2)}
    assert len(versions) == 2
