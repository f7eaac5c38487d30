"""Flows end when the bytes are through: tables by hand, the one-solve shortcut against the long run, physics."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fabric_oracles.timeline import FabricEvent, Timeline
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.flow import Flow


def ends(flows, links, events=()):
    return Timeline(flows, links, events).run().at


def test_a_single_flow_takes_size_over_rate():
    assert ends([Flow(("a",), size=280)], {"a": 28}) == [10]


def test_the_second_flow_speeds_up_when_the_first_ends():
    assert ends([Flow(("a",), size=10), Flow(("a",), size=30)], {"a": 2}) == [10, 20]


def test_a_late_flow_slows_the_first():
    assert ends([Flow(("a",), size=20), Flow(("a",), size=10, start=5)], {"a": 2}) == [15, 15]


def test_an_event_moves_a_flow_and_changes_a_link():
    flows = [Flow(("a",), size=20), Flow(("b",), size=20)]
    events = [FabricEvent(5, capacity={"b": 1}, moved={0: ("b",)})]
    assert ends(flows, {"a": 2, "b": 2}, events) == [25, 25]


def test_flows_on_dead_links_never_end_and_empty_flows_end_at_once():
    assert ends([Flow(("a",), size=1), Flow(("b",), size=0, start=3)], {"a": 0, "b": 1}) == [math.inf, 3]


def test_a_negative_size_is_refused():
    with pytest.raises(InvalidField):
        Timeline([Flow(("a",), size=-1)], {"a": 1})


def test_dispatch_of_320_dies_is_no_faster_than_its_port():
    """7,168 bytes to each of 319 others through a die's seven links of 28 GB/s take 11,666 ns."""
    per_die = 319 * 7168
    flows = [Flow((("out", p),), size=Fraction(per_die, 7)) for p in range(7)]
    done = Timeline(flows, {("out", p): 28 for p in range(7)}).run()
    assert float(done.makespan) == pytest.approx(11_666.3, abs=0.1)
    assert done.rate_solves == 1


paths = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True).map(tuple)


@settings(max_examples=60, deadline=None)
@given(st.lists(paths, min_size=1, max_size=8), st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_the_shortcut_for_equal_sizes_equals_the_full_run(chosen, capacity):
    links = {key: Fraction(value) for key, value in enumerate(capacity)}
    flows = [Flow(path, size=Fraction(12)) for path in chosen]
    long_run = Timeline([*flows, Flow((0,), size=Fraction(0))], links).run()
    short = Timeline(flows, links).run()
    assert short.rate_solves == 1
    assert short.at == long_run.at[:-1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(paths, st.integers(1, 30), st.integers(0, 9)), min_size=1, max_size=8),
    st.lists(st.integers(1, 9), min_size=4, max_size=4),
)
def test_no_link_moves_more_bytes_than_its_rate_allows(chosen, capacity):
    links = {key: Fraction(value) for key, value in enumerate(capacity)}
    flows = [Flow(path, size=Fraction(size), start=Fraction(start)) for path, size, start in chosen]
    at = Timeline(flows, links).run().at
    for key, rate in links.items():
        over = [(f, end) for f, end in zip(flows, at, strict=True) if key in f.links]
        if over:
            first, last = min(f.start for f, _ in over), max(end for _, end in over)
            assert sum(f.size for f, _ in over) <= rate * (last - first)
    floats = Timeline(
        [Flow(f.links, size=float(f.size), start=float(f.start)) for f in flows],
        {k: float(v) for k, v in links.items()},
    ).run()
    assert floats.at == pytest.approx([float(end) for end in at], rel=1e-9)
