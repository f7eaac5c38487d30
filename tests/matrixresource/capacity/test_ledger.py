"""Whatever is asked, lost and brought back: nothing is held twice, rules hold, and the index is what it would be anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from benchmarks.placement import Replay, wish_of
from matrixresource.capacity.index import Index
from matrixresource.capacity.ledger import Ledger
from matrixresource.capacity.shape import Shape
from matrixresource.capacity.wishes import Wish
from tests.matrixresource.capacity.checker import Accountant

TOPOLOGY = {"supernodes": 3, "cabinets": 3, "nodes": 4, "npus": 8, "cpus": 4, "mem_gib": 1536}


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """A request with any rules beside one another."""
    asked: dict[str, Any] = {}
    kind = draw(st.sampled_from(["part", "gang", "partial gang", "pool"]))
    if kind == "part":
        asked["npus"] = draw(st.sampled_from([0.5, 1, 2, 3, 4, 6, 8]))
    elif kind == "gang":
        asked["npus"] = 8 * draw(st.integers(2, 20))
        if draw(st.booleans()):
            asked["block"] = draw(st.sampled_from([16, 32]))
    elif kind == "partial gang":
        asked["per_node"] = draw(st.sampled_from([1, 2, 4]))
        asked["npus"] = asked["per_node"] * draw(st.integers(2, 6))
    if kind == "pool" or draw(st.integers(0, 4)) == 0:
        asked["cpus"] = draw(st.integers(1, 20))
        asked["mem"] = draw(st.integers(1, 9000))
    if draw(st.integers(0, 2)) == 0:
        asked["within"] = draw(st.sampled_from(["cabinet", "supernode"]))
    if asked.get("npus", 0) > 8 and draw(st.integers(0, 2)) == 0:
        asked["spread"] = {"over": "cabinet", "max": draw(st.integers(1, 3))}
    if asked.get("npus", 0) >= 8 and draw(st.integers(0, 2)) == 0:
        asked["spares"] = draw(st.integers(1, 2))
    if draw(st.integers(0, 2)) == 0:
        asked |= {"prio": draw(st.integers(0, 2)), "preempt": True}
    return asked


class Machine(RuleBasedStateMachine):
    """Random life of a small machine, watched by an accountant with a model of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.replay = Replay(TOPOLOGY)
        self.accountant = Accountant(TOPOLOGY)
        self.count = 0
        self.now = 0.0

    def follow(self, event: dict[str, Any]) -> None:
        self.now += 1.0
        event["t"] = self.now
        decisions = list(self.replay.run([event]))
        self.accountant.follow(event, decisions[0] if decisions else {})

    @rule(asked=requests(), near=st.integers(0, 5), key=st.sampled_from(["", "", "near", "apart"]))
    def allocate(self, asked: dict[str, Any], near: int, key: str) -> None:
        living = sorted(self.accountant.live)
        if key and living and asked.get("npus"):
            asked[key] = {"over": "cabinet", {"near": "to", "apart": "from"}[key]: [living[near % len(living)]]}
        self.count += 1
        self.follow({"op": "alloc", "id": f"j{self.count}"} | asked)

    @precondition(lambda self: self.accountant.live)
    @rule(which=st.integers(0, 50))
    def release(self, which: int) -> None:
        living = sorted(self.accountant.live)
        self.follow({"op": "free", "id": living[which % len(living)]})

    @rule(node=st.integers(0, 35))
    def fail(self, node: int) -> None:
        if self.replay.names[node] not in self.accountant.down:
            self.follow({"op": "fail_node", "node": self.replay.names[node]})

    @rule(node=st.integers(0, 35))
    def recover(self, node: int) -> None:
        self.follow({"op": "recover_node", "node": self.replay.names[node]})

    @invariant()
    def nothing_is_held_twice_and_every_rule_holds(self) -> None:
        assert self.accountant.wrong == []
        assert sorted(self.accountant.live) == sorted(self.replay.ledger.held)

    @invariant()
    def the_index_is_what_it_would_be_anew(self) -> None:
        index, anew = self.replay.ledger.index, self.replay.ledger.rebuilt()
        assert index.state() == anew.state()
        assert (index.dies, index.cpus, index.mem) == (anew.dies, anew.cpus, anew.mem)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def held(*npus: float, shape: Shape | None = None) -> Ledger:
    ledger = Ledger(shape or Shape(1, 3, 4))
    for number, wanted in enumerate(npus):
        ledger.allocate(f"h{number}", wish_of({"npus": wanted}, 0.0), 0.0)
    return ledger


@pytest.mark.parametrize(
    ("sentence", "before", "event", "cabinets", "nodes"),
    [
        ("a part joins the node where it fits best", (6, 4), {"npus": 2}, 1, [0]),
        ("a die joins a broken NPU", (0.5, 3), {"npus": 0.5}, 1, [0]),
        ("a gang takes the smallest cabinet that holds it", (8, 8), {"npus": 16}, 1, [2, 3]),
        ("a large gang takes full cabinets and ends in the tightest", (8, 8), {"npus": 48}, 2, None),
        ("spares come from beside the gang", (), {"npus": 16, "spares": 1}, 1, [0, 1]),
        ("spread deals nodes out", (), {"npus": 24, "spread": {"over": "cabinet", "max": 1}}, 3, None),
    ],
)
def test_where_it_lies(sentence: str, before: tuple[float, ...], event: Any, cabinets: int, nodes: Any) -> None:
    ledger = held(*before)
    place, _ = ledger.allocate("new", wish_of(event, 0.0), 0.0)
    assert place is not None, sentence
    assert len(place.cabinets(4)) == cabinets, sentence
    found = [c * 4 + o for c, mask in place.whole for o in ledger.index.offsets(mask)] + [n for n, _ in place.parts]
    assert nodes is None or found == nodes, sentence


def test_preemption_puts_out_the_cheapest_and_nobody_more() -> None:
    ledger = Ledger(Shape(1, 2, 2))
    for name, npus, priority, since in (("old", 16, 0, 0.0), ("young", 8, 0, 90.0), ("high", 8, 5, 95.0)):
        ledger.allocate(name, wish_of({"npus": npus, "prio": priority}, since), since)
    place, evicted = ledger.allocate("vip", wish_of({"npus": 8, "prio": 3, "preempt": True}, 100.0), 100.0)
    assert place is not None
    assert evicted == ["young"]
    assert ledger.allocate("low", wish_of({"npus": 8, "prio": 0, "preempt": True}, 100.0), 100.0) == (None, [])


def test_a_spare_steps_in_and_the_others_stay() -> None:
    ledger = Ledger(Shape(1, 2, 4))
    place, _ = ledger.allocate("gang", wish_of({"npus": 24, "spares": 1}, 0.0), 0.0)
    assert place is not None
    moved, lost = ledger.fail(1)
    assert (lost, list(moved)) == ([], ["gang"])
    assert moved["gang"].whole == [(0, 0b1101)]
    assert moved["gang"].spares == []


def test_a_trial_leaves_no_trace() -> None:
    ledger = held(6, 4, 8, 16)
    before = ledger.index.state() | {"dies": list(ledger.index.dies)}
    for event in ({"npus": 16, "spares": 1}, {"npus": 0.5}, {"npus": 96}, {"npus": 4, "cpus": 3}):
        ledger.choose(wish_of(event, 0.0))
    assert ledger.index.state() | {"dies": list(ledger.index.dies)} == before


def test_a_cabinet_of_many_nodes() -> None:
    """More nodes than the table of masks reaches."""
    ledger = Ledger(Shape(1, 2, 16))
    place, _ = ledger.allocate("a", Wish(13), 0.0)
    assert place is not None
    assert place.whole == [(0, (1 << 13) - 1)]
    assert ledger.index.state() == ledger.rebuilt().state()
    assert isinstance(ledger.rebuilt(), Index)
