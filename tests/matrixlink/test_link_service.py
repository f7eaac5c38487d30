"""MatrixLink over HTTP: slices admitted, programmed by agents, resized, rerouted, withdrawn; restarts and silence on
the way; bad input refused with the field and nothing changed."""

import pytest

from matrixcommon.model.errors import InsufficientBandwidth
from matrixcommon.model.planes import Plane
from tests.matrixlink.fleet import NODES, slice_request


def reported(view, type):
    return next((c.status, c.reason, c.message) for c in view.conditions if c.type == type)


async def test_the_lifecycle_of_a_slice(stack):
    view = await stack.client.admit("a-ub", slice_request())
    assert (view.state, view.programmed, view.floor_kept_gbps_per_npu) == ("Admitted", 0, 100.0)
    view = await stack.client.program("a-ub")
    assert view.state == "Programming"
    assert reported(view, "RoutesProgrammed") == (
        "False",
        "Waiting",
        f"0 of 4 agents acknowledged generation {view.generation}",
    )
    await stack.report()
    assert (await stack.client.find_slice("a-ub")).state == "Programming"
    await stack.work()
    await stack.report()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.programmed) == ("Active", 4)
    assert reported(view, "RoutesProgrammed")[0] == "True"
    assert stack.agents[NODES[0]].tables("a-ub")["isolation_key"] == view.isolation_key
    assert await stack.client.withdraw("a-ub") is False
    assert (await stack.client.find_slice("a-ub")).state == "Withdrawing"
    await stack.settle()
    assert await stack.client.find_slice("a-ub") is None
    assert stack.agents[NODES[0]].tables("a-ub") is None
    assert await stack.client.withdraw("a-ub") is True
    links = await stack.client.links("ub", NODES[0])
    assert {link["floorsGbps"] for link in links} == {0.0}


async def test_a_repeated_request_changes_nothing(stack):
    first = await stack.client.admit("a-ub", slice_request())
    again = await stack.client.admit("a-ub", slice_request(members=list(reversed(NODES))))
    assert (again.generation, again.etag) == (first.generation, first.etag)
    await stack.active()
    view = await stack.client.program("a-ub")
    assert (view.state, view.generation) == ("Active", first.generation)
    await stack.client.withdraw("a-ub")
    generation = (await stack.client.find_slice("a-ub")).generation
    await stack.client.withdraw("a-ub")
    assert (await stack.client.find_slice("a-ub")).generation == generation


async def test_only_acknowledgement_of_this_generation_counts(stack):
    await stack.client.admit("a-ub", slice_request())
    await stack.client.program("a-ub")
    with stack.quiet(NODES[3]):
        await stack.settle()
        view = await stack.client.find_slice("a-ub")
        assert (view.state, view.programmed) == ("Programming", 3)
    await stack.settle()
    assert (await stack.client.find_slice("a-ub")).state == "Active"


async def test_replacing_a_member_increments_the_generation(stack):
    before = await stack.active(request=slice_request(members=NODES[:3]))
    other = stack.agents[NODES[1]].counters["programmed"]
    view = await stack.client.admit("a-ub", slice_request(members=[NODES[0], NODES[1], NODES[3]]))
    assert (view.generation, view.state) == (before.generation + 1, "Admitted")
    await stack.client.program("a-ub")
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.isolation_key) == ("Active", before.isolation_key)
    assert stack.agents[NODES[2]].tables("a-ub") is None
    assert stack.agents[NODES[3]].tables("a-ub") is not None
    assert stack.agents[NODES[1]].counters["programmed"] == other + 1


async def test_a_lost_member_does_not_hold_up_its_replacement(stack):
    await stack.active(request=slice_request(members=NODES[:3]))
    stack.silent.add(NODES[2])
    stack.clock.at += 31
    await stack.client.admit("a-ub", slice_request(members=[NODES[0], NODES[1], NODES[3]]))
    await stack.client.program("a-ub")
    await stack.settle()
    assert (await stack.client.find_slice("a-ub")).state == "Active"
    assert stack.agents[NODES[2]].tables("a-ub") is not None
    stack.silent.clear()
    await stack.settle()
    assert stack.agents[NODES[2]].tables("a-ub") is None


async def test_deletion_completes_without_unreachable_agents(stack):
    view = await stack.active()
    stack.silent.add(NODES[0])
    stack.passes(31)
    await stack.client.withdraw("a-ub")
    await stack.settle()
    assert await stack.client.find_slice("a-ub") is None
    assert stack.agents[NODES[0]].tables("a-ub") is not None
    other = await stack.client.admit("b-ub", slice_request(instance="b", members=NODES[1:3]))
    assert other.isolation_key != view.isolation_key, "a fenced node may still use the key"
    stack.silent.clear()
    await stack.settle()
    assert stack.agents[NODES[0]].tables("a-ub") is None
    third = await stack.client.admit("c-ub", slice_request(instance="c", members=[NODES[3]]))
    assert third.isolation_key == view.isolation_key


async def test_a_recreated_slice_is_newer_than_what_an_absent_agent_holds(stack):
    await stack.active()
    stack.silent.add(NODES[0])
    stack.passes(31)
    await stack.client.withdraw("a-ub")
    await stack.settle()
    stack.silent.clear()
    await stack.active(request=slice_request())


async def test_a_slow_reachable_agent_is_waited_for_until_the_deadline(stack):
    await stack.active()
    await stack.client.withdraw("a-ub")
    for _ in range(5):
        stack.clock.at += 25
        await stack.report()
    await stack.health.step()
    assert await stack.client.find_slice("a-ub") is None


async def test_a_lost_cable_is_routed_around_until_repaired(stack):
    await stack.active(request=slice_request(members=NODES[:2]))
    await stack.active("b-ub", slice_request(instance="b", members=NODES[2:]))
    whole = await stack.client.slice_fabric_view("a-ub")
    assert whole.planes["ub"].nodes[NODES[0]].uplink_gbps == [448.0] * 7
    stack.hardware[NODES[0]].ports["ub-p3-k11"] = 0.0
    await stack.report()
    await stack.health.step()
    view = await stack.client.find_slice("a-ub")
    assert view.state == "Rerouting"
    assert (await stack.client.find_slice("b-ub")).state == "Active"
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, reported(view, "Degraded")[1], reported(view, "QosSatisfied")[0]) == (
        "Degraded",
        "LinksLost",
        "True",
    )
    tables = stack.agents[NODES[1]].tables("a-ub")
    assert tables["detours"][NODES[0]][3]["spread"][11] == 0.0
    seen = await stack.client.slice_fabric_view("a-ub")
    assert seen.planes["ub"].nodes[NODES[0]].uplink_gbps == [448.0, 448.0, 448.0, 420.0, 448.0, 448.0, 448.0]
    assert seen.generation > whole.generation
    link = (await stack.http.get(f"/v1/links/{NODES[0]}.ub-p3-k11")).json()
    assert (link["state"], link["gbps"], link["floorsGbps"]) == ("Down", 0.0, 0.0)
    assert (await stack.http.get("/v1/switches/sn0-l2p3-k11")).json()["portsDown"] == 1
    stack.hardware[NODES[0]].ports.clear()
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, reported(view, "Degraded")[0]) == ("Active", "False")
    assert stack.agents[NODES[1]].tables("a-ub")["detours"] == {}
    assert (await stack.client.slice_fabric_view("a-ub")).planes == whole.planes


async def test_a_reduced_floor_is_shown_and_restored(stack):
    await stack.active(request=slice_request(floor_gbps_per_npu=392.0))
    for node in stack.hardware.values():
        node.ports["ub-p0-k05"] = 0.0
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert view.state == "Degraded"
    assert view.floor_kept_gbps_per_npu == pytest.approx(392 * 111 / 112, rel=1e-5)
    assert reported(view, "QosSatisfied")[:2] == ("False", "FloorReduced")
    view = await stack.client.admit("a-ub", slice_request(members=NODES[:3], floor_gbps_per_npu=392.0))
    assert view.state == "Admitted", "a damaged fabric does not stop a member from leaving"
    await stack.client.program("a-ub")
    for node in stack.hardware.values():
        node.ports.clear()
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.floor_kept_gbps_per_npu) == ("Active", 392.0)


async def test_insufficient_bandwidth_is_refused_by_link(stack):
    await stack.client.admit("a-ub", slice_request(floor_gbps_per_npu=300.0))
    with pytest.raises(InsufficientBandwidth) as refused:
        await stack.client.admit("b-ub", slice_request(instance="b", floor_gbps_per_npu=100.0, members=NODES[3:]))
    summary, first = refused.value.blocking[:2]
    assert summary["plane"] == "ub"
    assert summary["fitsFloorGbpsPerNpu"] == pytest.approx(92.0)
    assert (first["plane"], first["owners"]) == ("ub", ["a-ub"])
    assert first["link"].startswith(NODES[3])
    assert await stack.client.find_slice("b-ub") is None
    assert (
        await stack.client.admit("b-ub", slice_request(instance="b", floor_gbps_per_npu=92.0, members=NODES[3:]))
    ).name


async def test_two_slices_share_unreserved_bandwidth(stack):
    await stack.client.admit("a-ub", slice_request(members=NODES[:2], floor_gbps_per_npu=98.0))
    await stack.client.admit("b-ub", slice_request(instance="b", members=NODES[1:3], qos_class="BestEffort"))
    a = (await stack.client.slice_fabric_view("a-ub")).planes["ub"].nodes
    b = (await stack.client.slice_fabric_view("b-ub")).planes["ub"].nodes
    assert a[NODES[0]].uplink_gbps == [448.0] * 7
    assert a[NODES[1]].uplink_gbps == pytest.approx([112 + 336 * 0.8] * 7)
    assert b[NODES[1]].uplink_gbps == pytest.approx([336 * 0.2] * 7)


async def test_three_planes_of_one_instance(stack):
    for plane in ("ub", "rdma", "vpc"):
        await stack.active(f"a-{plane}", slice_request(plane))
    view = await stack.client.fabric_view("a")
    assert {str(plane) for plane in view.planes} == {"ub", "rdma", "vpc"}
    ports = {str(plane): each.nodes[NODES[0]] for plane, each in view.planes.items()}
    assert ports["ub"].endpoint_gbps == [28.0] * 7
    assert (ports["rdma"].uplink_gbps, ports["rdma"].endpoint_gbps) == ([400.0], [25.0])
    assert (ports["vpc"].uplink_gbps, ports["vpc"].endpoint_gbps) == ([50.0], [50.0])
    assert view.planes["ub"].latency_us == 1.9
    kinds = {each.isolation for each in await stack.client.slices()}
    assert kinds == {"partitionKey", "vni"}
    stack.hardware[NODES[0]].ports |= {"rdma-npu5-die0": 0.0, "vpc": 0.5, "npu5-die1-p2": 0.0}
    await stack.settle()
    view = await stack.client.fabric_view("a")
    ports = {str(plane): each.nodes[NODES[0]] for plane, each in view.planes.items()}
    assert ports["ub"].endpoint_gbps == [28.0, 28.0, 0.0, 28.0, 28.0, 28.0, 28.0]
    assert (ports["rdma"].uplink_gbps, ports["rdma"].endpoint_gbps) == ([375.0], [12.5])
    assert ports["vpc"].uplink_gbps == [25.0]
    assert await stack.client.fabric_view("nobody") is None


@pytest.mark.parametrize("step", range(5))
async def test_the_service_may_be_restarted_between_any_two_steps(stack, step):
    async def maybe(at):
        if at == step:
            stack.restart()

    await stack.client.admit("a-ub", slice_request(floor_gbps_per_npu=200.0))
    await maybe(0)
    await stack.client.program("a-ub")
    await maybe(1)
    await stack.report()
    await maybe(2)
    await stack.settle()
    await maybe(3)
    with pytest.raises(InsufficientBandwidth):
        await stack.client.admit("b-ub", slice_request(instance="b", floor_gbps_per_npu=200.0))
    stack.hardware[NODES[0]].ports["ub-p3-k11"] = 0.25
    await stack.report()
    await maybe(4)
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.programmed) == ("Degraded", 4)
    await stack.client.withdraw("a-ub")
    await stack.settle()
    assert await stack.client.find_slice("a-ub") is None


async def test_an_agent_restarts_after_a_power_loss(stack):
    await stack.active()
    agent = stack.agents[NODES[0]]
    agent.power_lost()
    agent.restore(agent.memory())
    await stack.report()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.programmed) == ("Programming", 3)
    await stack.settle()
    assert (await stack.client.find_slice("a-ub")).state == "Active"


async def test_a_node_without_uplinks_is_reported_to_have_no_floor(stack):
    await stack.active()
    stack.hardware[NODES[0]].ports |= {f"ub-p{p}-k{k:02d}": 0.0 for p in range(7) for k in range(16)}
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.floor_kept_gbps_per_npu, reported(view, "QosSatisfied")[0]) == ("Degraded", 0.0, "False")
    with pytest.raises(InsufficientBandwidth) as refused:
        await stack.client.admit("b-ub", slice_request(instance="b", floor_gbps_per_npu=1.0))
    assert refused.value.field == "members"
    view = await stack.client.slice_fabric_view("a-ub")
    assert view.planes["ub"].nodes[NODES[0]].uplink_gbps == [0.0] * 7
    assert view.planes["ub"].nodes[NODES[1]].uplink_gbps == [448.0] * 7
    stack.hardware[NODES[0]].ports.clear()
    await stack.settle()
    assert (await stack.client.find_slice("a-ub")).state == "Active"


async def test_generations_held_by_agents_are_superseded_after_a_restore(stack, tmp_path):
    await stack.client.admit("a-ub", slice_request())
    await stack.client.program("a-ub")
    copy = tmp_path / "older.db"
    with stack.database.engine.connect() as connection:
        connection.exec_driver_sql(f"VACUUM INTO '{copy}'")
    for floor in (110.0, 120.0):
        await stack.active(request=slice_request(floor_gbps_per_npu=floor))
    stack.url = f"sqlite:///{copy}"
    stack.restart()
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.floor_gbps_per_npu) == ("Active", 100.0)
    assert stack.agents[NODES[0]].tables("a-ub")["floor_gbps"] == 800.0


async def test_only_stale_reports_are_refused(stack):
    await stack.active()
    old = [agent.report() for agent in stack.agents.values()]
    await stack.report()
    fresh = stack.agents[NODES[1]].report()
    answers = await stack.client.report([old[0], fresh, old[2]])
    assert [(a.accepted, a.reason) for a in answers] == [(False, "StaleReport"), (True, None), (False, "StaleReport")]
    stack.restart()
    earlier_life = old[0].model_copy(update={"epoch": 0, "sequence": 99})
    assert [a.reason for a in await stack.client.report([earlier_life])] == ["StaleReport"]


async def test_a_view_follows_added_and_removed_slices(stack):
    await stack.active()
    first = await stack.client.fabric_view("a")
    for members in (NODES[:2], NODES[:3]):
        await stack.client.admit("a-ub", slice_request(members=members))
        view = await stack.client.fabric_view("a")
        assert sorted(view.planes[Plane.UB].nodes) == members
        assert view.generation > first.generation
        first = view


async def test_a_supernode_is_discovered_by_its_agents_and_forgotten_with_them(stack):
    report, other = stack.agents[NODES[0]].report().wire(), ["sn3-c00-n0", "sn3-c00-n1"]
    refused = await stack.http.put("/v1/slices/far", json=slice_request(members=other).wire())
    assert (refused.status_code, refused.json()["field"]) == (422, "members[0]")
    for node in other:
        answer = await stack.http.post("/v1/link-reports", json={"reports": [report | {"node": node}]})
        assert answer.json()["answers"][0]["accepted"]
    await stack.client.admit("far", slice_request(members=other))
    stack.restart()
    assert (await stack.client.find_slice("far")).members == other
    departed = stack.app.state.watchers["departed"]
    stack.clock.at += 601
    await departed.step()
    assert stack.slice_controller().fabric.has(other[0]), "a slice lies in it"
    await stack.client.withdraw("far")
    await stack.health.step()
    await departed.step()
    assert not stack.slice_controller().fabric.has(other[0])
    assert stack.slice_controller().fabric.has(NODES[0]), "it was started with that one"
    stack.restart()
    assert not stack.slice_controller().fabric.has(other[0])


async def test_lists(stack):
    planes = (await stack.http.get("/v1/planes")).json()["items"]
    assert {p["name"]: p["links"] for p in planes} == {"ub": 12_480, "rdma": 960, "vpc": 48}
    switches = (await stack.http.get("/v1/switches?pageSize=1000&filter=kind=l2")).json()["items"]
    assert len(switches) == 112
    page = (await stack.http.get("/v1/links?plane=vpc&pageSize=10")).json()
    assert len(page["items"]) == 10
    assert "nextPageToken" in page
    assert len(await stack.client.links("ub", NODES[0])) == 260
    query = f"plane=ub&node={NODES[0]}&filter=kind=l1-l2 AND subPlane=3&orderBy=name desc"
    found = (await stack.http.get(f"/v1/links?{query}")).json()["items"]
    assert [link["name"][-3:] for link in found] == [f"k{k:02d}" for k in range(15, -1, -1)]
    stack.hardware[NODES[0]].ports["ub-p3-k11"] = 0.25
    await stack.report()
    links = {link["name"]: link for link in await stack.client.links()}
    assert len(links) == 12_480 + 960 + 48
    assert [(name, link["gbps"]) for name, link in links.items() if link["state"] != "Up"] == [
        (f"{NODES[0]}.ub-p3-k11", 7.0)
    ]
    for name in (f"{NODES[0]}.ub-p3-k11", f"{NODES[0]}.ub-p3-k12", "sn0-c00-leaf0.spine3"):
        one = (await stack.http.get(f"/v1/links/{name}")).json()
        assert {key: value for key, value in one.items() if value is not None} == links[name]
    stack.hardware[NODES[0]].ports.clear()
    await stack.report()
    classes = (await stack.http.get("/v1/qos-classes")).json()["items"]
    assert [c["name"] for c in classes] == ["BestEffort", "Burstable", "Guaranteed"]
    await stack.active()
    routes = (await stack.http.get("/v1/routes?filter=state=Programmed")).json()["items"]
    assert len(routes) == 4
    assert (await stack.http.get(f"/v1/programs/a-ub.{NODES[0]}")).json()["node"] == NODES[0]
