"""Shares are max-min fair, never above a link, never below a floor: by tables, and by a certificate on random cases."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fabric_oracles.floor_level import FLOOR_LEVEL, GUARANTEE_PLUS_SHARE, RULES, share
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.flow import Flow
from matrixlink.fabric.sharing.max_min import Overcommitted

AB = {"a": 30, "b": 10}


@pytest.mark.parametrize(
    ("flows", "rates"),
    [
        ([], []),
        ([Flow(("a",))], [30]),
        ([Flow(("a",)), Flow(("a", "b"))], [20, 10]),
        ([Flow(("a",)), Flow(("a", "b")), Flow(("b",))], [25, 5, 5]),
        ([Flow(("a",), weight=2), Flow(("a",))], [20, 10]),
        ([Flow(("a",), ceiling=4), Flow(("a",))], [4, 26]),
        ([Flow(("a",), floor=10), Flow(("a",))], [20, 10]),
        ([Flow((), ceiling=7)], [7]),
        ([Flow(("a", "a"))], [30]),
    ],
)
def test_small_tables(flows, rates):
    assert share(flows, AB) == rates


def test_the_two_rules_differ_only_in_what_a_floor_means():
    flows = [Flow(("a",), floor=20), Flow(("a",))]
    assert share(flows, AB, GUARANTEE_PLUS_SHARE) == [25, 5]
    assert share(flows, AB, FLOOR_LEVEL) == [20, 10]


@pytest.mark.parametrize("rule", RULES)
def test_floors_that_do_not_fit_are_refused_by_link(rule):
    with pytest.raises(Overcommitted) as refused:
        share([Flow(("a", "b"), floor=6), Flow(("b",), floor=5)], AB, rule)
    assert refused.value.links == ["b"]
    assert refused.value.blocking == [{"link": "b", "capacityGbps": 10.0, "floorsGbps": 11.0}]


@pytest.mark.parametrize(
    ("flow", "field"),
    [
        (Flow(("a",), weight=0), "flows[0].weight"),
        (Flow(("a",), weight=-1), "flows[0].weight"),
        (Flow(("a",), weight=math.nan), "flows[0].weight"),
        (Flow(("a",), floor=-1), "flows[0].floor"),
        (Flow(("a",), floor=5, ceiling=4), "flows[0].floor"),
        (Flow(("z",)), "flows[0].links"),
        (Flow(()), "flows[0].links"),
    ],
)
def test_bad_flows_are_refused_with_their_field(flow, field):
    with pytest.raises(InvalidField) as refused:
        share([flow], AB)
    assert refused.value.field == field


def test_an_unknown_rule_is_refused():
    with pytest.raises(InvalidField):
        share([], {}, "first-come")


def certificate(flows, links, rates, rule):
    """The proof of optimality: nothing over, bounds kept, and each flow below its ceiling crosses a full link on which
    nobody above its floor stands higher."""
    load = {key: sum(r for f, r in zip(flows, rates, strict=True) if key in f.links) for key in links}
    for key in links:
        assert load[key] <= links[key]
    plus = rule == GUARANTEE_PLUS_SHARE
    level = [(r - f.floor if plus else r) / f.weight for f, r in zip(flows, rates, strict=True)]
    for f, rate, mine in zip(flows, rates, level, strict=True):
        assert f.floor <= rate <= f.ceiling
        if rate < f.ceiling:
            assert any(
                load[key] == links[key]
                and all(
                    level[g] <= mine or (not plus and rates[g] == flows[g].floor)
                    for g in range(len(flows))
                    if key in flows[g].links
                )
                for key in f.links
            )


small = st.integers(1, 12).map(Fraction)
ceilings = st.one_of(st.just(math.inf), small)


@st.composite
def problems(draw):
    links = {key: draw(st.integers(0, 40).map(Fraction)) for key in range(draw(st.integers(1, 6)))}
    flows = []
    for _ in range(draw(st.integers(1, 10))):
        path = draw(st.lists(st.sampled_from(sorted(links)), min_size=1, max_size=4, unique=True))
        floor = draw(st.sampled_from([Fraction(0), Fraction(0), Fraction(1), Fraction(5, 2)]))
        ceiling = draw(ceilings)
        flows.append(Flow(tuple(path), draw(small), min(floor, ceiling), ceiling))
    return flows, links


@settings(max_examples=200, deadline=None)
@given(problems(), st.sampled_from(RULES))
def test_random_shares_carry_their_certificate(problem, rule):
    flows, links = problem
    booked = {key: sum(f.floor for f in flows if key in f.links) for key in links}
    over = [key for key in links if booked[key] > links[key]]
    if over:
        with pytest.raises(Overcommitted) as refused:
            share(flows, links, rule)
        assert refused.value.links == over
        return
    certificate(flows, links, share(flows, links, rule), rule)


@settings(max_examples=100, deadline=None)
@given(problems(), st.sampled_from(RULES))
def test_floats_agree_with_fractions(problem, rule):
    flows, links = problem
    try:
        exact = share(flows, links, rule)
    except Overcommitted:
        return
    rough = [Flow(f.links, float(f.weight), float(f.floor), float(f.ceiling)) for f in flows]
    found = share(rough, {key: float(capacity) for key, capacity in links.items()}, rule)
    assert found == pytest.approx([float(rate) for rate in exact], rel=1e-9, abs=1e-9)


def test_incast_of_eight_gives_each_an_eighth():
    flows = [Flow((f"up{i}", "down")) for i in range(8)]
    assert share(flows, {**{f"up{i}": 28.0 for i in range(8)}, "down": 28.0}) == [3.5] * 8
