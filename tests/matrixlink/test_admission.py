"""Floors stay within what every link has: by table, and through any sequence of wishes, losses and repairs."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from matrixlink.admission import FloorClaim, admit, regrant
from matrixlink.fabric.link import Fabric
from matrixlink.fabric.reservations import Ledger
from matrixlink.routing import choose_routes
from matrixresource.topology import Supernode
from matrixresource.vocabulary.errors import InsufficientBandwidth
from matrixresource.vocabulary.planes import Plane

NEED = {"a": 1.0, "b": 0.5}


def a_ledger(**capacity):
    return Ledger(lambda link: {"a": 10.0, "b": 10.0, **capacity}[link])


@pytest.mark.parametrize(("floor", "fits"), [(10.0, True), (10.1, False), (0.0, True)])
def test_a_floor_fits_or_does_not(floor, fits):
    ledger = a_ledger()
    claim = FloorClaim("s", "ub", NEED, floor)
    if fits:
        assert admit(ledger, claim) == {link: part * floor for link, part in NEED.items() if floor}
    else:
        with pytest.raises(InsufficientBandwidth) as refused:
            admit(ledger, claim)
        assert refused.value.blocking[0] == {
            "plane": "ub",
            "links": 1,
            "fitsFloorGbpsPerNpu": pytest.approx(10, abs=1e-4),
        }
        assert refused.value.blocking[1]["link"] == "a"


def test_a_resize_counts_what_is_held_as_given_back():
    ledger = a_ledger()
    ledger.put("s", {"a": 8.0})
    assert admit(ledger, FloorClaim("s", "ub", {"a": 1.0}, 10.0)) == {"a": 10.0}
    with pytest.raises(InsufficientBandwidth):
        admit(ledger, FloorClaim("t", "ub", {"a": 1.0}, 3.0))


def test_the_better_class_keeps_its_floor_when_a_link_is_lost():
    ledger = a_ledger(a=6.0)
    claims = [
        FloorClaim("late", "ub", {"a": 1.0}, 5.0, rank=(1, 1)),
        FloorClaim("good", "ub", {"a": 1.0}, 5.0, rank=(0, 2)),
    ]
    assert regrant(ledger, claims) == {"good": 1.0, "late": pytest.approx(0.2, abs=1e-5)}
    assert ledger.overbooked() == []


def test_a_dead_link_takes_the_whole_floor_and_gives_it_back():
    capacity = {"a": 0.0}
    ledger = Ledger(capacity.__getitem__)
    claim = FloorClaim("s", "ub", {"a": 1.0}, 5.0)
    assert regrant(ledger, [claim]) == {"s": 0.0}
    capacity["a"] = 10.0
    assert regrant(ledger, [claim]) == {"s": 1.0}
    assert ledger.booked("a") == 5.0


def test_a_lost_link_leaves_the_other_links_floors_alone():
    ledger = a_ledger(a=1.0)
    assert regrant(ledger, [FloorClaim("s", "ub", {"a": 1.0, "b": 1.0}, 5.0)]) == {"s": pytest.approx(0.2)}
    assert (ledger.booked("a"), ledger.booked("b")) == (1.0, 5.0)


def test_no_floor_between_members_that_cannot_reach_each_other():
    claim = FloorClaim("s", "ub", NEED, 5.0, cut=(("m", "n"),))
    with pytest.raises(InsufficientBandwidth) as refused:
        admit(a_ledger(), claim)
    assert refused.value.blocking == [{"plane": "ub", "from": "m", "to": "n", "freeGbps": 0.0}]
    assert regrant(a_ledger(), [claim]) == {"s": 0.0}


def test_a_full_fabric_takes_exactly_its_capacity():
    fabric = Fabric([Supernode()])
    ledger = Ledger(lambda link: fabric.capacity(str(link)))
    for plane, most in ((Plane.UB, 392.0), (Plane.RDMA, 50.0), (Plane.VPC, 6.25)):
        routes = choose_routes(fabric, plane, fabric.nodes())
        assert ledger.book(plane, admit(ledger, FloorClaim(plane, plane, routes.need, most))) == []
        with pytest.raises(InsufficientBandwidth):
            admit(ledger, FloorClaim("more", plane, routes.need, 0.001))
    assert ledger.overbooked() == []


NODES = [f"sn0-c00-n{n}" for n in range(4)]
PORTS = ["ub-p0-k00", "ub-p0-k01", "ub-p3-k11", "npu5-die1-p2", "ub-p6-k15"]


class Floors(RuleBasedStateMachine):
    """Slices come, change and go while ports fail and return, as the switchboard does it."""

    def __init__(self):
        super().__init__()
        self.fabric = Fabric([Supernode()])
        self.ledger = Ledger(lambda link: self.fabric.capacity(str(link)))
        self.wishes = {}

    def claim(self, name, members, floor):
        return FloorClaim(name, "ub", choose_routes(self.fabric, Plane.UB, members).need, floor, rank=(name,))

    @rule(
        name=st.sampled_from("stuvw"),
        members=st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True),
        floor=st.sampled_from([0.0, 10.0, 100.0, 196.0, 392.0]),
    )
    def wish(self, name, members, floor):
        try:
            booked = admit(self.ledger, self.claim(name, members, floor))
        except InsufficientBandwidth:
            return
        self.ledger.put(name, booked)
        self.wishes[name] = (members, floor)

    @rule(name=st.sampled_from("stuvw"))
    def withdraw(self, name):
        self.ledger.release(name)
        self.wishes.pop(name, None)

    @rule(node=st.sampled_from(NODES), ports=st.dictionaries(st.sampled_from(PORTS), st.sampled_from([0.0, 7.0, 14.0])))
    def lose_or_repair(self, node, ports):
        self.fabric.set_ports(node, ports)
        kept = regrant(self.ledger, [self.claim(name, *wish) for name, wish in self.wishes.items()])
        if not any(self.fabric.below(each) for each in NODES):
            for name, part in kept.items():
                assert part == 1.0 or self.wishes[name][1] == 0.0

    @invariant()
    def no_link_is_promised_beyond_what_it_has(self):
        assert self.ledger.overbooked() == []


TestFloors = Floors.TestCase
TestFloors.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
