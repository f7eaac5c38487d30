"""What a scaling policy decides, as tables and as properties that hold whatever is observed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from matrixcompute.autoscaling.decision import (
    SENTENCES,
    WARM_UP_S,
    Observation,
    recommend,
    schedule_floor,
    state_after_scaling,
)
from matrixcompute.autoscaling.policy import Reason, ScalingPolicyRequest, ScalingPolicySpec, ScalingState, Schedule
from matrixcompute.reconcilers.scaling_targets import check_scalable

NOON = 12 * 3600.0  # of 1 January 1970, a Thursday
IMMEDIATE = {"scaleUp": {"stabilizationWindowSeconds": 0}, "scaleDown": {"stabilizationWindowSeconds": 0}}


def make_policy(**more: Any) -> ScalingPolicySpec:
    given = {
        "scaleTargetRef": {"name": "one"},
        "minReplicas": 2,
        "maxReplicas": 20,
        "behavior": IMMEDIATE,
        "predictive": "Off",
    } | more
    return ScalingPolicySpec.model_validate(given)


def of(metric: str, **target: Any) -> dict:
    kind = "Value" if "value" in target else "AverageValue"
    return {"type": "Object", "object": {"metric": {"name": metric}, "target": {"type": kind, **target}}}


QUEUE = make_policy(metrics=[of("queued", averageValue=3.0)])
KV = make_policy(metrics=[of("kvUsage", value=0.8)])
BOTH = make_policy(metrics=[of("queued", averageValue=3.0), of("kvUsage", value=0.8)])


@pytest.mark.parametrize(
    ("sentence", "policy", "seen", "replicas", "reason"),
    [
        ("as HPA: ceil(total / target)", QUEUE, Observation(4, 4, metrics={"queued": 19.0}), 7, Reason.ABOVE_TARGET),
        ("within a tenth nothing changes", QUEUE, Observation(4, 4, metrics={"queued": 13.0}), 4, Reason.DESIRED_WITHIN_RANGE),
        ("fewer", QUEUE, Observation(4, 4, metrics={"queued": 6.0}), 2, Reason.BELOW_TARGET),
        ("a value: ceil(ratio x ready)", KV, Observation(5, 5, metrics={"kvUsage": 0.96}), 6, Reason.ABOVE_TARGET),
        ("those that start are no reason to shrink", KV, Observation(10, 4, metrics={"kvUsage": 0.96}), 10, Reason.PENDING_MEMBERS),
        ("the largest proposal counts", BOTH, Observation(4, 4, metrics={"queued": 0.0, "kvUsage": 1.0}), 5, Reason.ABOVE_TARGET),
        ("one that says nothing forbids shrinking", BOTH, Observation(4, 4, metrics={"queued": 0.0}), 4, Reason.METRIC_UNAVAILABLE),
        ("and not growing", BOTH, Observation(4, 4, metrics={"queued": 30.0}), 8, Reason.SCALE_UP_LIMIT),
        ("when none says anything it stays", BOTH, Observation(4, 4), 4, Reason.METRIC_UNAVAILABLE),
        ("but for the bounds", BOTH, Observation(1, 1), 2, Reason.TOO_FEW_REPLICAS),
        ("of either side", BOTH, Observation(22, 22), 20, Reason.TOO_MANY_REPLICAS),
        ("never above the most", QUEUE, Observation(19, 19, metrics={"queued": 90.0}), 20, Reason.TOO_MANY_REPLICAS),
        ("never below the least", QUEUE, Observation(4, 4, metrics={"queued": 0.0}), 2, Reason.TOO_FEW_REPLICAS),
        ("the work of nodes, at four fifths", make_policy(), Observation(4, 4, load=4.0), 5, Reason.ABOVE_TARGET),
        ("and what will wait, in ten seconds", make_policy(), Observation(4, 4, load=3.9, backlog=20.0), 7, Reason.ABOVE_TARGET),
        ("whole blocks", make_policy(block=4), Observation(4, 4, load=3.9), 8, Reason.ABOVE_TARGET),
        ("fewer by less than a block", make_policy(block=4), Observation(8, 8, load=4.0), 8, Reason.WHOLE_BLOCKS),
        ("half of it starts: it counts as there", make_policy(), Observation(8, 4, load=6.4), 8, Reason.PENDING_MEMBERS),
        ("HPA's rate: four more, or twice as many", make_policy(), Observation(5, 5, load=14.0), 10, Reason.SCALE_UP_LIMIT),
        (
            "a schedule is a floor", make_policy(schedules=[{"name": "day", "start": "08:00", "end": "18:00", "minReplicas": 6}]),
            Observation(4, 4, load=1.0), 6, Reason.SCHEDULE_FLOOR,
        ),
        (
            "down only", make_policy(behavior=IMMEDIATE | {"scaleUp": {"selectPolicy": "Disabled"}}),
            Observation(4, 4, load=9.0), 4, Reason.SCALE_UP_LIMIT,
        ),
    ],
)  # fmt: skip
def test_recommend(sentence, policy, seen, replicas, reason):
    found = recommend(seen, policy, ScalingState(), NOON)
    assert (found.replicas, found.reason) == (replicas, reason), sentence
    assert SENTENCES[reason] in found.message


@pytest.mark.parametrize(
    ("policy", "returns_to", "replicas"),
    [
        (make_policy(minReplicas=0, maxReplicas=5, block=2), 5, 4),
        (make_policy(minReplicas=0, maxReplicas=5, block=2), 3, 4),
        (make_policy(minReplicas=0, maxReplicas=5, block=2, schedules=[{"name": "day", "start": "08:00", "end": "18:00", "minReplicas": 5}]), 1, 4),
    ],
)  # fmt: skip
def test_return_from_zero_is_in_whole_blocks_within_bounds(policy, returns_to, replicas):
    found = recommend(Observation(0, 0, waiting=1, returns_to=returns_to), policy, ScalingState(), NOON)
    assert (found.replicas, found.reason) == (replicas, Reason.SCALE_TARGET_ACTIVATED)


@pytest.mark.parametrize(
    ("policy", "seen", "silent"),
    [
        (BOTH, Observation(4, 4, metrics={"queued": 0.0}), "kvUsage has no value"),
        (BOTH, Observation(4, 4), "queued, kvUsage have no value"),
        (make_policy(), Observation(4, 4), "no deployment on the target reports its incoming work"),
        (make_policy(predictive="Auto"), Observation(4, 4, load=0.1), "the forecast has too little data"),
    ],
)
def test_message_names_the_missing_signal(policy, seen, silent):
    found = recommend(seen, policy, ScalingState(), NOON)
    assert found.reason == Reason.METRIC_UNAVAILABLE
    assert f": {silent}; {SENTENCES[found.reason]}" in found.message


def instance(state="Active", **shape):
    return SimpleNamespace(state=state, shape=SimpleNamespace(**{"suspend": False, "power": "On"} | shape))


@pytest.mark.parametrize(
    ("there", "scaled_to_zero", "reason", "message"),
    [
        (None, False, Reason.TARGET_NOT_FOUND, "there is no instance one"),
        (instance("Stopped", power="Off"), False, Reason.TARGET_NOT_READY, "instance one is switched off by its spec; it is sized once it is Active again"),
        (instance("Suspended", suspend=True), False, Reason.TARGET_NOT_READY, "instance one is suspended by its spec; it is sized once it is Active again"),
        (instance("Pending"), False, Reason.TARGET_NOT_READY, "instance one is Pending; it is sized once it is Active"),
    ],
)  # fmt: skip
def test_unscalable_target_has_its_reason(there, scaled_to_zero, reason, message):
    assert check_scalable("blue/one", there, scaled_to_zero) == (reason, message)


@pytest.mark.parametrize("there", [instance(), instance("Repairing"), instance("Updating")])
def test_target_with_nodes_is_scalable(there):
    assert check_scalable("one", there, scaled_to_zero=False) is None
    assert check_scalable("one", instance("Suspended", suspend=True), scaled_to_zero=True) is None


def test_every_reason_has_a_sentence():
    assert set(SENTENCES) == set(Reason)


@pytest.mark.parametrize(
    ("clock", "days", "start", "end", "floor"),
    [
        (NOON, [], "08:00", "18:00", 6),
        (NOON, ["Thu"], "08:00", "18:00", 6),
        (NOON, ["Fri"], "08:00", "18:00", 0),
        (NOON, [], "12:01", "18:00", 0),
        (NOON, [], "08:00", "12:00", 0),
        (NOON + 13 * 3600, ["Thu"], "22:00", "06:00", 6),
        (NOON + 13 * 3600, ["Fri"], "22:00", "06:00", 0),
    ],
)
def test_schedules_are_in_force_by_the_clock_and_overnight(clock, days, start, end, floor):
    schedule = Schedule.model_validate({"name": "s", "days": days, "start": start, "end": end, "minReplicas": 6})
    assert schedule_floor([schedule], clock) == floor


def simulate(
    policy: ScalingPolicySpec, loads: list[float], members: int = 4, tick_s: float = 15.0, slow: int = 0
) -> list[int]:
    """Sizes over time. A member that is new is ready after `slow` ticks."""
    state, sizes = ScalingState(), [members]
    for at, load in enumerate(loads):
        now = NOON + at * tick_s
        ready = min(sizes[-slow - 1 :])
        found = recommend(Observation(sizes[-1], ready, load=load), policy, state, now)
        state = state_after_scaling(found.state, policy, found.replicas - sizes[-1], now)
        state = ScalingState.model_validate_json(state.model_dump_json())  # as it is stored
        sizes.append(found.replicas)
    return sizes


def test_highest_recommendation_of_the_window_limits_shrinking():
    policy = make_policy(behavior={"scaleDown": {"stabilizationWindowSeconds": 120}})
    sizes = simulate(policy, [8.0] * 8 + [2.0] * 100, members=10)
    fell = next(at for at, size in enumerate(sizes) if size < 10)
    assert 8 + 120 / 15 <= fell <= 8 + 120 / 15 + 5
    assert sizes[-1] == 3


def test_constant_load_settles():
    sizes = simulate(make_policy(), [5.0] * 240, slow=8)
    assert len(set(sizes[20:])) == 1


def test_starting_members_are_not_requested_again():
    sizes = simulate(make_policy(), [8.0] * 40, members=4, slow=20)
    assert max(sizes) == sizes[-1] == 10


def test_forecast_raises_the_floor_only_in_auto_mode():
    climb = [2.0 + 0.2 * at for at in range(50)]
    off, preview, auto = (
        simulate(make_policy(predictive=mode, maxReplicas=40, objective={"utilization": 0.8}), climb)[-1]
        for mode in ("Off", "Preview", "Auto")
    )
    assert off == preview < auto


@pytest.mark.parametrize(("peak", "foreseen"), [(0.0, False), (9.0, True)])
def test_minimum_is_not_reported_as_a_forecast(peak, foreseen):
    policy, state, reasons = make_policy(predictive="Auto", minReplicas=4), ScalingState(), set()
    for tick in range(200):
        load = peak if tick % 40 < 20 else 0.0
        found = recommend(Observation(12, 12, load=load, start_s=60.0), policy, state, NOON + 15.0 * tick)
        state = found.state
        reasons.add(found.reason)
    assert (Reason.FORECAST_FLOOR in reasons) == foreseen
    assert (Reason.TOO_FEW_REPLICAS in reasons) or foreseen


def test_missing_forecast_prevents_shrinking():
    policy = make_policy(predictive="Auto")
    assert simulate(policy, [2.0] * 19, members=10)[-1] == 10
    assert simulate(policy, [2.0] * 60, members=10)[-1] < 10


def test_initial_size_is_kept_during_warm_up():
    sizes = simulate(make_policy(predictive="Auto", behavior={}), [2.0] * 160, members=10)
    assert set(sizes[: int(WARM_UP_S / 15)]) == {10}
    assert sizes[-1] < 10


def test_policy_window_overrides_the_warm_up():
    sizes = simulate(
        make_policy(predictive="Auto", behavior={"scaleDown": {"stabilizationWindowSeconds": 60}}),
        [2.0] * 60,
        members=10,
    )
    assert sizes[-1] < 10


def test_growth_during_warm_up_is_released():
    loads = [4.0] * 40 + [9.0] * 4 + [4.0] * 60
    sizes = simulate(make_policy(predictive="Auto", behavior={}), loads, members=5)
    assert max(sizes) >= 9
    assert min(sizes) == 5


def test_late_prompts_raise_the_headroom_for_an_hour():
    policy = make_policy(predictive="Auto", maxReplicas=40, objective={"backlogSeconds": 5.0})
    state, seen = ScalingState(), Observation(10, 10, load=8.5, queues=True)
    for at in range(100):
        backlog = 60.0 if 50 <= at < 54 else 0.0
        state = recommend(replace(seen, backlog=backlog), policy, state, NOON + 15.0 * at).state
    assert len(state.missed) == 4
    later = NOON + 1500.0
    cautious = recommend(seen, policy, state, later).forecast
    careless = recommend(seen, policy, state.model_copy(update={"missed": []}), later).forecast
    assert careless is not None
    assert cautious is not None
    assert cautious > careless
    after = recommend(seen, policy, state, NOON + 15.0 * 54 + 3600.0)
    assert after.state.missed == []


def test_overload_of_the_initial_size_raises_no_headroom():
    """A forecast that was not there yet missed nothing: a beginning that is too small is no fault of its headroom."""
    policy = make_policy(predictive="Auto", maxReplicas=40, objective={"backlogSeconds": 5.0})
    forecasts = []
    for backlog in (60.0, 0.0):
        state, seen = ScalingState(), Observation(6, 6, load=8.5, backlog=backlog, queues=True)
        for at in range(10):
            state = recommend(seen, policy, state, NOON + 15.0 * at).state
        seen = Observation(10, 10, load=8.5, queues=True)
        for at in range(10, 40):
            found = recommend(seen, policy, state, NOON + 15.0 * at)
            state = found.state
        forecasts.append(found.forecast)
    assert forecasts[0] == forecasts[1] is not None


@pytest.mark.parametrize("start_s", [30.0, 145.0, 300.0])
def test_burst_is_not_extrapolated_over_the_start_time(start_s):
    """A look at twice the load beside many at half of it: the mean says how much comes until a new member serves."""
    policy = make_policy(predictive="Auto", maxReplicas=400, objective={"backlogSeconds": 5.0})
    state, seen = ScalingState(), Observation(8, 8, load=4.0, queues=True, start_s=start_s)
    for at in range(10):
        state = recommend(seen, policy, state, NOON + 15.0 * at).state
    burst = replace(seen, load=12.0, backlog=60.0)
    assert recommend(burst, policy, state, NOON + 150.0).replicas <= 12


@pytest.mark.parametrize("start_s", [0.0, 60.0, 145.0, 300.0, 900.0])
def test_backlog_is_cleared_in_a_share_of_the_start_time(start_s):
    """Members that are missing all the time until new ones serve: asked for are these, and for what has come to wait by
    then at most two and a half times as many again, however long a start takes."""
    rates = {"scaleUp": {"policies": [{"type": "Pods", "value": 400, "periodSeconds": 15}]}}
    policy = make_policy(predictive="Auto", maxReplicas=400, behavior=rates, objective={"backlogSeconds": 5.0})
    seen = Observation(2, 2, load=6.0, backlog=20.0, queues=True, start_s=start_s)
    missing = 6.0 - 2.0
    found = recommend(seen, policy, ScalingState(), NOON).replicas
    assert 6 < found <= 6.0 + 2.5 * missing + 20.0 / 30.0 + 1


def test_shrinking_by_one_block_needs_twenty_minutes_of_low_load():
    policy = make_policy()
    sizes = simulate(policy, [5.0] + [3.5] * 100, members=6)
    assert sizes[2 : 1200 // 15] == [6] * (1200 // 15 - 2)  # four fifths of five nodes are too few for 5.0
    assert sizes[-1] < 6


def test_backlog_accounts_for_starting_members():
    policy = make_policy()
    late, started = (Observation(8, ready, load=6.0, backlog=20.0) for ready in (3, 8))
    assert recommend(late, policy, ScalingState(), NOON).replicas > 8
    assert recommend(started, policy, ScalingState(), NOON).replicas == 8


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"minReplicas": 9, "maxReplicas": 8}, "maxReplicas"),
        ({"minReplicas": -1}, "minReplicas"),
        ({"block": 4, "minReplicas": 5, "maxReplicas": 7}, "block"),
        ({"schedules": [{"name": "s", "start": "8", "end": "18:00", "minReplicas": 1}]}, "start"),
        ({"schedules": [{"name": "s", "start": "08:00", "end": "18:00", "minReplicas": 21}]}, "schedules"),
        ({"metrics": [of("queued", value=3.0, averageValue=3.0)]}, "type"),
        ({"metrics": [{"type": "Object", "object": {"metric": {"name": "q"}, "target": {"type": "AverageValue"}}}]}, "type"),
        ({"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 0, "periodSeconds": 15}]}}}, "value"),
    ],
)  # fmt: skip
def test_invalid_input_is_refused_with_its_field(change, field):
    with pytest.raises(ValidationError) as refused:
        ScalingPolicyRequest.model_validate({"scaleTargetRef": {"name": "one"}, "maxReplicas": 20} | change)
    assert refused.value.errors()[0]["loc"][-1] == field


LOADS = st.one_of(st.none(), st.floats(0, 60))
POLICIES = st.builds(
    lambda least, more, block, predictive, windows, percent: make_policy(
        minReplicas=least * block, maxReplicas=(least + more) * block, block=block, predictive=predictive,
        behavior={
            "scaleUp": {
                "stabilizationWindowSeconds": windows[0],
                "policies": [{"type": "Percent", "value": percent, "periodSeconds": 60}],
            },
            "scaleDown": {"stabilizationWindowSeconds": windows[1]},
        },
    ),
    st.integers(1, 4), st.integers(0, 12), st.integers(1, 4), st.sampled_from(["Off", "Preview", "Auto"]),
    st.tuples(st.integers(0, 120), st.integers(0, 600)), st.integers(10, 400),
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(policy=POLICIES, loads=st.lists(LOADS, min_size=1, max_size=40), backlog=st.floats(0, 500))
def test_invariants_for_any_observation(policy, loads, backlog):
    """Within the bounds, in whole blocks, never fewer without a signal, never faster than allowed, and repeatable."""
    state, members, grown = ScalingState(), policy.min_replicas, []
    for at, load in enumerate(loads):
        now = NOON + 15.0 * at
        seen = Observation(members, members, load=load, backlog=backlog)
        before = state.model_dump()
        found = recommend(seen, policy, state, now)
        assert found == recommend(seen, policy, state, now)
        assert state.model_dump() == before
        assert policy.min_replicas <= found.replicas <= policy.max_replicas
        assert found.replicas % policy.block == 0
        assert load is not None or found.replicas >= members
        state = state_after_scaling(found.state, policy, found.replicas - members, now)
        if found.replicas > members:
            grown.append((now, found.replicas - members))
            lately = sum(change for at, change in grown if at > now - 60)
            start = found.replicas - lately
            rate = policy.behavior.scale_up.policies[0].value
            assert found.replicas <= -(-start * (100 + rate) // 100)
        members = found.replicas


@settings(deadline=None, max_examples=100)
@given(
    policy=POLICIES,
    history=st.lists(st.floats(0, 60), max_size=20),
    members=st.integers(1, 60),
    load=st.floats(0, 60),
    more=st.floats(0, 60),
    backlog=st.floats(0, 500),
)
def test_recommendation_is_monotonic_in_load(policy, history, members, load, more, backlog):
    state = ScalingState(loads=[(NOON - 15.0 * (len(history) - at), each) for at, each in enumerate(history)])
    policy = policy.model_copy(update={"predictive": "Off"})
    sizes = [
        recommend(Observation(members, members, load=each, backlog=backlog), policy, state, NOON).replicas
        for each in (load, load + more)
    ]
    assert sizes[0] <= sizes[1]


@settings(deadline=None, max_examples=50)
@given(load=st.floats(0.5, 14), members=st.integers(2, 20))
def test_no_change_within_the_tolerance(load, members):
    policy = make_policy(metrics=[of("work", averageValue=1.0)])
    seen = Observation(members, members, metrics={"work": members * (0.9 + 0.2 * (load - 0.5) / 13.5)})
    assert recommend(seen, policy, ScalingState(), NOON).replicas == members
