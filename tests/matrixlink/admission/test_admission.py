"""Floors stay within what every link has: by table, and through any sequence of specs, losses and repairs."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from matrixcommon.model.errors import InsufficientBandwidth
from matrixcommon.model.planes import Plane
from matrixlink.admission.admission import BandwidthRequest, admit, reallocate
from matrixlink.admission.bandwidth_ledger import BandwidthLedger
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.model.protection import Protection
from matrixlink.routing.routes import BandwidthNeeds
from matrixlink.routing.routing import choose_needs
from matrixresource.topology import Supernode
from tests.matrixlink.machine import overcommitted_links

NODE = "sn0-c00-n0"
A, B = (f"{NODE}.rdma-npu0-die{die}" for die in range(2))


def make_need(a=1.0, b=0.0):
    """What one GB/s takes of the first two RDMA ports of a node."""
    return {NODE: np.array([a, b] + [0.0] * 14)}


def make_request(owner, floor, need=None, **more):
    need = need or make_need()
    return BandwidthRequest(owner, Plane.RDMA, BandwidthNeeds(need, need, **more.pop("cuts", {})), floor, **more)


def make_ledger(a=10.0, b=10.0):
    """A book over two ports of such rates; the fabric is there for names alone."""
    rates = np.array([a, b] + [25.0] * 14)
    return BandwidthLedger(Fabric([Supernode()]), lambda plane, owner: rates), rates


@pytest.mark.parametrize(("floor", "fits"), [(10.0, True), (10.1, False), (0.0, True)])
def test_a_floor_fits_or_does_not(floor, fits):
    book, _ = make_ledger()
    claim = make_request("s", floor, make_need(1.0, 0.5))
    if fits:
        book.put("s", admit(book, claim))
        assert book.reserved("s") == ({A: floor, B: floor / 2} if floor else {})
    else:
        with pytest.raises(InsufficientBandwidth) as refused:
            admit(book, claim)
        assert refused.value.blocking[0] == {"plane": "rdma", "links": 1, "fitsFloorGbpsPerNpu": pytest.approx(10)}
        assert refused.value.blocking[1]["link"] == A


def test_a_resize_counts_the_current_booking_as_free():
    book, _ = make_ledger()
    book.put("s", make_request("s", 8.0).booking())
    book.put("s", admit(book, make_request("s", 10.0)))
    assert book.booked(A) == 10.0
    with pytest.raises(InsufficientBandwidth) as refused:
        admit(book, make_request("t", 3.0))
    assert refused.value.blocking[1]["owners"] == ["s"]


def test_the_higher_class_keeps_its_floor_when_a_link_is_lost():
    book, _ = make_ledger(a=6.0)
    kept = reallocate(book, [make_request("late", 5.0, rank=(1, 1)), make_request("good", 5.0, rank=(0, 2))])
    assert {name: each.part for name, each in kept.items()} == {"good": 1.0, "late": pytest.approx(0.2)}
    assert overcommitted_links(book) == []


def test_a_dead_link_removes_the_floor_until_repaired():
    book, rates = make_ledger(a=0.0)
    assert reallocate(book, [make_request("s", 5.0)])["s"].part == 0.0
    rates[0] = 10.0
    assert reallocate(book, [make_request("s", 5.0)])["s"].part == 1.0
    assert book.booked(A) == 5.0


def test_a_lost_link_does_not_affect_floors_on_other_links():
    book, _ = make_ledger(a=1.0)
    assert reallocate(book, [make_request("s", 5.0, make_need(1.0, 1.0))])["s"].part == pytest.approx(0.2)
    assert (book.booked(A), book.booked(B)) == (1.0, 5.0)


def test_a_link_overcommitted_by_lost_capacity_is_named():
    book, rates = make_ledger()
    book.put("s", admit(book, make_request("s", 8.0)))
    rates[0] = 5.0
    assert overcommitted_links(book) == [A]


def test_a_floor_between_unreachable_members_is_refused():
    claim = make_request("s", 5.0, cuts={"cut": (("m", "n"),), "cut_by_failure": (("m", "n"),)})
    with pytest.raises(InsufficientBandwidth) as refused:
        admit(make_ledger()[0], claim)
    assert refused.value.blocking == [{"plane": "rdma", "from": "m", "to": "n", "freeGbps": 0.0}]
    assert reallocate(make_ledger()[0], [claim])["s"].part == 0.0


def test_a_full_fabric_accepts_exactly_its_capacity():
    fabric = Fabric([Supernode()])
    book = BandwidthLedger(fabric, fabric.usable_rates)
    for plane, most in ((Plane.UB, 392.0), (Plane.RDMA, 50.0), (Plane.VPC, 6.25)):
        needs = choose_needs(fabric, plane, fabric.nodes())
        book.put(plane, admit(book, BandwidthRequest(plane, plane, needs, most)))
        with pytest.raises(InsufficientBandwidth):
            admit(book, BandwidthRequest("more", plane, needs, 0.001))
    assert overcommitted_links(book) == []


def test_released_bookings_leave_no_trace():
    fabric = Fabric([Supernode()])
    book = BandwidthLedger(fabric, fabric.usable_rates)
    needs = choose_needs(fabric, Plane.UB, fabric.nodes())
    for turn in range(50):
        book.put(f"s{turn % 7}", BandwidthRequest("s", Plane.UB, needs, 0.1 * (turn % 11)).booking())
    for name in sorted(book.names()):
        book.release(name)
    assert list(book.places()) == []


NODES = [f"sn0-c00-n{n}" for n in range(4)]
PORTS = ["ub-p0-k00", "ub-p0-k01", "ub-p3-k11", "npu5-die1-p2", "ub-p6-k15"]


class FloorsMachine(RuleBasedStateMachine):
    """Slices come, change and go while ports fail and return, as the slice controller does it."""

    def __init__(self):
        super().__init__()
        self.fabric = Fabric([Supernode()])
        self.book = BandwidthLedger(self.fabric, self.fabric.usable_rates)
        self.healthy_ledger = BandwidthLedger(self.fabric, lambda plane, owner: self.fabric.whole(plane))
        self.specs = {}

    def claim(self, name, members, floor, level, fabric=None):
        needs = choose_needs(fabric or self.fabric, Plane.UB, members, level)
        return BandwidthRequest(name, Plane.UB, needs, floor, level, (name,))

    @rule(
        name=st.sampled_from("stuvw"),
        members=st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True),
        floor=st.sampled_from([0.0, 10.0, 100.0, 196.0, 392.0]),
        level=st.sampled_from([Protection.NONE, Protection.ANY_L2_CHIP, Protection.ANY_SUB_PLANE]),
    )
    def spec(self, name, members, floor, level):
        try:
            booked = admit(self.book, self.claim(name, members, floor, level))
            healthy_ledger = admit(self.healthy_ledger, self.claim(name, members, floor, level, self.fabric.as_built()))
        except InsufficientBandwidth:
            return
        self.book.put(name, booked)
        self.healthy_ledger.put(name, healthy_ledger)
        self.specs[name] = (members, floor, level)

    @rule(name=st.sampled_from("stuvw"))
    def withdraw(self, name):
        self.book.release(name)
        self.healthy_ledger.release(name)
        self.specs.pop(name, None)

    @rule(node=st.sampled_from(NODES), ports=st.dictionaries(st.sampled_from(PORTS), st.sampled_from([0.0, 7.0, 14.0])))
    def lose_or_repair(self, node, ports):
        self.fabric.set_ports(node, ports)
        kept = reallocate(
            self.book, [self.claim(name, *request) for name, request in self.specs.items()], self.healthy_ledger
        )
        if not any(self.fabric.degraded_ports(each) for each in NODES):
            assert all((each.part, each.unprotected) == (1.0, "") for each in kept.values())

    @invariant()
    def no_link_is_promised_beyond_what_it_has(self):
        assert overcommitted_links(self.book) == []
        assert overcommitted_links(self.healthy_ledger) == []


TestFloors = FloorsMachine.TestCase
TestFloors.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
