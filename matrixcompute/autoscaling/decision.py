"""recommend: how many members a target should have. Pure: the same observation, policy and state give the same answer.

Each signal proposes a size as the HPA computes it, and the largest proposal wins. Schedules and the forecast raise it
to their floors, whole blocks round it up, windows and rates hold it back, and the bounds apply last. A signal without a
value forbids shrinking. Members that are starting, or being replaced by recovery, count as present, so that their work
is not asked for twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil

from matrixcommon.model.quantities import pluralized
from matrixcompute.autoscaling.backtest import Sizing, floor
from matrixcompute.autoscaling.behavior import (
    DOWN_WINDOW_S,
    bounds,
    limit_change,
    record_change,
    round_to_blocks,
    stabilize,
    tolerances,
)
from matrixcompute.autoscaling.forecast import HISTORY_S, SAMPLES_MIN, SMOOTHED_S, highest_mean, smoothed
from matrixcompute.autoscaling.policy import Metric, PoolSizes, Reason, ScalingPolicySpec, ScalingState, Schedule

TICK_S = 15.0
"""The interval between decisions (s), as the HPA's; a request is repeated a tick later at the earliest."""
WINDOW_S = 30.0
"""The window over which a policy's metrics are measured (s). Incoming work is measured per tick instead, since the
decision averages it itself."""
SCALE_DOWN_CHECK_S = 1200.0
"""One block fewer must have been enough for this long (s), so that the noise of a constant load releases no nodes."""
FORECAST_TOLERANCE = 0.05
"""A forecast that exceeds the present size by no more than this share is within its own error."""
BACKLOG_CLEAR_S, BACKLOG_CLEAR_SHARE = 30.0, 0.4
"""If a forecast covers the load, a remaining backlog is cleared in this time (s), or in this share of the time in which
it builds up, that is, until a member requested now serves. With a fixed time, a start of several minutes would ask for
many times the missing members."""
BACKLOG_TOLERANCE = 0.3
"""If a forecast covers the load, a backlog asks for more members above this share of the allowed wait. Forecast rules
are scored with it too, because bursts within a tick are not in their data."""
HEADROOM_PER_MISS, HEADROOM_MAX = 20.0, 0.5
"""Headroom on top of the forecast, per share of the last hour's work that waited too long, and its maximum: one in a
hundred late adds a fifth."""
STABILIZATION_S_MIN = 120.0
"""A recommendation from the built-in signals stays in the window for at least this long (s), so that constant load
causes no change."""
WARM_UP_S = 1800.0
"""With a forecast, the size found at the beginning is kept until this much has been observed (s), half of what is
remembered, because before that no recurring load can be known. A window in the policy takes precedence."""


@dataclass(frozen=True)
class Observation:
    """What is known of the members at one moment. A missing metric has no value.

    `members`: all that belong to the target, in any state. `load`: incoming work, as the number of members it would
    keep busy. `backlog`: waiting work, in seconds of one member. `start_s`: how long a new member takes to serve.
    `stays_s`: how long a request stays on a member; the load is averaged over half of that, which is how long the
    requests present have stayed on average.
    """

    members: int
    ready: int
    load: float | None = None
    backlog: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    start_s: float = 60.0
    stays_s: float = SMOOTHED_S
    queues: bool = False
    """Work queues for a member and then runs at full speed (prompts), instead of sharing the members."""
    least: int = 1
    """The fewest members with which it can serve and is not below its own floor."""
    idle_s: float | None = None
    """How long nothing has come in or run (s)."""
    waiting: int = 0
    """Requests that wait for a target scaled to zero."""
    spares: int = 0
    """Nodes that it holds in addition to its members, booted or booting."""
    boot_s: float = 0.0
    """How long a free node takes to boot and join, before `start_s` begins (s)."""
    join_s: float = 0.0
    """The same for a spare (s)."""
    returns_to: int = 1
    """The number of members before it was scaled to zero."""


@dataclass(frozen=True)
class Recommendation:
    """A size, the reason for it, and the state for the next decision."""

    replicas: int
    state: ScalingState
    reason: Reason
    message: str
    forecast: int | None = None
    """The floor that the forecast sets, or would set in Preview."""
    pools: PoolSizes | None = None
    """The size of each pool, if the policy sizes pools."""


def recommend(observed: Observation, policy: ScalingPolicySpec, state: ScalingState, now: float) -> Recommendation:
    """The size for this moment. `state` is not changed; the recommendation has the next one."""
    if (zero_switch := scale_to_or_from_zero(observed, policy, state, now)) is not None:
        return zero_switch
    policy = policy.model_copy(
        update={"min_replicas": min(max(policy.min_replicas, observed.least, 1), policy.max_replicas)}
    )
    state = state.model_copy()
    if observed.load is not None:
        state.loads = [each for each in state.loads if each[0] > now - HISTORY_S] + [(now, observed.load)]
        # Late work raises the forecast's headroom, so only work that a forecast could have covered counts: not work
        # that waits for starting members, nor work that the size found at the beginning could not serve.
        waits = observed.queues and observed.ready == observed.members and len(state.loads) >= SAMPLES_MIN
        late = waits and observed.backlog > policy.objective.backlog_seconds * observed.ready
        state.missed = [each for each in state.missed if each[0] > now - HISTORY_S] + [(now, observed.load)] * late
    proposals = [_propose_by_metric(each, observed, policy) for each in policy.metrics]
    forecast = _forecast_floor(state, policy, observed)
    forecast_applies = forecast is not None and policy.forecasts == "Auto"
    if not policy.metrics:
        proposals = [
            None
            if observed.load is None
            else _propose_by_load(
                observed, policy, smoothed(state.loads, now, max(SMOOTHED_S, observed.stays_s / 2)), forecast_applies
            )
        ]
    known = [each for each in proposals if each is not None]
    missing_signals = _missing_signals(policy, proposals, forecast)
    desired, reason = max(known, default=observed.members), Reason.DESIRED_WITHIN_RANGE
    if desired != observed.members:
        reason = Reason.ABOVE_TARGET if desired > observed.members else Reason.BELOW_TARGET
    if missing_signals and desired <= observed.members:
        desired, reason = observed.members, Reason.METRIC_UNAVAILABLE
    proposed = desired

    scheduled = schedule_floor(policy.schedules, now)
    if scheduled > desired:
        desired, reason = scheduled, Reason.SCHEDULE_FLOOR
    if policy.forecasts == "Auto" and forecast is not None and forecast > desired:
        desired = forecast  # at least minReplicas; if it equals that, minReplicas is the reason
        reason = Reason.FORECAST_FLOOR if forecast > policy.min_replicas else Reason.TOO_FEW_REPLICAS
    rounded = round_to_blocks(desired, policy.block)
    if rounded != desired and rounded == observed.members:
        reason = Reason.WHOLE_BLOCKS
    desired = rounded

    down_window_s = DOWN_WINDOW_S if policy.metrics else max(STABILIZATION_S_MIN, observed.start_s)
    if (initial_size := _initial_size(observed, policy, state, now)) > desired:
        desired, reason = initial_size, Reason.SCALE_DOWN_STABILIZED
    stabilized_size = stabilize(state, policy.behavior, desired, observed.members, now, down_window_s)
    if stabilized_size != desired:
        reason = Reason.SCALE_UP_STABILIZED if desired > stabilized_size else Reason.SCALE_DOWN_STABILIZED
    one_fewer = (
        stabilized_size == observed.members - policy.block
        and not policy.metrics
        and observed.load is not None
        and not forecast_applies
    )
    if one_fewer and not _was_sufficient(state, policy, observed, stabilized_size):
        stabilized_size, reason = observed.members, Reason.SCALE_DOWN_STABILIZED
    size, limit = limit_change(state, policy, stabilized_size, observed.members, now)
    reason = limit or reason
    if missing_signals and size < observed.members and limit != Reason.TOO_MANY_REPLICAS:
        size, reason = observed.members, Reason.METRIC_UNAVAILABLE
    if (
        size == observed.members
        and observed.ready < min(proposed, observed.members)
        and limit is None
        and not missing_signals
    ):
        reason = Reason.PENDING_MEMBERS
    why = f"{missing_signals}; {SENTENCES[reason]}" if reason == Reason.METRIC_UNAVAILABLE else SENTENCES[reason]
    return Recommendation(size, state, reason, _message(why, observed, proposed, size), forecast)


def scale_to_or_from_zero(
    observed: Observation, policy: ScalingPolicySpec, state: ScalingState, now: float
) -> Recommendation | None:
    """KEDA's switch beside the HPA's rule: to zero after the cooldown period without a request, back when one waits.

    None if the HPA's rule decides. The state is reset at zero, since the load learnt so far says nothing about later.
    """
    floor = schedule_floor(policy.schedules, now)
    if observed.members == 0:
        waits = observed.waiting > 0 or floor > 0 or policy.min_replicas > 0
        size = min(
            round_to_blocks(max(observed.returns_to, floor, policy.min_replicas), policy.block), bounds(policy)[1]
        )
        reason = Reason.SCALE_TARGET_ACTIVATED if waits else Reason.DESIRED_WITHIN_RANGE
        size = size if waits else 0
        return Recommendation(
            size, state, reason, f"0 nodes, {pluralized(observed.waiting, 'waiting request')}: {SENTENCES[reason]}"
        )
    settled = observed.ready == observed.members and not observed.waiting
    if (
        policy.min_replicas
        or floor
        or observed.idle_s is None
        or observed.idle_s < policy.cooldown_period
        or not settled
    ):
        return None
    reason = Reason.SCALE_TARGET_DEACTIVATED
    nodes = pluralized(observed.members, "node")
    message = f"{nodes}, no request for {observed.idle_s:.0f} s; goes to 0: {SENTENCES[reason]}"
    return Recommendation(0, ScalingState(), reason, message)


def state_after_scaling(state: ScalingState, policy: ScalingPolicySpec, change: int, now: float) -> ScalingState:
    """The state after the size has changed by `change` members."""
    state = state.model_copy()
    record_change(state, policy.behavior, change, now)
    return state


def schedule_floor(schedules: list[Schedule], now: float) -> int:
    """The highest minimum of the schedules in force at `now`; 0 if none is."""
    moment = datetime.fromtimestamp(now, UTC)
    return max((each.min_replicas for each in schedules if _in_force(each, moment)), default=0)


def _in_force(schedule: Schedule, moment: datetime) -> bool:
    clock = moment.strftime("%H:%M")
    day = moment.strftime("%a")
    if schedule.start < schedule.end:
        inside = schedule.start <= clock < schedule.end
    else:
        inside = clock >= schedule.start or clock < schedule.end
        if clock < schedule.end:  # it began the day before
            day = datetime.fromtimestamp(moment.timestamp() - 86_400, UTC).strftime("%a")
    return inside and (not schedule.days or day in schedule.days)


def _propose_by_metric(metric: Metric, observed: Observation, policy: ScalingPolicySpec) -> int | None:
    """The HPA's rule; None if the metric has no value."""
    value, target = observed.metrics.get(metric.object.metric.name), metric.object.target
    if value is None:
        return None
    members = max(1, observed.members)
    ratio = value / target.number / (members if target.type == "AverageValue" else 1)
    down, up = tolerances(policy.behavior)
    if 1 - down - 1e-9 <= ratio <= 1 + up + 1e-9:
        return observed.members
    proposal = ceil(ratio * members - 1e-9) if target.type == "AverageValue" else ceil(ratio * observed.ready - 1e-9)
    if target.type == "Value" and (ratio > 1) != (proposal > observed.members):
        return (
            observed.members
        )  # those that start are no reason to shrink, nor is what they have yet to take over one to grow
    return proposal


def _propose_by_load(observed: Observation, policy: ScalingPolicySpec, load: float, forecast_applies: bool) -> int:
    """Members for the load at the target utilization, and for the backlog at the time a member started now serves.

    `load` is an average; with the load of one tick, a burst would be taken to last for the whole start.
    """
    until_s = observed.start_s + TICK_S
    starting = observed.members - observed.ready
    allowed_s = policy.objective.backlog_seconds
    waiting = observed.backlog + (load - observed.ready - starting / 2) * until_s if observed.backlog else 0.0
    if policy.forecasts == "Auto" and observed.queues:
        allowed_s = max(allowed_s, BACKLOG_CLEAR_S, BACKLOG_CLEAR_SHARE * until_s)
        if observed.backlog <= BACKLOG_TOLERANCE * policy.objective.backlog_seconds * observed.ready:
            waiting, load = 0.0, 0.0 if forecast_applies else load  # the forecast has its own headroom
    needs = load / policy.utilization + max(0.0, waiting) / allowed_s
    return _apply_tolerance(needs, observed, policy, tolerances(policy.behavior)[1])


def _initial_size(observed: Observation, policy: ScalingPolicySpec, state: ScalingState, now: float) -> int:
    """The size found at the beginning, or what is left of it; 0 once enough has been observed since."""
    if policy.forecasts != "Auto" or policy.metrics or observed.load is None:
        return 0
    state.began = state.began or (now, observed.members)
    since, size = state.began
    known = now - since >= WARM_UP_S or policy.behavior.scale_down.stabilization_window_seconds is not None
    return 0 if known else round_to_blocks(min(size, observed.members), policy.block)


def _was_sufficient(state: ScalingState, policy: ScalingPolicySpec, observed: Observation, members: int) -> bool:
    """Whether `members` would have been enough for the highest recent load."""
    most = highest_mean(state.loads, SCALE_DOWN_CHECK_S, max(SMOOTHED_S, observed.stays_s / 2))
    return most <= members * policy.utilization


def _apply_tolerance(needs: float, observed: Observation, policy: ScalingPolicySpec, up: float) -> int:
    """The number of members that `needs` calls for, within the tolerances, so that the next decision does not flap."""
    if needs > observed.members:
        return ceil(needs - 1e-9) if needs > observed.members * (1 + up) else observed.members
    return min(observed.members, ceil(needs * (1 + tolerances(policy.behavior)[0]) - 1e-9))


def _forecast_floor(state: ScalingState, policy: ScalingPolicySpec, observed: Observation) -> int | None:
    if policy.forecasts == "Off" or observed.load is None:
        return None
    sizing = Sizing(
        observed.start_s,
        max(SMOOTHED_S, observed.stays_s / 2),
        BACKLOG_TOLERANCE * policy.objective.backlog_seconds if observed.queues else 0.0,
        observed.stays_s,
        policy.block,
        policy.min_replicas,
    )
    missed = sum(load for _, load in state.missed) / max(1e-9, sum(load for _, load in state.loads))
    needs = (1 + min(HEADROOM_PER_MISS * missed, HEADROOM_MAX)) / policy.utilization
    return floor([(at, load * needs) for at, load in state.loads], sizing, TICK_S)


def _missing_signals(policy: ScalingPolicySpec, proposals: Sequence[int | None], forecast: int | None) -> str:
    """Which signals have no value, in words; empty if all have one."""
    if policy.metrics:
        named = zip(policy.metrics, proposals, strict=True)
        missing = [metric.object.metric.name for metric, proposal in named if proposal is None]
        return f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} no value" if missing else ""
    if None in proposals:
        return "no deployment on the target reports its incoming work"
    return "the forecast has too little data" if policy.forecasts == "Auto" and forecast is None else ""


def _message(why: str, observed: Observation, proposed: int, size: int) -> str:
    observed_size = pluralized(observed.members, "node") + (
        "" if observed.ready == observed.members else f", {observed.ready} ready"
    )
    work = (
        ""
        if observed.load is None
        else f"; load of {observed.load:.1f} nodes, backlog of {observed.backlog:.0f} node-seconds"
    )
    change = "stays" if size == observed.members else f"goes to {size}"
    return f"{observed_size}{work}; {proposed} proposed, {change}: {why}"


SENTENCES: dict[Reason, str] = {
    Reason.DESIRED_WITHIN_RANGE: "the size matches the signals",
    Reason.ABOVE_TARGET: "the signals ask for more",
    Reason.BELOW_TARGET: "the signals ask for fewer",
    Reason.SCHEDULE_FLOOR: "a schedule sets a higher minimum",
    Reason.FORECAST_FLOOR: "the forecast asks for more by the time a node started now would serve",
    Reason.WHOLE_BLOCKS: "nodes come in whole blocks",
    Reason.SCALE_UP_STABILIZED: "the stabilization window's lowest recommendation applies",
    Reason.SCALE_DOWN_STABILIZED: "the stabilization window's highest recommendation applies",
    Reason.SCALE_UP_LIMIT: "its scale-up policies allow no faster growth",
    Reason.SCALE_DOWN_LIMIT: "its scale-down policies allow no faster shrinking",
    Reason.TOO_MANY_REPLICAS: "limited by maxReplicas",
    Reason.TOO_FEW_REPLICAS: "limited by minReplicas",
    Reason.PENDING_MEMBERS: "members that are starting or being replaced count as present",
    Reason.METRIC_UNAVAILABLE: "it does not shrink until every signal has a value",
    Reason.SERVICE_UNAVAILABLE: "CloudMatrix-Infer does not answer, so it does not shrink",
    Reason.TARGET_NOT_FOUND: "there is no such target",
    Reason.TARGET_NOT_READY: "the target is not in a state to be scaled",
    Reason.CHANGE_UNDER_WAY: "the last change is still under way",
    Reason.DRAINING: "requests run on nodes that are to leave",
    Reason.REFUSED: "the change was refused",
    Reason.SPARES_COVER: "warm spares cover the nodes that would be added in advance",
    Reason.ROLES_REBALANCED: "nodes change roles, so nothing has to be allocated",
    Reason.SCALE_TARGET_DEACTIVATED: "the cooldown period is over",
    Reason.SCALE_TARGET_ACTIVATED: "a request waits, or a schedule asks for it",
}
