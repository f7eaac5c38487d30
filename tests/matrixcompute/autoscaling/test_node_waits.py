"""How long new members are waited for: what is kept of it, and that every policy looks so far ahead."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixcompute.autoscaling.decision import Observation, recommend
from matrixcompute.autoscaling.node_waits import WAITS_KEPT, NodeWaits, emulated_boot_s
from matrixcompute.autoscaling.policy import ScalingState
from matrixcompute.autoscaling.pools import PoolsObservation, recommend_pools
from matrixcompute.autoscaling.warm_spares import recommend_with_spares, with_node_waits
from tests.matrixcompute.autoscaling.test_scaling_decision import NOON, make_policy

FAST = {"scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]}}


def waits(*free: float, spares: tuple[float, ...] = ()) -> NodeWaits:
    found = NodeWaits()
    for at, seconds in enumerate(free):
        found = found.with_wait(f"boot-{at}", "free", seconds)
    for at, seconds in enumerate(spares):
        found = found.with_wait(f"join-{at}", "spares", seconds)
    return found


def test_default_boot_time_is_the_sum_of_the_stages():
    assert waits().boot_s == emulated_boot_s() == 108
    assert waits().join_s == 108, "and a spare no less, until one was seen"


@pytest.mark.parametrize(
    ("sentence", "found", "boot_s", "join_s"),
    [
        ("one creation", waits(100), 100, 100),
        ("a growth out of spares", waits(100, spares=(9,)), 100, 9),
        ("one that waited for something else says nothing of the next", waits(100, 104, 3000), 104, 104),
        ("what was long ago is forgotten", waits(*[100] * WAITS_KEPT, *[300] * WAITS_KEPT), 300, 300),
        ("a spare is never thought to take longer than a free node", waits(50, spares=(80,)), 50, 50),
        ("a clock that was set back", waits(-5), 0, 0),
    ],
)
def test_estimate_is_the_median_of_recent_waits(sentence, found, boot_s, join_s):
    assert (found.boot_s, found.join_s) == (boot_s, join_s), sentence


def test_repeated_operation_counts_once():
    once = waits().with_wait("one", "free", 100)
    assert once.with_wait("one", "free", 160) == once
    assert NodeWaits.of(once.wire()) == once
    assert NodeWaits.of(None) == NodeWaits()


@given(st.lists(st.tuples(st.sampled_from(["free", "spares"]), st.floats(0, 1e5)), max_size=20))
def test_estimate_is_one_of_the_recorded_waits(seen):
    found = NodeWaits()
    for at, (source, seconds) in enumerate(seen):
        found = found.with_wait(str(at), source, seconds)
    assert found.boot_s in [*found.free, emulated_boot_s()]
    assert 0 <= found.join_s <= found.boot_s
    assert max(len(found.free), len(found.spares)) <= WAITS_KEPT


def test_horizon_includes_the_boot_time():
    seen = Observation(4, 4, load=6.0, backlog=40.0, start_s=37.0)
    policy = make_policy(maxReplicas=200, behavior=FAST)
    found = recommend_with_spares(with_node_waits(seen, waits(108)), policy, ScalingState(), NOON)
    late = recommend(replace(seen, start_s=145.0), policy, ScalingState(), NOON)
    soon = recommend(seen, policy, ScalingState(), NOON)
    assert found.replicas == late.replicas > soon.replicas
    assert recommend_with_spares(with_node_waits(seen, waits(0)), policy, ScalingState(), NOON) == soon


def test_horizon_of_pools_includes_the_boot_time():
    seen = PoolsObservation(
        Observation(8, 8), Observation(4, 4, load=6.0, backlog=40.0, start_s=37.0), Observation(4, 4, load=2.0)
    )
    policy = make_policy(maxReplicas=200, pools={}, behavior=FAST)
    found = recommend_with_spares(with_node_waits(seen, waits(108)), policy, ScalingState(), NOON)
    late = {role: replace(seen.of(role), start_s=seen.of(role).start_s + 108) for role in ("prefill", "decode")}
    assert found == recommend_pools(replace(seen, whole=found_whole(seen), **late), policy, ScalingState(), NOON)
    assert found.replicas > recommend_pools(seen, policy, ScalingState(), NOON).replicas


def found_whole(seen: PoolsObservation) -> Observation:
    return replace(seen.whole, boot_s=108.0, join_s=108.0)
