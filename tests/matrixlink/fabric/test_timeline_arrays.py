"""Runs over arrays end when the exact timeline says, with and without the kernel in C; windows keep to their error."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fabric_oracles.floor_level import from_flows
from benchmarks.fabric_oracles.timeline import Timeline
from benchmarks.fabric_traffic import completion
from benchmarks.fabric_traffic.completion import EXACT, PROPORTIONAL, WINDOWS, run
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing import native_kernel, rates
from matrixlink.fabric.sharing.flow import Flow
from matrixlink.fabric.sharing.max_min import Overcommitted
from matrixlink.fabric.sharing.max_min_arrays import fair_rates
from matrixlink.fabric.sharing.rates import compute_rates
from matrixlink.fabric.sharing.traffic import traffic
from tests.matrixlink.fabric.test_sharing import problems


@pytest.fixture(params=["kernel", "arrays"])
def implementation(request, monkeypatch):
    if request.param == "arrays":
        for module in (completion, rates):
            monkeypatch.setattr(module, "load_kernel", lambda: None)
    elif native_kernel.load_kernel() is None:
        pytest.skip("no C compiler here")
    return request.param


sizes = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=10, max_size=10)


def both_ways():
    return [native_kernel.load_kernel, lambda: None] if native_kernel.load_kernel() else [lambda: None]


def test_a_floor_that_fills_a_link_stops_flows_at_their_ceiling(implementation):
    """The second has a floor and nothing above it, so it never waits for a share."""
    flows = [Flow((0,), 1, 0, 1, size=2, start=0), Flow((0,), 1, 1, 1, size=1, start=1)]
    made, _ = from_flows(flows, {0: 1})
    assert run(made).at.tolist() == [float(end) for end in Timeline(flows, {0: 1}).run().at] == [3.0, 2.0]


@settings(max_examples=150, deadline=None)
@given(problems(), sizes)
def test_completion_times_equal_the_exact_timeline(problem, timing):
    shared, links = problem
    flows = [Flow(f.links, f.weight, f.floor, f.ceiling, *each) for f, each in zip(shared, timing, strict=False)]
    made, _ = from_flows(flows, links)
    if any(sum(f.floor for f in flows if key in f.links) > links[key] for key in links):
        with pytest.raises(Overcommitted):
            run(made)
        return
    exact = [float(end) for end in Timeline(flows, links).run().at]
    kept = completion.load_kernel
    try:
        for completion.load_kernel in both_ways():
            rates.load_kernel = completion.load_kernel
            assert run(made).at.tolist() == pytest.approx(exact, rel=1e-9)
            assert compute_rates(made).tolist() == pytest.approx(fair_rates(made).tolist(), rel=1e-9, abs=1e-12)
    finally:
        completion.load_kernel = rates.load_kernel = kept


def hashed(flows, seed=1):
    chance = np.random.default_rng(seed)
    paths = np.stack([chance.integers(20 * c, 20 * c + 20, flows) for c in range(4)], 1)
    return traffic(np.full(80, 28.0), paths, size=chance.uniform(1e3, 2e4, flows))


def test_flows_of_one_size_end_after_one_solve(implementation):
    together = traffic([28.0, 14.0], [[0, 1], [0, -1]], size=280.0, start=5.0)
    done = run(together)
    assert (done.method, done.rate_solves) == (PROPORTIONAL, 1)
    assert done.at.tolist() == [25, 25]


def test_windows_reduce_solves_with_small_error(implementation):
    made = hashed(600)
    exact = run(made)
    rough = run(made, window_ns=exact.makespan * 0.006)
    assert (exact.method, rough.method) == (EXACT, WINDOWS)
    assert rough.rate_solves < exact.rate_solves * 0.4
    assert np.abs(rough.at / exact.at - 1).mean() < 0.002
    busiest = np.bincount(made.links, np.repeat(made.size, made.lengths)).max() / 28
    assert exact.makespan >= busiest * (1 - 1e-9)


def test_a_dead_link_an_empty_flow_and_bad_windows(implementation):
    assert run(traffic([0.0, 1.0], [[0], [1]], size=[1, 0], start=[0, 3])).at.tolist() == [math.inf, 3]
    assert run(traffic([1.0], np.empty((0, 1)))).makespan == 0
    for window in (-1.0, math.nan):
        with pytest.raises(InvalidField):
            run(hashed(2), window)
