"""Flows follow the tables: paths, rates and the lists of what changed, against everything made anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fabric_traffic.element_events import drain, lost, recovered
from benchmarks.fabric_traffic.table_quality import all_dies, permutations
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.flow import Flow
from matrixlink.fabric.sharing.max_min import share
from matrixlink.forwarding.clos_shape import NONE, ClosShape
from matrixlink.forwarding.element_state import ElementEvent
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixlink.forwarding.live_flows import LiveFlows
from matrixlink.forwarding.path_policies import ECMP, PLANNED, POLICIES, SPRAY, STATIC, Transfers
from tests.matrixlink.forwarding.plain import ReferenceTables, trace_path
from tests.matrixlink.forwarding.test_forwarding import JOINED, ONE, draw_events, repair_events

SMALL = [ONE, JOINED]


def draw_transfers(shape):
    ends = st.integers(0, shape.all_nodes * shape.ends - 1)
    pairs = st.lists(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=12)
    group = st.tuples(pairs, st.sampled_from(POLICIES), st.sampled_from([np.inf, np.inf, 30.0]))
    return st.lists(group, min_size=1, max_size=3)


cases = st.sampled_from(SMALL).flatmap(lambda s: st.tuples(st.just(s), draw_transfers(s), draw_events(s)))


def groups(shape, drawn):
    return {
        f"g{n}": Transfers.of(shape, *map(np.array, zip(*pairs, strict=True)), policy=policy, ceiling=ceiling, seed=n)
        for n, (pairs, policy, ceiling) in enumerate(drawn)
    }


@settings(max_examples=60, deadline=None)
@given(cases)
def test_incremental_flows_equal_rebuilt_ones_and_changes_are_the_difference(case):
    shape, drawn, batches = case
    tables = ForwardingTables(shape)
    flows = LiveFlows(tables)
    flows.put(groups(shape, drawn))
    first, first_rates = flows.path.copy(), flows.rate.copy()
    for batch in [*batches, None]:
        path, rate = flows.path.copy(), flows.rate.copy()
        change = flows.take(tables.take(repair_events(tables) if batch is None else batch))
        anew = LiveFlows(ForwardingTables(shape, tables.condition))
        anew.put(groups(shape, drawn))
        for name in ("path", "weight", "ceiling"):
            assert (getattr(flows, name) == getattr(anew, name)).all()
        assert flows.rate == pytest.approx(anew.rate, rel=1e-9)
        moved = np.flatnonzero((path != flows.path).any(1))
        assert (change.repathed == moved).all()
        assert (change.path_before == path[moved]).all()
        assert (change.path_after == flows.path[moved]).all()
        other = np.flatnonzero(np.abs(flows.rate - rate) > 1e-9 * np.maximum(flows.rate, rate))
        assert (change.rerated == other).all()
        assert (change.rate_after == flows.rate[other]).all()
    assert (flows.path == first).all()
    assert flows.rate == pytest.approx(first_rates, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(cases)
def test_flows_follow_the_tables_and_share_exactly(case):
    shape, drawn, batches = case
    tables = ForwardingTables(shape)
    for batch in batches:
        tables.take(batch)
    plain, flows = ReferenceTables(tables.condition), LiveFlows(tables)
    made = groups(shape, drawn)
    flows.put(made)
    elements = element_of_link(shape)
    for name, transfers in made.items():
        at = flows.flows_of(name)
        ways = (at.stop - at.start) // (len(transfers) * shape.sub_planes)
        for flow in range(at.start, at.stop):
            transfer, plane = divmod((flow - at.start) // ways, shape.sub_planes)
            source, target = int(transfers.source[transfer]), int(transfers.target[transfer])
            crossed = [elements[plane * shape.links + link % shape.links] for link in flows.path[flow] if link != NONE]
            assert all(plain.up(*element) for element in crossed)
            ends_up = all(plain.up("end", plane, end // shape.ends, end % shape.ends) for end in (source, target))
            assert ends_up or not crossed  # an endpoint that is drained is delivered to, but sent nothing new
            if transfers.policy == STATIC and ends_up:
                assert crossed == (trace_path(tables, plane, source, target) or [])
    live = np.flatnonzero(flows.weight > 0)
    assert (flows.rate[flows.weight == 0] == 0).all()
    asked = [
        Flow(tuple(link for link in flows.path[f].tolist() if link != NONE), flows.weight[f], 0, flows.ceiling[f])
        for f in live
    ]
    links = {
        link: shape.built_gbps[link % shape.links] * tables.link_shares.flat[link]
        for link in range(tables.link_shares.size)
    }
    assert flows.rate[live] == pytest.approx([float(r) for r in share(asked, links)], rel=1e-9)


def element_of_link(shape):
    """The element that each directed link is."""
    found = []
    for plane in range(shape.sub_planes):
        for kind in ("end", "cable", "trunk"):
            for _ in ("up", "down"):
                found += [(kind, plane, *at) for at in np.ndindex(shape.sizes[kind][1:])]
    return found


def permutation(policy=STATIC, **more):
    shape = ClosShape()
    return Transfers.of(shape, *permutations(shape, 1, 1)[0], policy=policy, **more)


def test_a_lost_chip_moves_only_its_flows_in_one_sub_plane():
    tables = ForwardingTables(ClosShape())
    flows = LiveFlows(tables)
    flows.put({"p": permutation()})
    assert len(flows) == 5376
    crossing = np.concatenate([flows.over(cable) for cable in cables_of_chip(ClosShape(), 4, 9)])
    change = flows.take(tables.take([lost("l2", 4, 0, 9)]))
    assert set(change.repathed) == set(crossing)
    assert set(flows.plane[change.rerated]) == {4}
    assert not any(len(flows.over(cable)) for cable in cables_of_chip(ClosShape(), 4, 9))
    flows.take(tables.take([recovered("l2", 4, 0, 9)]))
    again = LiveFlows(ForwardingTables(ClosShape()))
    again.put({"p": permutation()})
    assert (flows.rate == again.rate).all()


def cables_of_chip(shape, plane, chip):
    first = plane * shape.links + shape.link_starts["cable-up"]
    return [first + node * shape.chips + chip for node in range(shape.all_nodes)]


def test_a_planned_permutation_shares_no_link():
    flows = LiveFlows(ForwardingTables(ClosShape()))
    flows.put({"p": permutation(PLANNED)})
    assert (flows.rate == 28.0).all()
    assert (flows.by_transfer("p", flows.rate) == 196.0).all()


def test_a_sprayed_transfer_uses_all_remaining_capacity():
    tables = ForwardingTables(ClosShape())
    flows = LiveFlows(tables)
    flows.put({"p": permutation(SPRAY)})
    assert flows.by_transfer("p", flows.rate) == pytest.approx(np.full(768, 196.0))
    flows.take(tables.take([lost("l2", 0, 0, 9)]))
    assert flows.by_transfer("p", flows.rate).min() == pytest.approx(196 * 111 / 112)


def test_the_offer_is_split_by_remaining_capacity_and_never_exceeded():
    shape, tables = ClosShape(), ForwardingTables(ClosShape())
    flows = LiveFlows(tables)
    dies = all_dies(shape)[:32]
    flows.put({"r": Transfers.of(shape, dies, np.roll(dies, 16), ceiling=70.0)})
    assert flows.by_transfer("r", flows.rate) == pytest.approx(np.full(32, 70.0))
    assert flows.rate == pytest.approx(np.full(32 * 7, 10.0))
    change = flows.take(tables.take([lost("l1", 3, 0)]))  # node 0 has six sub-planes left
    assert flows.by_transfer("r", flows.rate) == pytest.approx(np.full(32, 70.0))
    assert set(flows.plane[change.repathed]) == {3}
    assert set(flows.plane[change.rerated]) == set(range(7))
    flows.take(tables.take([lost("l1", plane, 0) for plane in range(7)]))
    assert not flows.rate.any()


def test_a_drained_chip_has_no_flows_and_no_transfer_is_interrupted():
    tables = ForwardingTables(ClosShape())
    flows = LiveFlows(tables)
    flows.put({"p": permutation()})
    lower = flows.take(tables.take([drain("l2", 4, 0, 9)]))
    assert len(lower.repathed)
    assert not any(len(flows.over(cable)) for cable in cables_of_chip(ClosShape(), 4, 9))
    assert (flows.rate > 0).all()


def test_a_degraded_cable_carries_less_and_keeps_its_flows():
    shape, tables = ClosShape(), ForwardingTables(ClosShape())
    flows = LiveFlows(tables)
    dies = all_dies(shape)
    flows.put({"s": Transfers.of(shape, dies, np.roll(dies, 16))})
    change = flows.take(tables.take([ElementEvent("cable", (0, 0, 3), share=0.5)]))
    assert len(change.repathed) == 0
    assert change.rate_after == pytest.approx(np.full(2, 14.0))  # one out of node 0 and one into it


def test_groups_are_added_and_removed():
    tables = ForwardingTables(ClosShape())
    flows = LiveFlows(tables)
    flows.put({"a": permutation(), "b": permutation(ECMP, seed=3)})
    alone = LiveFlows(tables)
    alone.put({"b": permutation(ECMP, seed=3)})
    assert flows.groups == ["a", "b"]
    flows.remove(["a"])
    assert (flows.rate == alone.rate).all()
    with pytest.raises(KeyError):
        flows.remove(["a"])
    flows.remove(["b"])
    assert len(flows) == 0
    assert len(flows.take(tables.take([lost("l2", 0, 0, 1)])).repathed) == 0


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"policy": "luck"}, "routing"), ({"ceiling": 0.0}, "offeredGbps"), ({"source": np.array([960])}, "source"),
     ({"target": np.array([1, 2])}, "target")],
)  # fmt: skip
def test_invalid_transfers_are_refused(wrong, field):
    asked = {"source": np.array([0]), "target": np.array([1])} | wrong
    with pytest.raises(InvalidField) as refused:
        Transfers.of(ClosShape(), **asked)
    assert refused.value.field == field
