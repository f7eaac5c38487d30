"""Arrays answer what the exact method answers: tables of errors, and random problems under both rules."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.fabric_oracles.floor_level import RULES, from_flows, share, share_floats
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.flow import Flow
from matrixlink.fabric.sharing.max_min import Overcommitted
from matrixlink.fabric.sharing.max_min_arrays import fair_rates, sum_by_link
from matrixlink.fabric.sharing.rates import compute_rates
from matrixlink.fabric.sharing.traffic import traffic
from tests.matrixlink.fabric.test_sharing import AB, problems

BAD = [Flow(("a",), weight=0), Flow(("a",), weight=math.nan), Flow(("a",), floor=-1), Flow(("a",), floor=5, ceiling=4),
       Flow(("z",)), Flow(()), Flow(("a",), size=-1)]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(problems(), st.sampled_from(RULES))
def test_arrays_agree_with_the_exact_method(problem, rule):
    flows, links = problem
    booked = {key: sum(f.floor for f in flows if key in f.links) for key in links}
    if over := [key for key in links if booked[key] > links[key]]:
        with pytest.raises(Overcommitted) as refused:
            share_floats(flows, links, rule)
        assert refused.value.links == over
        assert [entry["link"] for entry in refused.value.blocking] == [str(key) for key in over]
        return
    exact = share(flows, links, rule)
    assert share_floats(flows, links, rule) == pytest.approx([float(r) for r in exact], rel=1e-9, abs=1e-12)


rates = st.floats(1e-9, 1e6)
tiny = st.sampled_from([5e-324, 1e-310, 3e-308, 1e-300])


@st.composite
def wide_problems(draw):
    """Rates from a byte a second to a petabyte, weights from the least there is."""
    links = {key: draw(rates) for key in range(draw(st.integers(1, 4)))}
    flows = []
    for _ in range(draw(st.integers(1, 6))):
        path = draw(st.lists(st.sampled_from(sorted(links)), min_size=1, max_size=3, unique=True))
        floor = draw(st.sampled_from([0.0, 0.0, 0.1, 0.01])) * min(links[key] for key in path)
        flows.append(Flow(tuple(path), draw(rates | tiny), floor, floor + draw(rates | st.just(math.inf))))
    return flows, links


@settings(max_examples=300, deadline=None)
@given(wide_problems())
@example(([Flow((0,), weight=5e-324)], {0: 392.0}))
@example(([Flow((0,), weight=1e-310), Flow((0,), weight=3e-310), Flow((1,))], {0: 392.0, 1: 1.0}))
@example(([Flow((0,), weight=1e-310, ceiling=1e-9), Flow((0,), weight=1e6)], {0: 392.0}))
def test_rates_of_all_sizes_agree_with_the_exact_method_as_well_as_floats_can(problem):
    """What is left of a link is known to the rounding of its whole capacity, however little it is."""
    flows, links = problem
    exact_flows = [
        Flow(
            f.links, Fraction(f.weight), Fraction(f.floor), f.ceiling if f.ceiling == math.inf else Fraction(f.ceiling)
        )
        for f in flows
    ]
    exact = [float(rate) for rate in share(exact_flows, {key: Fraction(gbps) for key, gbps in links.items()})]
    rounding = 1e-12 * max(links.values())
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        assert share_floats(flows, links) == pytest.approx(exact, rel=1e-9, abs=rounding)
        made, _ = from_flows(flows, links)
        assert compute_rates(made).tolist() == pytest.approx(exact, rel=1e-9, abs=rounding)


@pytest.mark.parametrize("flow", BAD, ids=str)
def test_bad_flows_are_refused_with_their_number(flow):
    with pytest.raises(InvalidField) as refused:
        share_floats([Flow(("b",)), flow], AB)
    assert refused.value.field.startswith("flows[1].")


def test_an_unknown_link_is_refused():
    with pytest.raises(InvalidField) as refused:
        traffic([1.0, 2.0], [[0, -1], [1, 2]])
    assert refused.value.field == "flows[1].links"


def test_no_flows_and_a_flow_without_links():
    assert share_floats([], {}) == []
    assert share_floats([Flow((), ceiling=7), Flow(("a", "a"))], AB) == [7, 30]


@pytest.mark.parametrize("seed", range(3))
def test_thousands_of_hashed_flows_carry_their_certificate(seed):
    """No link over; every flow crosses a full link on which nobody has more."""
    chance = np.random.default_rng(seed)
    paths = np.stack([chance.integers(50 * c, 50 * c + 50, 3000) for c in range(4)], 1)
    made = traffic(chance.uniform(1, 30, 200), paths)
    rates = fair_rates(made)
    load = sum_by_link(made, rates)
    assert (load <= made.capacity * (1 + 1e-9)).all()
    highest = np.zeros(200)
    np.maximum.at(highest, made.links, np.repeat(rates, made.lengths))
    full = load >= made.capacity * (1 - 1e-9)
    assert (full[paths] & (rates[:, None] >= highest[paths] * (1 - 1e-9))).any(1).all()


def test_from_flows_keeps_the_order_of_links():
    made, keys = from_flows([Flow(("b",))], AB)
    assert keys == ["a", "b"]
    assert made.links.tolist() == [1]
