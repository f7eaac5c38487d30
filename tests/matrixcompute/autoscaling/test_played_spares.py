"""Spares in the played model of `python -m benchmarks autoscaling_spares`: they are never fewer than none, never two
things at once, and at equal members nobody is served later for them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.autoscaler.replay import replay
from benchmarks.autoscaler.spares import Spares
from benchmarks.autoscaler.traces import Trace

STEPS = st.lists(st.tuples(st.floats(0.5, 60), st.integers(0, 6)), max_size=30)


@given(count=st.integers(0, 8), start_s=st.floats(0, 300), share=st.floats(0, 1), steps=STEPS)
def test_spare_serves_no_later_than_a_free_node(count, start_s, share, steps):
    spares, now = Spares(count, start_s, share * start_s), 0.0
    for passes_s, members in steps:
        now += passes_s
        spares.advance(now)
        before = spares.ready
        starts = spares.start(members, now)
        assert len(starts) == members
        assert all(at <= now + start_s for at in starts)
        assert before - spares.ready == min(before, members)
        assert spares.ready + len(spares.booting) == count
        assert spares.ready >= 0


def random_trace(seed: int) -> Trace:
    chance = np.random.default_rng(seed)
    at = np.sort(np.concatenate([chance.uniform(0, 60, 200), chance.uniform(60, 180, 1400)]))
    prompt = chance.integers(500, 6000, len(at)).astype(float)
    return Trace("small", at, prompt, np.zeros(len(at)), chance.integers(2, 40, len(at)).astype(float))


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 5), plan=st.lists(st.integers(0, 2), min_size=3, max_size=6), spares=st.integers(1, 4),
    start_s=st.sampled_from([30.0, 60.0, 120.0]),
)  # fmt: skip
def test_spares_do_not_delay_first_tokens(seed, plan, spares, start_s):
    """The same sizes at the same moments, growing: what comes from a spare is there sooner, and nothing else differs."""
    trace = random_trace(seed)
    sizes = np.concatenate([[1], 1 + np.cumsum(plan)])

    def planned(seen):
        return [int(sizes[min(len(sizes) - 1, int(seen[0].now // 15))]), 8]

    without = replay(trace, planned, (1, 8), start_s)
    with_spares = replay(trace, planned, (1, 8), start_s, spares=Spares(spares, start_s, 10.0))
    assert (with_spares.ttft_s <= without.ttft_s + 1e-6).all()
    assert with_spares.attainment >= without.attainment
    assert with_spares.lost == 0
