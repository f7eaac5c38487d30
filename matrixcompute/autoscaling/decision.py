"""recommend: how many members there are to be. Pure: the same observation, policy and memory give the same answer.

Each signal proposes a size, as HPA computes it; the largest counts. The floors of schedules and of the forecast raise
it, whole blocks round it up, windows and rates hold it back, and the bounds come last. A signal that says nothing
forbids shrinking. Members that start, or that recovery replaces, count as there: what they are to do is not asked for
twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil

from matrixcommon.model.quantities import counted
from matrixcompute.autoscaling.backtest import Sizing, floor
from matrixcompute.autoscaling.behavior import DOWN_WINDOW_S, bounds, limited, remember, stabilized, tolerances, whole
from matrixcompute.autoscaling.forecast import KEPT_S, SAMPLES_MIN, SMOOTHED_S, highest, smoothed
from matrixcompute.autoscaling.policy import Metric, PoolSizes, Reason, ScalingPolicySpec, ScalingState, Schedule

TICK_S = 15.0
"""How often it is looked, as HPA does; what is asked for now is asked for again a tick later at the earliest."""
WINDOW_S = 30.0
"""Over which the metrics that a policy names are measured. The work that comes in is that of each look: the decision
itself takes means of what it was shown."""
SPARED_S = 1200.0
"""One block fewer must have been enough for so long: the noise of a constant load releases nobody."""
FORECAST_TOLERANCE = 0.05
"""A forecast that asks for so much more than there is is within its own error."""
WORKED_OFF_S, WORKED_OFF_SHARE = 30.0, 0.4
"""Where a forecast covers the load, what waits all the same is worked off in so long, or in that share of the time in
which it piles up: until a member that is asked for now serves. In a time that does not grow with it, a start of minutes
asks for many times the members that are missing."""
BACKLOG_SHARE = 0.3
"""Where a forecast covers the load, what waits asks for more from that share of the time it may wait; rules are judged
by it too, for bursts within a tick are not in what they are judged by."""
CAUTION, CAUTION_MAX = 20.0, 0.5
"""Headroom on top of the forecast for each part of the last hour that waited for too long, and the most: one in a
hundred late asks for a fifth more."""
KEPT_S_MIN = 120.0
"""What is asked for by the own signals counts for at least so long; no change under constant load."""
LEARNT_S = 1800.0
"""With a forecast the size that was found is kept until so much has been seen, half of what is remembered: before that
nothing says what comes back. A window of the policy's own goes before it."""


@dataclass(frozen=True)
class Observation:
    """What is known of the members at one moment. A metric that is not there says nothing.

    `members` are those that belong to it, whatever they are doing; `load` is the work that comes in, in members that
    it would keep busy, `backlog` what waits, in seconds of one member; `start_s` how long a member takes to serve, and
    `stays_s` how long a request stays with it: what comes in counts as a mean over half of
    that, as the requests that are there on the mean have stayed so long.
    """

    members: int
    ready: int
    load: float | None = None
    backlog: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    start_s: float = 60.0
    stays_s: float = SMOOTHED_S
    queues: bool = False
    """Work waits for a member and is then served at full speed (prompts), instead of sharing those there are."""
    least: int = 1
    """With fewer it cannot serve, or is below its own floor."""
    idle_s: float | None = None
    """Since when nothing has come in or run."""
    waiting: int = 0
    """Requests that wait for what is scaled to zero."""
    spares: int = 0
    """Nodes that it holds beside the members, booted or booting."""
    boot_s: float = 0.0
    """How long a free node takes to be there, before it starts."""
    join_s: float = 0.0
    """The same of a spare."""
    returns_to: int = 1
    """Members that it had before it was scaled to zero."""


@dataclass(frozen=True)
class Recommendation:
    """A size, what is to be remembered with it, and why."""

    replicas: int
    state: ScalingState
    reason: Reason
    message: str
    forecast: int | None = None
    """The floor that the forecast makes, or would make."""
    pools: PoolSizes | None = None
    """Of each role, where these are sized."""


def recommend(seen: Observation, policy: ScalingPolicySpec, state: ScalingState, now: float) -> Recommendation:
    """The size for this moment. `state` stays as it is; the recommendation has the next one."""
    if (switched := to_or_from_zero(seen, policy, state, now)) is not None:
        return switched
    policy = policy.model_copy(
        update={"min_replicas": min(max(policy.min_replicas, seen.least, 1), policy.max_replicas)}
    )
    state = state.model_copy()
    if seen.load is not None:
        state.loads = [each for each in state.loads if each[0] > now - KEPT_S] + [(now, seen.load)]
        # What comes late raises the forecast's headroom, so only what a forecast was there for: neither what waits for
        # members that start, nor what the size could not serve that was found at the beginning.
        waits = seen.queues and seen.ready == seen.members and len(state.loads) >= SAMPLES_MIN
        late = waits and seen.backlog > policy.objective.backlog_seconds * seen.ready
        state.missed = [each for each in state.missed if each[0] > now - KEPT_S] + [(now, seen.load)] * late
    proposals = [_by_metric(each, seen, policy) for each in policy.metrics]
    predicted = _forecast_floor(state, policy, seen)
    foreseen = predicted is not None and policy.forecasts == "Auto"
    if not policy.metrics:
        proposals = [
            None
            if seen.load is None
            else _by_work(seen, policy, smoothed(state.loads, now, max(SMOOTHED_S, seen.stays_s / 2)), foreseen)
        ]
    known = [each for each in proposals if each is not None]
    silent = _silent(policy, proposals, predicted)
    wanted, reason = max(known, default=seen.members), Reason.DESIRED_WITHIN_RANGE
    if wanted != seen.members:
        reason = Reason.ABOVE_TARGET if wanted > seen.members else Reason.BELOW_TARGET
    if silent and wanted <= seen.members:
        wanted, reason = seen.members, Reason.METRIC_UNAVAILABLE
    asked = wanted

    scheduled = schedule_floor(policy.schedules, now)
    if scheduled > wanted:
        wanted, reason = scheduled, Reason.SCHEDULE_FLOOR
    if policy.forecasts == "Auto" and predicted is not None and predicted > wanted:
        wanted = predicted  # never less than the policy's least, which is then what asks for it
        reason = Reason.FORECAST_FLOOR if predicted > policy.min_replicas else Reason.TOO_FEW_REPLICAS
    blocks = whole(wanted, policy.block)
    if blocks != wanted and blocks == seen.members:
        reason = Reason.WHOLE_BLOCKS
    wanted = blocks

    kept_s = DOWN_WINDOW_S if policy.metrics else max(KEPT_S_MIN, seen.start_s)
    if (kept := _kept(seen, policy, state, now)) > wanted:
        wanted, reason = kept, Reason.SCALE_DOWN_STABILIZED
    steady = stabilized(state, policy.behavior, wanted, seen.members, now, kept_s)
    if steady != wanted:
        reason = Reason.SCALE_UP_STABILIZED if wanted > steady else Reason.SCALE_DOWN_STABILIZED
    one_fewer = steady == seen.members - policy.block and not policy.metrics and seen.load is not None and not foreseen
    if one_fewer and not _spared(state, policy, seen, steady):
        steady, reason = seen.members, Reason.SCALE_DOWN_STABILIZED
    size, limit = limited(state, policy, steady, seen.members, now)
    reason = limit or reason
    if silent and size < seen.members and limit != Reason.TOO_MANY_REPLICAS:
        size, reason = seen.members, Reason.METRIC_UNAVAILABLE
    if size == seen.members and seen.ready < min(asked, seen.members) and limit is None and not silent:
        reason = Reason.PENDING_MEMBERS
    why = f"{silent}; {SENTENCES[reason]}" if reason == Reason.METRIC_UNAVAILABLE else SENTENCES[reason]
    return Recommendation(size, state, reason, _message(why, seen, asked, size), predicted)


def to_or_from_zero(
    seen: Observation, policy: ScalingPolicySpec, state: ScalingState, now: float
) -> Recommendation | None:
    """KEDA's own switch beside the rule: to zero after the cooldown period without a request, back when one waits.

    None where the rule decides. What was learnt of the load says nothing of the time after zero.
    """
    floor = schedule_floor(policy.schedules, now)
    if seen.members == 0:
        waits = seen.waiting > 0 or floor > 0 or policy.min_replicas > 0
        size = min(whole(max(seen.returns_to, floor, policy.min_replicas), policy.block), bounds(policy)[1])
        reason = Reason.SCALE_TARGET_ACTIVATED if waits else Reason.DESIRED_WITHIN_RANGE
        size = size if waits else 0
        return Recommendation(
            size, state, reason, f"0 nodes, {counted(seen.waiting, 'waiting request')}: {SENTENCES[reason]}"
        )
    settled = seen.ready == seen.members and not seen.waiting
    if policy.min_replicas or floor or seen.idle_s is None or seen.idle_s < policy.cooldown_period or not settled:
        return None
    reason = Reason.SCALE_TARGET_DEACTIVATED
    message = (
        f"{counted(seen.members, 'node')}, nothing has come in for {seen.idle_s:.0f} s; goes to 0: {SENTENCES[reason]}"
    )
    return Recommendation(0, ScalingState(), reason, message)


def scaled(state: ScalingState, policy: ScalingPolicySpec, change: int, now: float) -> ScalingState:
    """The memory once the size has changed by so many."""
    state = state.model_copy()
    remember(state, policy.behavior, change, now)
    return state


def schedule_floor(schedules: list[Schedule], now: float) -> int:
    """The highest floor of those that hold at this moment; 0 where none does."""
    moment = datetime.fromtimestamp(now, UTC)
    return max((each.min_replicas for each in schedules if _holds(each, moment)), default=0)


def _holds(schedule: Schedule, moment: datetime) -> bool:
    clock = moment.strftime("%H:%M")
    day = moment.strftime("%a")
    if schedule.start < schedule.end:
        inside = schedule.start <= clock < schedule.end
    else:
        inside = clock >= schedule.start or clock < schedule.end
        if clock < schedule.end:  # it began the day before
            day = datetime.fromtimestamp(moment.timestamp() - 86_400, UTC).strftime("%a")
    return inside and (not schedule.days or day in schedule.days)


def _by_metric(metric: Metric, seen: Observation, policy: ScalingPolicySpec) -> int | None:
    """HPA's rule; None where the metric says nothing."""
    value, target = seen.metrics.get(metric.object.metric.name), metric.object.target
    if value is None:
        return None
    members = max(1, seen.members)
    ratio = value / target.number / (members if target.type == "AverageValue" else 1)
    down, up = tolerances(policy.behavior)
    if 1 - down - 1e-9 <= ratio <= 1 + up + 1e-9:
        return seen.members
    proposal = ceil(ratio * members - 1e-9) if target.type == "AverageValue" else ceil(ratio * seen.ready - 1e-9)
    if target.type == "Value" and (ratio > 1) != (proposal > seen.members):
        return (
            seen.members
        )  # those that start are no reason to shrink, nor is what they have yet to take over one to grow
    return proposal


def _by_work(seen: Observation, policy: ScalingPolicySpec, load: float, foreseen: bool) -> int:
    """What comes in at the utilization that is aimed at, and what will wait when a member that starts now serves.

    `load` is a mean: of one look's load a burst would be thought to last for the whole start.
    """
    until_s = seen.start_s + TICK_S
    starting = seen.members - seen.ready
    allowed_s = policy.objective.backlog_seconds
    waiting = seen.backlog + (load - seen.ready - starting / 2) * until_s if seen.backlog else 0.0
    if policy.forecasts == "Auto" and seen.queues:
        allowed_s = max(allowed_s, WORKED_OFF_S, WORKED_OFF_SHARE * until_s)
        if seen.backlog <= BACKLOG_SHARE * policy.objective.backlog_seconds * seen.ready:
            waiting, load = 0.0, 0.0 if foreseen else load  # the forecast has its own headroom
    needs = load / policy.utilization + max(0.0, waiting) / allowed_s
    return _enough(needs, seen, policy, tolerances(policy.behavior)[1])


def _kept(seen: Observation, policy: ScalingPolicySpec, state: ScalingState, now: float) -> int:
    """What is left of the size that there was when it began to look; 0 once enough has been seen since."""
    if policy.forecasts != "Auto" or policy.metrics or seen.load is None:
        return 0
    state.began = state.began or (now, seen.members)
    since, size = state.began
    known = now - since >= LEARNT_S or policy.behavior.scale_down.stabilization_window_seconds is not None
    return 0 if known else whole(min(size, seen.members), policy.block)


def _spared(state: ScalingState, policy: ScalingPolicySpec, seen: Observation, members: int) -> bool:
    """Whether so many would have been enough for the most that came lately."""
    most = highest(state.loads, SPARED_S, max(SMOOTHED_S, seen.stays_s / 2))
    return most <= members * policy.utilization


def _enough(needs: float, seen: Observation, policy: ScalingPolicySpec, up: float) -> int:
    """Members for so much; one fewer must not be too few the next moment."""
    if needs > seen.members:
        return ceil(needs - 1e-9) if needs > seen.members * (1 + up) else seen.members
    return min(seen.members, ceil(needs * (1 + tolerances(policy.behavior)[0]) - 1e-9))


def _forecast_floor(state: ScalingState, policy: ScalingPolicySpec, seen: Observation) -> int | None:
    if policy.forecasts == "Off" or seen.load is None:
        return None
    sizing = Sizing(
        seen.start_s,
        max(SMOOTHED_S, seen.stays_s / 2),
        BACKLOG_SHARE * policy.objective.backlog_seconds if seen.queues else 0.0,
        seen.stays_s,
        policy.block,
        policy.min_replicas,
    )
    missed = sum(load for _, load in state.missed) / max(1e-9, sum(load for _, load in state.loads))
    needs = (1 + min(CAUTION * missed, CAUTION_MAX)) / policy.utilization
    return floor([(at, load * needs) for at, load in state.loads], sizing, TICK_S)


def _silent(policy: ScalingPolicySpec, proposals: Sequence[int | None], predicted: int | None) -> str:
    """Which signals say nothing; empty where all speak."""
    if policy.metrics:
        named = zip(policy.metrics, proposals, strict=True)
        silent = [metric.object.metric.name for metric, proposal in named if proposal is None]
        return f"{', '.join(silent)} {'has' if len(silent) == 1 else 'have'} no value" if silent else ""
    if None in proposals:
        return "nothing that is served there says how much work comes in"
    return "the forecast has too little to go by" if policy.forecasts == "Auto" and predicted is None else ""


def _message(why: str, seen: Observation, asked: int, size: int) -> str:
    there = counted(seen.members, "node") + ("" if seen.ready == seen.members else f", {seen.ready} ready")
    work = "" if seen.load is None else f"; the work of {seen.load:.1f} nodes comes in, {seen.backlog:.0f} s of it wait"
    change = "stays" if size == seen.members else f"goes to {size}"
    return f"{there}{work}; {asked} proposed, {change}: {why}"


SENTENCES: dict[Reason, str] = {
    Reason.DESIRED_WITHIN_RANGE: "as many as the signals ask for",
    Reason.ABOVE_TARGET: "the signals ask for more",
    Reason.BELOW_TARGET: "the signals ask for fewer",
    Reason.SCHEDULE_FLOOR: "a schedule asks for no fewer",
    Reason.FORECAST_FLOOR: "the forecast asks for more by the time a node that starts now serves",
    Reason.WHOLE_BLOCKS: "nodes come in whole blocks",
    Reason.SCALE_UP_STABILIZED: "the lowest recommendation of the window counts",
    Reason.SCALE_DOWN_STABILIZED: "the highest recommendation of the window counts",
    Reason.SCALE_UP_LIMIT: "it may not grow faster",
    Reason.SCALE_DOWN_LIMIT: "it may not shrink faster",
    Reason.TOO_MANY_REPLICAS: "maxReplicas",
    Reason.TOO_FEW_REPLICAS: "minReplicas",
    Reason.PENDING_MEMBERS: "members that start or are replaced count as there",
    Reason.METRIC_UNAVAILABLE: "it does not shrink before every signal has a value",
    Reason.SERVICE_UNAVAILABLE: "CloudMatrix-Infer does not answer, so it does not shrink",
    Reason.TARGET_NOT_FOUND: "there is no such target",
    Reason.TARGET_NOT_READY: "the target is not in a state to be scaled",
    Reason.CHANGE_UNDER_WAY: "the last change is still under way",
    Reason.DRAINING: "requests run on nodes that are to leave",
    Reason.REFUSED: "the change was refused",
    Reason.SPARES_COVER: "spares stand for nodes that were to be there ahead",
    Reason.ROLES_REBALANCED: "nodes change their role, and nothing has to be allocated",
    Reason.SCALE_TARGET_DEACTIVATED: "the cooldown period is over",
    Reason.SCALE_TARGET_ACTIVATED: "a request waits, or a schedule asks for it",
}
