"""Drains: make before break, refused where a floor would break, Drained only when every agent says so, through crashes;
newcomers keep off; faults and drains compose; what is put back is used again."""

import pytest

from matrixcommon.model.errors import InsufficientBandwidth
from matrixresource.topology import Supernode
from matrixresource.topology.deviations import Deviation
from tests.matrixlink.fleet import NODES, slice_request

CHIP = "sn0-l2p3-k11"
N0 = NODES[0]


async def put(stack, name="d1", elements=(CHIP,), code=200, query="", **more):
    answer = await stack.http.put(f"/v1/drains/{name}{query}", json={"elements": list(elements), **more})
    assert answer.status_code == code, answer.text
    return answer.json()


async def get(stack, name="d1"):
    return (await stack.http.get(f"/v1/drains/{name}")).json()


def uses_port(stack, port, name="a-ub"):
    """The agents whose tables send something over a port of their own, or to a peer over its port of that name."""
    plane, k = int(port[4]), int(port[7:])
    found = []
    for node, agent in stack.agents.items():
        tables = agent.tables(name)
        ways = [tables["detours"].get(peer, tables["stripes"]) for peer in tables["peers"]] if tables else []
        shares = [
            (stripe["spread"] or [1 / 16] * 16)[k] * stripe["weight"]
            for way in ways
            for stripe in way
            if stripe["sub_plane"] == plane
        ]
        if any(shares):
            found.append(node)
    return found


async def test_a_drain_is_make_before_break(stack):
    await stack.active()
    view = await put(stack, reason="optics")
    assert (view["state"], view["waitingFor"], view["ports"], view["reason"]) == ("Draining", 4, 48, "optics")
    assert (await stack.client.find_slice("a-ub")).state == "Rerouting"
    assert len(uses_port(stack, "ub-p3-k11")) == 4, "agents forward as they did until they have the new routes"
    link = (await stack.http.get(f"/v1/links/{N0}.ub-p3-k11")).json()
    assert (link["drained"], link["gbps"], link["state"]) == (True, 28.0, "Up")
    with stack.quiet(NODES[3]):
        await stack.settle()
        view = await get(stack)
        assert (view["state"], view["waitingFor"]) == ("Draining", 1)
        assert f"a-ub.{NODES[3]}" in view["message"]
        assert uses_port(stack, "ub-p3-k11") == [NODES[3]]
    await stack.settle()
    view = await get(stack)
    assert (view["state"], view["waitingFor"]) == ("Drained", 0)
    assert uses_port(stack, "ub-p3-k11") == []
    found = await stack.client.find_slice("a-ub")
    assert (found.state, found.floor_kept_gbps_per_npu) == ("Active", 100.0)
    assert next(each for each in found.conditions if each.type == "Degraded").reason == "LinksDrained"


async def test_ending_a_drain_restores_the_original_routes(stack):
    await stack.active()
    before = {node: agent.tables("a-ub")["stripes"] for node, agent in stack.agents.items()}
    await put(stack)
    await stack.settle()
    assert {node: agent.tables("a-ub")["stripes"] for node, agent in stack.agents.items()} != before
    assert (await stack.http.delete("/v1/drains/d1")).status_code == 204
    await stack.settle()
    assert {node: agent.tables("a-ub")["stripes"] for node, agent in stack.agents.items()} == before
    assert (await stack.client.find_slice("a-ub")).state == "Active"
    assert (await stack.http.get("/v1/drains/d1")).status_code == 404
    assert (await stack.http.delete("/v1/drains/d1")).status_code == 404


async def test_a_repeated_drain_changes_nothing_and_other_elements_do(stack):
    await stack.active()
    await put(stack)
    await stack.settle()
    first = await get(stack)
    assert (await put(stack))["etag"] == first["etag"]
    changed = await put(stack, elements=[f"{N0}.ub-p0"])
    assert (changed["state"], changed["ports"], changed["generation"]) == ("Draining", 16, 2)
    await stack.settle()
    assert (await get(stack))["state"] == "Drained"
    assert set(uses_port(stack, "ub-p3-k11")) == set(NODES)
    assert uses_port(stack, "ub-p0-k05") != [], "others still use that sub-plane among themselves"
    tables = stack.agents[N0].tables("a-ub")
    assert {stripe["sub_plane"] for stripe in tables["stripes"]} == set(range(1, 7))


async def test_a_drain_that_would_break_floors_is_refused_with_the_slices_unless_forced(stack):
    await stack.active(request=slice_request(floor_gbps_per_npu=390.0))
    before = await stack.client.find_slice("a-ub")
    refused = await put(stack, code=409)
    assert refused["reason"] == "InsufficientBandwidth"
    assert refused["blocking"][0] == {
        "plane": "ub", "slice": "a-ub", "floorGbpsPerNpu": 390.0, "keptGbpsPerNpu": 390.0,
        "wouldKeepGbpsPerNpu": 388.5, "pairsCut": 0,
    }  # fmt: skip
    assert (await put(stack, code=409, query="?validateOnly=true"))["reason"] == "InsufficientBandwidth"
    assert await stack.client.find_slice("a-ub") == before
    assert (await stack.http.get("/v1/drains")).json()["items"] == []
    await put(stack, evenIfFloorsBreak=True)
    await stack.settle()
    view = await stack.client.find_slice("a-ub")
    assert (view.state, view.floor_kept_gbps_per_npu) == ("Degraded", 388.5)
    assert (await get(stack))["state"] == "Drained"
    await stack.http.delete("/v1/drains/d1")
    await stack.settle()
    assert (await stack.client.find_slice("a-ub")).floor_kept_gbps_per_npu == 390.0


async def test_a_drain_that_would_cut_members_off_is_refused_even_without_floors(stack):
    await stack.active(request=slice_request(qos_class="BestEffort"))
    refused = await put(stack, elements=[N0], code=409)
    assert refused["blocking"][0]["pairsCut"] == 3


async def test_validate_only_shows_what_if_and_changes_nothing(stack):
    await stack.active()
    view = await put(stack, query="?validateOnly=true")
    assert view["whatIf"]["floorsHold"] is True
    assert [effect["slice"] for effect in view["whatIf"]["slices"]] == ["a-ub"]
    assert (await stack.http.get("/v1/drains")).json()["items"] == []
    assert (await stack.client.find_slice("a-ub")).state == "Active"
    assert stack.slice_controller().fabric.touched() == set()


async def test_new_slices_avoid_drained_elements(stack):
    await put(stack)
    await stack.carry()
    assert (await get(stack))["state"] == "Drained", "nothing crossed it"
    with pytest.raises(InsufficientBandwidth, match=rf"; of the members' ports, 4 ports drained by d1 \({CHIP}\)$"):
        await stack.client.admit("a-ub", slice_request(floor_gbps_per_npu=389.0))
    await stack.active(request=slice_request(floor_gbps_per_npu=388.0))
    assert uses_port(stack, "ub-p3-k11") == []


async def test_a_refused_floor_on_a_drained_node_names_the_drain(stack):
    await put(stack, name="later", elements=["sn0-c11-n3"])
    await put(stack, elements=[N0])
    stack.hardware[NODES[1]].ports = {"ub-p3-k11": 0.0}
    await stack.settle()
    with pytest.raises(InsufficientBandwidth) as refused:
        await stack.client.admit("a-ub", slice_request(floor_gbps_per_npu=10.0))
    ports = "ports drained by d1 (sn0-c00-n0) and 1 port below the built rate"
    assert refused.value.message.startswith("3 pairs of members cannot reach each other on plane ub; of the members'")
    assert refused.value.message.endswith(ports)
    pairs = [(each["from"], each["to"]) for each in refused.value.blocking]
    assert pairs == [(N0, other) for other in NODES[1:4]], "each pair once"


async def test_faults_and_drains_compose(stack):
    await stack.active()
    await put(stack)
    await put(stack, "d2", elements=[CHIP, "sn0-l2p4-k00"])
    for node in stack.hardware.values():
        node.ports |= {"ub-p3-k11": 0.0, "ub-p5-k05": 0.0}
    await stack.settle()
    assert (await stack.client.find_slice("a-ub")).state == "Degraded"
    await stack.http.delete("/v1/drains/d1")
    await stack.settle()
    assert uses_port(stack, "ub-p3-k11") == uses_port(stack, "ub-p4-k00") == uses_port(stack, "ub-p5-k05") == []
    await stack.http.delete("/v1/drains/d2")
    await stack.settle()
    assert uses_port(stack, "ub-p3-k11") == [], "it is in service again, and broken"
    assert len(uses_port(stack, "ub-p4-k00")) == 4
    for node in stack.hardware.values():
        node.ports.clear()
    await stack.settle()
    assert len(uses_port(stack, "ub-p3-k11")) == 4


@pytest.mark.parametrize("step", range(4))
async def test_the_service_may_be_restarted_between_any_two_steps(stack, step):
    def maybe(at):
        if at == step:
            stack.database.close()
            stack.restart()

    await stack.active()
    await put(stack)
    maybe(0)
    await stack.report()
    maybe(1)
    await stack.work()
    maybe(2)
    await stack.settle()
    maybe(3)
    assert (await get(stack))["state"] == "Drained"
    assert uses_port(stack, "ub-p3-k11") == []
    await stack.client.withdraw("a-ub")
    await stack.settle()
    assert (await get(stack))["state"] == "Drained"


async def test_a_changed_slice_that_is_not_programmed_yet_delays_a_drain(stack):
    await stack.active(request=slice_request(floor_gbps_per_npu=50.0))
    await stack.client.admit("a-ub", slice_request(floor_gbps_per_npu=60.0))
    await put(stack)
    await stack.settle()
    assert (await get(stack))["state"] == "Draining"
    await stack.client.program("a-ub")
    await stack.settle()
    assert (await get(stack))["state"] == "Drained"


async def test_a_drain_of_an_rdma_leaf_and_a_spine(stack):
    await stack.active("a-rdma", slice_request("rdma", floor_gbps_per_npu=20.0))
    view = await put(stack, elements=["sn0-c00-leaf0"])
    assert (view["state"], view["ports"]) == ("Draining", 40)
    await stack.settle()
    assert (await get(stack))["state"] == "Drained"
    tables = stack.agents[N0].tables("a-rdma")
    assert {stripe["sub_plane"] for way in tables["detours"].values() for stripe in way} == {1}
    await put(stack, "d2", elements=["sn0-spine0"])
    await stack.carry()
    assert (await get(stack, "d2"))["state"] == "Drained", "all members are in one cabinet: nothing crosses a spine"


async def test_drains_are_listed_watched_and_refused_with_their_field(stack):
    await put(stack)
    listed = (await stack.http.get("/v1/drains")).json()
    assert [each["name"] for each in listed["items"]] == ["d1"]
    for body, field in [
        ({"elements": []}, "elements"),
        ({"elements": ["sn0-l2p9-k00"]}, "elements[0]"),
        ({"elements": [CHIP], "colour": 1}, "colour"),
        ({}, "elements"),
    ]:
        answer = await stack.http.put("/v1/drains/d9", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, field)
    answer = await stack.http.put("/v1/drains/No", json={"elements": [CHIP]})
    assert answer.json()["field"] == "name"
    answer = await stack.http.put("/v1/drains/d1", json={"elements": ["vpc"]}, headers={"If-Match": '"0"'})
    assert answer.status_code == 412


async def test_a_drain_of_a_switch_follows_moved_cables(stack):
    await stack.active()
    await put(stack)
    await stack.settle()
    there, away = f"{N0}.ub-p3-k12", f"{NODES[1]}.ub-p3-k11"
    drawn = Supernode().with_deviations(
        [Deviation("CableMoved", there, CHIP), Deviation("CableMoved", away, "sn0-l2p3-k12")]
    )
    assert stack.slice_controller().promises.apply_topology(drawn)
    await stack.settle()
    drained = {link: (await stack.http.get(f"/v1/links/{link}")).json()["drained"] for link in (there, away)}
    assert drained == {there: True, away: False}
    assert (await get(stack))["ports"] == 48
    assert N0 not in uses_port(stack, "ub-p3-k12")
