"""Who has which nodes of an instance: by table, and by lives drawn at random."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infer_workload.layout.deployment import Pools
from infer_workload.layout.division import NO_POOLS, Claim, divide, entitlements

NODES = [f"n{number:02}" for number in range(12)]


def claim(name, size=None, at=(), nodes_min=None, running=None, **more):
    """One that computes on these nodes, the first third of them for prefill."""
    at = [NODES[number] for number in at]
    reading = max(1, len(at) // 3) if at else 0
    pools = Pools((tuple(at[:reading]),), tuple(at[reading:]), tuple(at)) if at else NO_POOLS
    nodes_min = (2 if at or size is None else size) if nodes_min is None else nodes_min
    return Claim(name, size, nodes_min, pools, running=bool(at) if running is None else running, **more)


@pytest.mark.parametrize(
    ("nodes", "claims", "counts"),
    [
        pytest.param(12, [claim("a", 4)], [12], id="who is alone has all, whatever it asks for"),
        pytest.param(12, [claim("a"), claim("b")], [6, 6], id="without sizes: the same"),
        pytest.param(11, [claim("a"), claim("b")], [6, 5], id="an odd one is the first's"),
        pytest.param(12, [claim("a", 4), claim("b")], [4, 8], id="without a size: what others leave"),
        pytest.param(12, [claim("a"), claim("b", 4)], [8, 4], id="whoever came first"),
        pytest.param(12, [claim("a", at=range(12)), claim("b", 4)], [8, 4], id="and whoever serves"),
        pytest.param(12, [claim("a", 4), claim("b", 4)], [6, 6], id="what nobody asked for lies ready with both"),
        pytest.param(12, [claim("a", 8), claim("b", 8)], [12, 0], id="all or nothing for who has yet to begin"),
        pytest.param(12, [claim("a", 8), claim("b", 8, at=range(8))], [0, 12], id="who serves is not put out"),
        pytest.param(9, [claim("a", 8), claim("b", 8, at=range(8))], [0, 9], id="nor for lack of nodes"),
        pytest.param(12, [claim("a", at=range(12)), claim("b", 11)], [12, 0], id="nor without a size"),
        pytest.param(12, [claim("a", at=range(12)), claim("b", 10)], [2, 10], id="but for all that it does not need"),
        pytest.param(12, [claim("a", at=range(12), kept_min=3), claim("b", 10)], [12, 0], id="or cannot do without"),
        pytest.param(
            12, [claim("a", at=range(12), kept_min=3), claim("b", 9)], [3, 9], id="which is more than to begin"
        ),
        pytest.param(12, [claim("a", kept_min=9), claim("b", 9)], [3, 9], id="and counts once it serves"),
        pytest.param(12, [claim("a", at=range(6), kept_min=99), claim("b")], [6, 6], id="nobody grows by that"),
        pytest.param(12, [claim("a", 0), claim("b")], [0, 12], id="scaled to zero it has none"),
        pytest.param(
            12, [claim("a", 4, at=range(3)), claim("b", at=range(3, 12))], [4, 8], id="what is lost comes back"
        ),
        pytest.param(3, [claim("a", 4, at=[0]), claim("b", at=[1, 2])], [1, 2], id="the rest serve on"),
        pytest.param(5, [claim("a"), claim("b", nodes_min=4)], [5, 0], id="a model that needs more waits for it"),
        pytest.param(0, [claim("a"), claim("b")], [0, 0], id="nothing is there"),
    ],
)
def test_how_many_nodes_each_has(nodes, claims, counts):
    assert list(entitlements(NODES[:nodes], claims).values()) == counts


def test_surplus_nodes_are_handed_over_before_another_has_them():
    first, second = claim("a", at=range(12)), claim("b", 4)
    parts = divide(NODES, [first, second])
    assert parts["a"].nodes == set(NODES), "its requests run there still"
    assert len(parts["a"].yields) == 4
    assert parts["b"].nodes == set()
    pools = first.pools
    left = parts["a"].yields
    smaller = replace(
        first, pools=Pools(pools.prefill, tuple(node for node in pools.decode if node not in left), pools.caching)
    )
    parts = divide(NODES, [smaller, second])
    assert parts["a"].nodes == set(NODES) - left
    assert parts["b"].nodes == left


def test_whole_prefill_instances_and_decode_nodes_are_kept_in_proportion():
    pools = Pools((("p0", "p1"), ("p2", "p3")), tuple(f"d{number}" for number in range(8)), ())
    running = Claim("a", None, 2, pools, running=True)
    parts = divide([*pools.nodes], [running, Claim("b", 6, 6)])
    assert parts["a"].nodes - parts["a"].yields == {"p0", "p1", "d0", "d1", "d2", "d3"}


def test_nothing_is_handed_over_while_something_else_has_to_end():
    parts = divide(NODES, [claim("a", at=range(12), handover_blocked=True), claim("b", 4)])
    assert parts["a"].yields == set()
    going = frozenset(NODES[9:])
    parts = divide(NODES, [claim("a", at=range(12), handover_blocked=True, yields=going), claim("b", 4)])
    assert parts["a"].yields == going, "what is handed over stays so"


def test_leaving_nodes_are_assigned_to_nobody_and_replaced():
    parts = divide(NODES, [claim("a", 4, at=range(4)), claim("b", 4, at=range(4, 8))], leaving=NODES[:4])
    assert parts["a"].nodes > set(NODES[:4]), "it has them until they are gone, and others beside"
    assert len(parts["a"].nodes - set(NODES[:4])) == 4
    parts = divide(NODES, [claim("a", 4, at=range(4, 8)), claim("b")], leaving=NODES[:4])
    assert parts["b"].nodes == set(NODES[8:])


def test_nodes_claimed_twice_belong_to_the_first_claim():
    """As those of a version were that had all deployments on all nodes."""
    both = [claim("a", at=range(12), running=False), claim("b", at=range(12), running=False)]
    parts = divide(NODES, both)
    assert [len(parts[name].nodes) for name in "ab"] == [6, 6]
    assert not parts["a"].nodes & parts["b"].nodes


def test_a_loading_deployment_swaps_no_nodes_with_others():
    assigned = frozenset(NODES[8:10])
    claims = [claim("a", 5, at=range(4)), claim("b", at=range(4, 8), assigned=assigned)]
    parts = divide(NODES, claims)
    assert assigned <= parts["b"].nodes


def test_a_successor_belongs_to_the_deployment_of_its_predecessor():
    """As all of an instance moves: both have theirs beside their own, and nobody grows into the other's."""
    members, successors = NODES[:6], NODES[6:]
    follows = dict(zip(successors, members, strict=True))
    claims = [claim("a", 4, at=range(4)), claim("b", at=(4, 5))]
    for leaving in [], members:
        parts = divide(NODES, claims, leaving, follows)
        assert parts["a"].nodes == {*members[:4], *successors[:4]}
        assert parts["b"].nodes == {*members[4:], *successors[4:]}
        assert not parts["a"].yields | parts["b"].yields
    parts = divide(NODES[:7], claims, NODES[:1], {NODES[6]: NODES[0]})
    assert parts["a"].nodes == {*members[:4], NODES[6]}
    assert not parts["b"].yields, "who has a successor lacks nothing"
    smaller = divide(NODES, [claim("a", 1, at=range(4)), claim("b", 8, at=(4, 5))], NODES[:2], follows)
    assert smaller["a"].yields == {*NODES[2:4]}, "its two successors are more than it asks for"
    over = divide(successors, [claim("a", 4, at=range(6, 10)), claim("b", at=(10, 11))])
    assert [len(over[name].nodes) for name in "ab"] == [4, 2], "and so it is afterwards"


sizes = st.one_of(st.none(), st.integers(0, 8))
events = st.lists(
    st.tuples(
        st.sampled_from(["ask", "end", "resize", "lose", "join", "drain", "undrain", "restart", "play"]),
        st.integers(0, 11),
        sizes,
    ),
    max_size=40,
)


class DivisionModel:
    """Deployments that use what they are given at once, and hand over what they are to when told to `play`."""

    def __init__(self):
        self.nodes, self.leaving, self.claims, self.asked = set(NODES), set(), {}, 0

    def apply_event(self, kind, number, size):
        node, names = NODES[number], list(self.claims)
        name = names[number % len(names)] if names else ""
        if kind == "ask" and len(names) < 4:
            self.asked += 1
            self.claims[f"d{self.asked}"] = claim(f"d{self.asked}", size)
        elif kind == "end" and names:
            del self.claims[name]
        elif kind == "resize" and names:
            before = self.claims[name]
            nodes_min = 2 if size is None or before.pools.nodes else size
            self.claims[name] = replace(before, size=size, nodes_min=nodes_min)
        elif kind in ("lose", "join"):
            (self.nodes.discard if kind == "lose" else self.nodes.add)(node)
        elif kind in ("drain", "undrain"):
            (self.leaving.add if kind == "drain" else self.leaving.discard)(node)
        elif kind == "restart":
            self.claims = {each: replace(there, running=False) for each, there in self.claims.items()}
        self.settle(play=kind == "play")

    def settle(self, play):
        if not self.claims:
            return
        before = {name: set(each.pools.nodes) for name, each in self.claims.items()}
        parts = divide(self.nodes, list(self.claims.values()), self.leaving)
        given = [node for part in parts.values() for node in part.nodes]
        assert len(given) == len(set(given)), "no node is two deployments'"
        assert set(given) <= self.nodes
        for name, part in parts.items():
            there = self.claims[name]
            assert part.yields <= part.nodes & there.pools.nodes
            if there.running:
                assert before[name] & self.nodes <= part.nodes, "nobody is put out of where it computes"
                stays = (part.nodes - part.yields) & self.nodes - self.leaving
                could = before[name] & self.nodes - self.leaving
                assert len(stays) >= min(there.desired, len(could)), "nor of what it asked for"
            self.claims[name] = self.updated_claim(there, part, play)

    def updated_claim(self, there, part, play):
        nodes = part.nodes - (part.yields if play else set())
        if there.size is not None:  # what nobody asked for lies ready
            most = sorted(nodes, key=lambda node: (node not in there.pools.nodes, node))
            nodes = set(most[: max(there.size, len(nodes & there.pools.nodes) if not play else there.size)])
        if len(nodes) < there.nodes_min and not (there.running and nodes):
            return replace(there, pools=NO_POOLS, running=False)
        decode = sorted(nodes)
        pools = Pools((tuple(decode[:1]),), tuple(decode[1:]), ()) if decode else NO_POOLS
        return replace(there, pools=pools, running=bool(decode), nodes_min=2 if decode else there.nodes_min)


@given(events)
def test_no_node_belongs_to_two_deployments_and_all_converge(events_drawn):
    model = DivisionModel()
    for event in events_drawn:
        model.apply_event(*event)
    for _ in range(8):
        model.settle(play=True)
    if model.claims:
        due = entitlements(model.nodes, list(model.claims.values()), model.leaving)
        parts = divide(model.nodes, list(model.claims.values()), model.leaving)
        alone = len(due) == 1
        assert {name: len(part.nodes - (set() if alone else model.leaving)) for name, part in parts.items()} == {
            name: len(model.nodes) if alone else count for name, count in due.items()
        }
        assert not any(part.yields for part in parts.values())
