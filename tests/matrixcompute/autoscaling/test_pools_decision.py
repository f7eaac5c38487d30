"""What a scaling policy decides of pools and of zero, as tables and as properties that hold whatever is observed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from matrixcompute.autoscaling.decision import SENTENCES, Observation, recommend
from matrixcompute.autoscaling.policy import PoolSizes, Reason, ScalingPolicySpec, ScalingState
from matrixcompute.autoscaling.pools import PoolsObservation, bounds_of, recommend_pools, state_after_pool_scaling

NOON = 12 * 3600.0
IMMEDIATE = {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 0}}


def make_policy(**more: Any) -> ScalingPolicySpec:
    given = {
        "scaleTargetRef": {"name": "one"}, "minReplicas": 2, "maxReplicas": 40, "behavior": IMMEDIATE, "predictive": "Off",
        "objective": {"utilization": 1.0}, "pools": {},
    } | more  # fmt: skip
    return ScalingPolicySpec.model_validate(given)


def observe_pools(
    prefill: int,
    decode: int,
    reads: float | None,
    answers: float | None,
    *,
    waits: float = 0.0,
    caching: int | None = None,
    needs: float | None = None,
    **more: Any,
) -> PoolsObservation:
    nodes = prefill + decode
    return PoolsObservation(
        Observation(nodes, nodes, **more),
        Observation(prefill, prefill, reads, waits, stays_s=1.0, least=2),
        Observation(decode, decode, answers, least=2),
        caching,
        needs,
        2,
    )


def bounds(**pools: Any) -> dict[str, Any]:
    return {"pools": pools}


@pytest.mark.parametrize(
    ("sentence", "policy", "observation", "sizes", "reason"),
    [
        ("as large as the work of each", {}, observe_pools(4, 6, 4.0, 6.0), (4, 6), Reason.DESIRED_WITHIN_RANGE),
        ("more prompts: one instance more", {}, observe_pools(4, 6, 5.0, 6.0), (6, 6), Reason.ABOVE_TARGET),
        ("more answers: as many nodes more", {}, observe_pools(4, 6, 4.0, 8.5), (4, 9), Reason.ABOVE_TARGET),
        ("prompts that wait count", {}, observe_pools(4, 6, 3.9, 6.0, waits=15.0), (6, 6), Reason.ABOVE_TARGET),
        ("to be read by the objective for the first token", {"objective": {"utilization": 1.0, "ttftSeconds": 3.0}},
         observe_pools(4, 6, 4.0, 6.0, waits=8.0), (8, 6), Reason.ABOVE_TARGET),
        ("fewer of both", {}, observe_pools(8, 10, 1.8, 4.0), (2, 5), Reason.BELOW_TARGET),
        ("the mix shifts: a node changes its role", {}, observe_pools(4, 6, 6.0, 3.5), (6, 4), Reason.ROLES_REBALANCED),
        ("and back, in whole instances", {}, observe_pools(6, 4, 3.5, 6.0), (4, 6), Reason.ROLES_REBALANCED),
        ("at the most: who has less to do gives", {"maxReplicas": 10}, observe_pools(4, 6, 8.0, 3.0), (6, 4), Reason.ROLES_REBALANCED),
        ("and all of it is needed", {"maxReplicas": 10}, observe_pools(4, 6, 8.0, 12.0), (4, 6), Reason.TOO_MANY_REPLICAS),
        ("never fewer than the least, kept where they are", {"minReplicas": 10}, observe_pools(4, 6, 1.0, 1.0), (4, 6), Reason.TOO_FEW_REPLICAS),
        ("never under the least of a pool", bounds(decode={"minReplicas": 6}), observe_pools(4, 6, 4.0, 1.0), (4, 6), Reason.TOO_FEW_REPLICAS),
        ("never over its most", bounds(prefill={"maxReplicas": 4}), observe_pools(4, 6, 9.0, 6.0), (4, 6), Reason.TOO_MANY_REPLICAS),
        ("never under what the model needs", {}, observe_pools(2, 3, 0.0, 0.0), (2, 2), Reason.TOO_FEW_REPLICAS),
        ("whole blocks: what is over goes to the fuller", {"block": 4}, observe_pools(4, 8, 3.5, 9.0), (4, 12), Reason.ABOVE_TARGET),
        ("less than a block fewer: nobody goes", {"block": 4}, observe_pools(4, 8, 4.0, 6.0), (4, 8), Reason.WHOLE_BLOCKS),
        ("a schedule is a floor of the whole", {"schedules": [{"name": "day", "start": "08:00", "end": "18:00", "minReplicas": 12}]},
         observe_pools(4, 6, 3.9, 6.0), (4, 8), Reason.SCHEDULE_FLOOR),
        ("who says nothing does not shrink", {}, observe_pools(8, 10, None, None), (8, 10), Reason.METRIC_UNAVAILABLE),
        ("but to the most", {"maxReplicas": 16}, observe_pools(8, 10, None, None), (6, 10), Reason.TOO_MANY_REPLICAS),
        ("the model needs more than the most", {"maxReplicas": 3}, observe_pools(2, 1, 1.0, 1.0), (2, 1), Reason.TOO_MANY_REPLICAS),
    ],
)  # fmt: skip
def test_recommend_pools(sentence, policy, observation, sizes, reason):
    found = recommend_pools(observation, make_policy(**policy), ScalingState(), NOON)
    assert found.pools is not None
    assert ((found.pools.prefill, found.pools.decode), found.reason) == (sizes, reason), sentence
    assert found.replicas == sum(sizes)
    assert SENTENCES[reason] in found.message


@pytest.mark.parametrize(
    ("sentence", "pool", "current", "needs", "caching", "reason"),
    [
        ("what is new needs the memory of more", {}, 3, 5.2, 6, Reason.ABOVE_TARGET),
        ("of fewer", {}, 8, 2.0, 2, Reason.BELOW_TARGET),
        ("of no more than there are", {}, 3, 40.0, 10, Reason.ABOVE_TARGET),
        ("or are allowed", {"maxReplicas": 5}, 3, 40.0, 5, Reason.ABOVE_TARGET),
        ("never fewer than the least", {"minReplicas": 4}, 8, 1.0, 4, Reason.BELOW_TARGET),
        ("nobody says: it stays", {}, 7, None, 7, Reason.DESIRED_WITHIN_RANGE),
        ("all of them, and so it stays", {}, None, 10.0, 10, Reason.DESIRED_WITHIN_RANGE),
    ],
)
def test_recommend_caching(sentence, pool, current, needs, caching, reason):
    observation = observe_pools(4, 6, 4.0, 6.0, caching=current, needs=needs)
    found = recommend_pools(observation, make_policy(**bounds(caching=pool)), ScalingState(), NOON)
    assert found.pools is not None
    assert (found.pools.caching, found.replicas) == (caching, 10), sentence
    assert found.reason == (reason if current is not None else found.reason)


def test_caching_minimum_raises_the_size():
    found = recommend_pools(
        observe_pools(4, 6, 4.0, 6.0, caching=10),
        make_policy(**bounds(caching={"minReplicas": 14})),
        ScalingState(),
        NOON,
    )
    assert (found.replicas, found.pools.caching) == (14, 14)


ZERO = {"minReplicas": 0, "cooldownPeriod": 300, "predictive": "Off"}
DAY = [{"name": "day", "start": "08:00", "end": "18:00", "minReplicas": 6}]


@pytest.mark.parametrize(
    ("sentence", "policy", "observation", "replicas", "reason"),
    [
        ("idle for the cooldown period", ZERO, Observation(4, 4, 0.0, idle_s=300.0), 0, Reason.SCALE_TARGET_DEACTIVATED),
        ("not yet", ZERO, Observation(4, 4, 0.0, idle_s=299.0, least=4), 4, Reason.TOO_FEW_REPLICAS),
        ("nobody allows it", {"minReplicas": 4}, Observation(4, 4, 0.0, idle_s=9e9), 4, Reason.TOO_FEW_REPLICAS),
        ("nobody knows", ZERO, Observation(4, 4, least=4), 4, Reason.METRIC_UNAVAILABLE),
        ("a request waits", ZERO, Observation(4, 4, 0.0, idle_s=300.0, waiting=1, least=4), 4, Reason.TOO_FEW_REPLICAS),
        ("nodes start", ZERO, Observation(4, 3, 0.0, idle_s=300.0, least=4), 4, Reason.TOO_FEW_REPLICAS),
        ("a schedule asks for some", ZERO | {"schedules": DAY}, Observation(6, 6, 0.0, idle_s=300.0), 6, Reason.SCHEDULE_FLOOR),
        ("at zero nothing waits", ZERO, Observation(0, 0, returns_to=4, idle_s=9e9), 0, Reason.DESIRED_WITHIN_RANGE),
        ("a request brings back what there was", ZERO, Observation(0, 0, returns_to=4, waiting=1), 4, Reason.SCALE_TARGET_ACTIVATED),
        ("at most what is allowed", ZERO | {"maxReplicas": 3}, Observation(0, 0, returns_to=4, waiting=1), 3, Reason.SCALE_TARGET_ACTIVATED),
        ("so does a schedule", ZERO | {"schedules": DAY}, Observation(0, 0, returns_to=4), 6, Reason.SCALE_TARGET_ACTIVATED),
        ("and a policy that allows zero no longer", {"minReplicas": 2}, Observation(0, 0, returns_to=1), 2, Reason.SCALE_TARGET_ACTIVATED),
    ],
)  # fmt: skip
def test_scale_to_and_from_zero(sentence, policy, observation, replicas, reason):
    spec = make_policy(**{"pools": None} | policy)
    found = recommend(observation, spec, ScalingState(), NOON)
    assert (found.replicas, found.reason) == (replicas, reason), sentence
    if observation.members == 0 or found.replicas == 0:
        pooled = replace(observe_pools(2, 2, 0.0, 0.0), whole=observation)
        again = recommend_pools(pooled, make_policy(**policy), ScalingState(), NOON)
        assert (again.replicas, again.reason) == (replicas, reason), sentence


WORK = st.one_of(st.none(), st.floats(0, 60))


@settings(max_examples=300, deadline=None)
@given(
    instances=st.integers(1, 12),
    decode=st.integers(2, 24),
    block=st.sampled_from([1, 2, 4]),
    least=st.integers(1, 8),
    room=st.integers(0, 40),
    observations=st.lists(st.tuples(WORK, WORK, st.floats(0, 500), WORK), min_size=1, max_size=12),
    caching=st.booleans(),
)
@example(instances=8, decode=4, block=1, least=5, room=6, observations=[(None, None, 0.0, None)], caching=False)
def test_pools_add_up_and_respect_their_minimums(instances, decode, block, least, room, observations, caching):
    most = -(-(4 + 2 * least + room) // block) * block
    pools = {"prefill": {"minReplicas": least}, "decode": {"minReplicas": least}} | ({"caching": {}} if caching else {})
    policy = make_policy(maxReplicas=most, block=block, pools=pools, predictive="Auto")
    sizes, state = PoolSizes(prefill=2 * instances, decode=decode), ScalingState()
    for at, (reads, answers, waits, needs) in enumerate(observations):
        observation = observe_pools(
            sizes.prefill, sizes.decode, reads, answers, waits=waits, caching=sizes.caching, needs=needs
        )
        now = NOON + 15 * at
        before = state.model_copy(deep=True)
        found = recommend_pools(observation, policy, state, now)
        assert state == before, "pure"
        assert found == recommend_pools(observation, policy, state, now)
        assert found.pools is not None
        assert found.replicas == found.pools.nodes
        assert found.pools.prefill % 2 == 0
        assert found.replicas <= max(most, observation.whole.members)
        for role in ("prefill", "decode"):
            assert getattr(found.pools, role) >= min(bounds_of(role, observation, policy)[0], getattr(sizes, role))
        if None in (reads, answers) and observation.whole.members <= most and not observation.whole.members % block:
            assert found.replicas >= observation.whole.members, "who says nothing does not shrink"
        assert (found.pools.caching is None) != caching
        assert found.pools.caching is None or 1 <= found.pools.caching <= found.replicas
        state = state_after_pool_scaling(found.state, policy, sizes, found.pools, now)
        assert ScalingState.of(state.wire()) == state, "it is stored with the decision"
        sizes = found.pools


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"pools": {"prefill": {"minReplicas": 0}}}, "minReplicas"),
        ({"pools": {"prefill": {"minReplicas": 3, "maxReplicas": 2}}}, "maxReplicas"),
        ({"pools": {"prefill": {"minReplicas": 30}, "decode": {"minReplicas": 11}}}, "pools"),
        ({"pools": {"caching": {"minReplicas": 41}}}, "pools"),
        ({"minReplicas": 9, "pools": {"prefill": {"maxReplicas": 4}, "decode": {"maxReplicas": 4}}}, "pools"),
        ({"pools": {"encode": {}}}, "encode"),
        ({"metrics": [{"object": {"metric": {"name": "q"}, "target": {"type": "Value", "value": 1.0}}}]}, "pools"),
        ({"cooldownPeriod": -1}, "cooldownPeriod"),
        ({"objective": {"ttftSeconds": 0.0}}, "ttftSeconds"),
    ],
)
def test_invalid_pools_are_refused_with_their_field(change, field):
    with pytest.raises(ValidationError) as refused:
        make_policy(**change)
    assert refused.value.errors()[0]["loc"][-1] == field


def test_nodes_with_long_drains_keep_their_role():
    observation = observe_pools(4, 6, 6.0, 3.5)
    slow = replace(observation, decode=replace(observation.decode, stays_s=90.0))
    found = recommend_pools(slow, make_policy(), ScalingState(), NOON)
    assert found.pools == PoolSizes(prefill=6, decode=6)
    within = recommend_pools(slow, make_policy(maxReplicas=10), ScalingState(), NOON)
    assert within.pools == PoolSizes(prefill=6, decode=4), "the budget goes before that"
