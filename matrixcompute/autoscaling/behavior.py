"""How fast a size may change: the stabilization windows and rate policies of the HPA, with their history stored.

The embedded Kubernetes API implements the same rules for its own autoscaler, over Kubernetes objects and without whole
blocks; neither may import the other.
"""

from __future__ import annotations

from math import ceil

from matrixcompute.autoscaling.policy import (
    Behavior,
    Reason,
    ScalingPolicySpec,
    ScalingRate,
    ScalingRules,
    ScalingState,
)

TOLERANCE = 0.1
UP_WINDOW_S, DOWN_WINDOW_S = 0, 300
UP_RATES = (
    ScalingRate(type="Pods", value=4, period_seconds=15),
    ScalingRate(type="Percent", value=100, period_seconds=15),
)
DOWN_RATES = (ScalingRate(type="Percent", value=100, period_seconds=15),)
"""The defaults of `autoscaling/v2`."""


def tolerances(behavior: Behavior) -> tuple[float, float]:
    """The tolerances (down, up), as fractions."""
    down, up = behavior.scale_down.tolerance, behavior.scale_up.tolerance
    return TOLERANCE if down is None else down, TOLERANCE if up is None else up


def round_to_blocks(nodes: float, block: int, up: bool = True) -> int:
    """The nodes rounded up, or down, to whole blocks."""
    blocks = nodes / block
    return (ceil(blocks - 1e-9) if up else int(blocks + 1e-9)) * block


def bounds(policy: ScalingPolicySpec) -> tuple[int, int]:
    """The minimum and maximum in whole blocks; the maximum is below the minimum if no whole blocks fit between."""
    return round_to_blocks(policy.min_replicas, policy.block), round_to_blocks(
        policy.max_replicas, policy.block, up=False
    )


def stabilize(
    state: ScalingState,
    behavior: Behavior,
    desired: int,
    current: int,
    now: float,
    down_window_s: float = DOWN_WINDOW_S,
) -> int:
    """The size limited to grow no further than the lowest recommendation of the scale-up window, and to shrink no
    further than the highest of the scale-down window.

    Records the recommendation in `state`, whose history begins with the current size. `down_window_s`: the scale-down
    window if the policy sets none.
    """
    up_s = _window_s(behavior.scale_up, UP_WINDOW_S)
    down_s = _window_s(behavior.scale_down, down_window_s)
    history = state.recommended or [(now, current)]
    upper = min([desired, *(size for at, size in history if at > now - up_s)])
    lower = max([desired, *(size for at, size in history if at > now - down_s)])
    kept = [(at, size) for at, size in history if at > now - max(up_s, down_s)]
    state.recommended = [*kept, (now, desired)]
    return min(max(current, upper), lower)


def limit_change(
    state: ScalingState, policy: ScalingPolicySpec, desired: int, current: int, now: float
) -> tuple[int, Reason | None]:
    """The size after rates, bounds and whole blocks, and the reason that limited it, if any."""
    least, most = bounds(policy)
    if desired > current:
        limit = max(
            round_to_blocks(_rate_limit(state, policy.behavior, current, now, up=True), policy.block, up=False), current
        )
        if limit < min(desired, most):
            return (limit, Reason.SCALE_UP_LIMIT) if limit >= least else (least, Reason.TOO_FEW_REPLICAS)
    elif desired < current:
        limit = min(round_to_blocks(_rate_limit(state, policy.behavior, current, now, up=False), policy.block), current)
        if limit > max(desired, least):
            return (limit, Reason.SCALE_DOWN_LIMIT) if limit <= most else (most, Reason.TOO_MANY_REPLICAS)
    if desired > most:
        return most, Reason.TOO_MANY_REPLICAS
    return (least, Reason.TOO_FEW_REPLICAS) if desired < least else (desired, None)


def record_change(state: ScalingState, behavior: Behavior, change: int, now: float) -> None:
    """Record a change of size, and drop those older than the longest period of the rates."""
    longest = max(rate.period_seconds for up in (True, False) for rate in _rates(behavior, up))
    state.changes = [(at, was) for at, was in state.changes if at > now - longest]
    if change:
        state.changes.append((now, change))


def _window_s(rules: ScalingRules, default: float) -> float:
    return default if rules.stabilization_window_seconds is None else rules.stabilization_window_seconds


def _rates(behavior: Behavior, up: bool) -> tuple[ScalingRate, ...]:
    given = behavior.scale_up.policies if up else behavior.scale_down.policies
    return tuple(given) or (UP_RATES if up else DOWN_RATES)


def _rate_limit(state: ScalingState, behavior: Behavior, current: int, now: float, up: bool) -> int:
    rules = behavior.scale_up if up else behavior.scale_down
    if rules.select_policy == "Disabled":
        return current
    sign, sizes = 1 if up else -1, []
    for rate in _rates(behavior, up):
        recent = sum(change for at, change in state.changes if at > now - rate.period_seconds and change * sign > 0)
        start = current - recent
        if rate.type == "Pods":
            sizes.append(start + sign * rate.value)
        else:
            part = start * (1 + sign * rate.value / 100)
            sizes.append(ceil(part) if up else int(part))
    return max(sizes) if (rules.select_policy == "Max") == up else min(sizes)
