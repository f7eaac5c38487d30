"""What would happen if: the answer is what then happens, nothing changes by asking, and nonsense is refused."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixlink.contract.what_if import WhatIfRequest
from matrixlink.fabric.condition.elements import all_ports, count_by_plane, ports_of
from matrixlink.fabric.condition.fabric import Fabric
from matrixresource.topology import Supernode
from matrixresource.topology.supernode import UnknownPart
from tests.matrixlink.fleet import NODES, slice_request

N0 = NODES[0]


@pytest.mark.parametrize(
    ("element", "ub", "rdma", "vpc"),
    [
        (f"{N0}.ub-p3-k11", 1, 0, 0),
        (f"{N0}.cpu0-p2", 1, 0, 0),
        ("sn0-c00-leaf1.spine4", 0, 1, 0),
        (f"{N0}.ub-p3", 16, 0, 0),
        (f"{N0}-l1p3", 36, 0, 0),
        ("sn0-l2p3-k11", 48, 0, 0),
        ("sn0-c00-leaf1", 0, 8 + 32, 0),
        ("sn0-spine4", 0, 24, 0),
        (N0, 260, 16, 1),
        (f"{N0}-npu5", 15, 2, 0),
        ("sn0-c03", 4 * 260, 4 * 16 + 16, 4),
        ("sn0-c13", 48 * 28, 0, 0),
        ("sn0-c13-bus4", 48 * 2, 0, 0),
        ("sn0-ub-p3", 48 * 36, 0, 0),
        ("sn0-rdma-p1", 0, 12 * 40, 0),
        ("sn0-vpc", 0, 0, 48),
        ("ub", 12_480, 0, 0),
        ("sn0", 12_480, 960, 48),
    ],
)
def test_ports_of_an_element(element, ub, rdma, vpc):
    fabric = Fabric([Supernode()])
    found = count_by_plane(fabric, ports_of(fabric, element))
    assert found == Counter({Plane.UB: ub, Plane.RDMA: rdma, Plane.VPC: vpc})


@pytest.mark.parametrize(
    "element", ["sn1", "sn0-c99", "sn0-l2p9-k00", "sn0-spine9", f"{N0}.ub-p9", f"{N0}.wifi", "wifi", "", f"{N0}-npu9"]
)
def test_an_unknown_element_is_refused(element):
    with pytest.raises(UnknownPart):
        ports_of(Fabric([Supernode()]), element)


def state(stack):
    """All that a question must not change, in memory and in the tables."""
    board = stack.slice_controller()
    promises, fabric = board.promises, board.fabric
    with board.store.reading() as session:
        rows = [row.view().wire() for row in board.store.slices(session)]
        programs = [row.view().wire() for row in board.store.programs(session)]
    ledger = [
        {place: total.tolist() for place, total in book.places()} for book in (promises.ledger, promises.healthy_ledger)
    ]
    ports = {owner: dict(fabric.unavailable_ports(owner)) for owner in fabric.touched()}
    return rows, programs, ledger, ports, board.store.records.latest(), {terms.name: terms for terms in promises.slices}


async def fill_fabric(stack):
    await stack.active("a-ub", slice_request(floor_gbps_per_npu=200.0, protection="anyL2Chip"))
    await stack.active("b-ub", slice_request(instance="b", floor_gbps_per_npu=189.0, members=NODES[:3]))
    await stack.active("c-rdma", slice_request("rdma", instance="c", members=NODES[1:]))
    await stack.active("d-vpc", slice_request("vpc", instance="d", qos_class="BestEffort"))


async def test_a_what_if_predicts_the_loss_of_an_l2_chip(stack):
    await fill_fabric(stack)
    reported = await stack.client.what_if(WhatIfRequest(fail=["sn0-l2p3-k11"]))
    effects = {effect.slice: effect for effect in reported.slices}
    assert set(effects) == {"a-ub", "b-ub"}
    assert (effects["a-ub"].broken, effects["b-ub"].broken, reported.floors_hold) == (False, True, False)
    assert effects["a-ub"].protection_lost.count("would lack room")
    assert effects["b-ub"].kept_before_gbps_per_npu == 189.0
    planes = {str(each.plane): each for each in reported.planes}
    assert (planes["ub"].ports_changed, planes["ub"].slices_rerouted, planes["ub"].floors_broken) == (48, 2, 1)
    assert planes["ub"].protections_lost == 1
    assert planes["rdma"].slices_affected == planes["vpc"].slices_affected == 0
    worst = reported.links_overfull[0]
    assert worst.floors_gbps == pytest.approx(389 * 8 / 111)
    assert worst.link.partition(".")[0] in NODES[:3]
    assert planes["ub"].links_overfull == 3 * 111 + 3 * 16 * 6, "uplinks but the chip's, die links but its sub-plane's"
    for node in stack.hardware.values():
        node.ports["ub-p3-k11"] = 0.0
    await stack.settle()
    for name, effect in effects.items():
        view = await stack.client.find_slice(name)
        assert view.floor_kept_gbps_per_npu == pytest.approx(effect.kept_after_gbps_per_npu)
        assert view.protected is (None if name == "b-ub" else False)
    repaired = await stack.client.what_if(WhatIfRequest(repair=["sn0-l2p3-k11"]))
    after = {effect.slice: effect for effect in repaired.slices}
    assert (after["b-ub"].kept_after_gbps_per_npu, after["b-ub"].broken, repaired.floors_hold) == (189.0, False, True)


async def test_disconnected_members_are_reported_in_pairs(stack):
    await fill_fabric(stack)
    reported = await stack.client.what_if(WhatIfRequest(fail=[N0]))
    effects = {effect.slice: effect for effect in reported.slices}
    assert {(pair.a, pair.b) for pair in effects["a-ub"].cut} == {(N0, other) for other in NODES[1:]}
    assert effects["b-ub"].pairs_cut == 2
    assert [(pair.a, pair.b) for pair in effects["d-vpc"].cut] == [(N0, "*")]
    assert effects["a-ub"].kept_after_gbps_per_npu == 0.0
    assert "c-rdma" not in effects
    whole_cabinet = await stack.client.what_if(WhatIfRequest(fail=["sn0-c00"]))
    assert {effect.slice for effect in whole_cabinet.slices} == {"a-ub", "b-ub", "c-rdma", "d-vpc"}


PARTS = [f"{N0}.ub-p3-k11", "sn0-l2p3-k11", f"{N0}-l1p0", "sn0-c00-leaf0", "sn0-spine3", N0, "sn0-c13", "sn0-ub-p2"]
PARTS += ["rdma", "sn0-rdma-p1", f"{NODES[1]}.vpc"]
some = st.lists(st.sampled_from(PARTS), max_size=2, unique=True)


async def test_a_what_if_changes_nothing(stack):
    await fill_fabric(stack)
    stack.hardware[NODES[1]].ports |= {"ub-p0-k00": 0.0, "rdma-npu5-die0": 0.5}
    await stack.settle()
    before = state(stack)

    @settings(max_examples=30, deadline=None)
    @given(some, some, some)
    def ask(fail, drain, repair):
        from matrixlink.admission.what_if import what_if

        asked = WhatIfRequest(fail=fail, drain=drain, repair=repair)
        if asked == WhatIfRequest():
            with pytest.raises(InvalidField):
                what_if(stack.slice_controller().promises, asked)
        else:
            view = what_if(stack.slice_controller().promises, asked)
            assert all(0 <= each.kept_after_gbps_per_npu <= each.floor_gbps_per_npu for each in view.slices)
        assert state(stack) == before

    ask()


async def test_invalid_what_ifs_are_refused_with_their_field(stack):
    for body, field in [
        ({}, "fail"),
        ({"fail": ["sn0-l2p3-k11", "nonsense"]}, "fail[1]"),
        ({"drain": ["sn9"]}, "drain[0]"),
        ({"repair": [""]}, "repair[0]"),
        ({"break": ["sn0"]}, "break"),
        ({"fail": ["ub"] * 257}, "fail"),
    ]:
        answer = await stack.http.post("/v1/what-ifs", json=body)
        assert (answer.status_code, answer.json().get("field")) == (422, field), answer.text


def test_an_element_named_twice_counts_as_failed():
    from matrixlink.admission.what_if import apply_scenario

    fabric = Fabric([Supernode()])
    fabric.set_ports(N0, {"vpc": 0.0})
    fabric.set_drained({N0: ["ub-p0-k00"]})
    supposed = apply_scenario(fabric, WhatIfRequest(fail=[f"{N0}.ub-p1-k01"], repair=[N0]))
    assert supposed.changed == {N0: {"vpc", "ub-p0-k00", "ub-p1-k01"}}
    assert supposed.fabric.unavailable_ports(N0) == {"ub-p1-k01": 0.0}
    assert fabric.unavailable_ports(N0) == {"vpc": 0.0, "ub-p0-k00": 0.0}
    assert all_ports(fabric, ["ub", "sn0"], "fail").keys() >= {N0}
