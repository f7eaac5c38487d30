"""Spares as a tier of a scaling policy: what they may stand for, as a table and as properties of the decision and of a
played load."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from matrixcompute.autoscaling.decision import Observation, recommend
from matrixcompute.autoscaling.policy import Reason, ScalingPolicySpec, ScalingState
from matrixcompute.autoscaling.pools import PoolsObservation, recommend_pools
from matrixcompute.autoscaling.warm_spares import recommend_with_spares
from tests.matrixcompute.autoscaling.test_scaling_decision import NOON, make_policy

SLOW = {"boot_s": 110.0, "join_s": 10.0}
"""A backlog of 40 s of one node, while the work of 6 nodes comes in at 4: what waits until a node serves counts."""


def rising_load(**more: float) -> Observation:
    return Observation(4, 4, load=6.0, backlog=40.0, start_s=20.0, **(SLOW | more))  # type: ignore[arg-type]


def with_spares(spares: int, **more: object) -> ScalingPolicySpec:
    return make_policy(warmSpares=spares, behavior={"scaleUp": {"policies": [
        {"type": "Pods", "value": 100, "periodSeconds": 15}]}}, maxReplicas=200, **more)  # fmt: skip


BOOTED = recommend(replace(rising_load(), start_s=130.0), with_spares(0), ScalingState(), NOON).replicas
JOINED = recommend(replace(rising_load(), start_s=30.0), with_spares(0), ScalingState(), NOON).replicas


def test_booting_needs_more_in_advance_than_joining():
    assert BOOTED > JOINED > 4


@pytest.mark.parametrize(
    ("sentence", "warm", "spares", "replicas"),
    [
        ("no tier: spares stand for nothing, and every new node boots", 0, 9, BOOTED),
        ("no spare: all of it", 4, 0, BOOTED),
        ("each spare stands for a member", 4, 2, BOOTED - 2),
        ("no more than the policy counts on", 1, 9, BOOTED - 1),
        ("what spares would not bring in time has to be there", 48, 48, JOINED),
    ],
)
def test_spares_cover_capacity_needed_in_advance(sentence, warm, spares, replicas):
    seen = rising_load(spares=spares)
    found = recommend_with_spares(seen, with_spares(warm), ScalingState(), NOON)
    assert found.replicas == replicas, sentence


def test_size_covered_by_spares_has_its_reason():
    seen = Observation(4, 4, load=4.1, backlog=1.0, start_s=0.0, spares=4, boot_s=300.0, join_s=0.0)
    policy = with_spares(4, objective={"utilization": 1.0, "backlogSeconds": 30.0})
    found = recommend_with_spares(seen, policy, ScalingState(), NOON)
    booted = recommend(replace(seen, start_s=300.0), policy, ScalingState(), NOON)
    assert booted.replicas > found.replicas == 4
    assert found.reason == Reason.SPARES_COVER
    assert f"{booted.replicas - found.replicas} of them covered by spares" in found.message


def test_covered_size_is_in_whole_blocks():
    found = recommend_with_spares(rising_load(spares=3), with_spares(3, block=2), ScalingState(), NOON)
    assert found.replicas % 2 == 0


@pytest.mark.parametrize("count", [-1, 49, "many"])
def test_impossible_warm_spares_are_refused_with_their_field(count):
    with pytest.raises(ValidationError) as refused:
        make_policy(warmSpares=count)
    assert refused.value.errors()[0]["loc"] == ("warmSpares",)


LOADS = st.floats(0, 30)


@settings(max_examples=60, deadline=None)
@given(
    load=LOADS, backlog=st.floats(0, 500), members=st.integers(2, 30), starting=st.integers(0, 3),
    spares=st.integers(0, 12), warm=st.integers(1, 12), boot=st.floats(0, 300), join=st.floats(0, 1),
    block=st.sampled_from([1, 2, 4]),
)  # fmt: skip
def test_members_and_warm_spares_meet_the_booting_decision(
    load, backlog, members, starting, spares, warm, boot, join, block
):
    members = members // block * block or block
    ready = max(0, members - starting)
    seen = Observation(members, ready, load=load, backlog=backlog, spares=spares, boot_s=boot, join_s=join * boot)
    policy = with_spares(warm, block=block)
    found = recommend_with_spares(seen, policy, ScalingState(), NOON)
    booted = recommend(replace(seen, start_s=seen.start_s + boot), policy, ScalingState(), NOON)
    assert found.replicas + min(spares, warm) >= booted.replicas >= found.replicas
    assert found.replicas >= policy.min_replicas or not booted.replicas
    assert found.replicas % block == 0


@settings(max_examples=40, deadline=None)
@given(prefill=st.floats(0, 8), decode=st.floats(0, 8), waits=st.floats(0, 200), spares=st.integers(0, 8))
def test_each_pool_is_between_the_joining_and_the_booting_decision(prefill, decode, waits, spares):
    seen = PoolsObservation(
        Observation(8, 8, spares=spares, **SLOW),
        Observation(4, 4, load=prefill, backlog=waits, queues=True),
        Observation(4, 4, load=decode),
    )
    policy = with_spares(6, pools={})
    found = recommend_with_spares(seen, policy, ScalingState(), NOON)
    late = {role: replace(seen.of(role), start_s=seen.of(role).start_s + 110.0) for role in ("prefill", "decode")}
    booted = recommend_pools(replace(seen, **late), policy, ScalingState(), NOON)
    assert found.pools is not None
    assert booted.pools is not None
    assert found.replicas == found.pools.nodes
    assert 0 <= booted.replicas - found.replicas <= min(spares, 6)
    assert found.pools.prefill <= booted.pools.prefill
    assert found.pools.decode <= booted.pools.decode
