"""The HorizontalPodAutoscaler algorithm: metrics to proposals, proposals to one size, and its limits.

Pure functions. A metric proposes ceil(pods x usage / target), or the current size while usage is within a tenth of the
target. The largest proposal wins; it is then limited by the stabilisation windows (when scaling down, the highest
recommendation of the last five minutes) and by the scaling policies.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.builtin.autoscaling import DOWN, UP

Obj = dict[str, Any]

TOLERANCE = 0.1


@dataclass(frozen=True)
class Sample:
    """One pod: its usage (None: unknown) and request, in milli-units, and whether it is ready."""

    used: int | None
    requested: int = 0
    ready: bool = True


@dataclass
class ScalingHistory:
    """An autoscaler's recent recommendations and changes of size, with their times. Losing it is harmless."""

    recommended: list[tuple[float, int]] = field(default_factory=list)
    changes: list[tuple[float, int]] = field(default_factory=list)


class MetricUnavailable(Exception):
    """The metric is not available; `reason` goes into the ScalingActive condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def scaling_rules(hpa: Obj, up: bool) -> Obj:
    reported = (hpa["spec"].get("behavior") or {}).get("scaleUp" if up else "scaleDown") or {}
    return (UP if up else DOWN) | {key: value for key, value in reported.items() if value is not None}


def tolerances(hpa: Obj) -> tuple[float, float]:
    """Tolerances as fractions: (scaling down, scaling up)."""
    from matrixcontainer.kubeapi.meta.quantities import milli

    found = [scaling_rules(hpa, up).get("tolerance") for up in (False, True)]
    down, up = (TOLERANCE if text is None else milli(text) / 1000 for text in found)
    return down, up


def is_within_tolerance(ratio: float, tolerance: tuple[float, float]) -> bool:
    return 1 - tolerance[0] <= ratio <= 1 + tolerance[1]


# ---- proposals


def replicas_by_ratio(ratio: float, current: int, ready: int, tolerance: tuple[float, float]) -> int:
    """Proposal for a value of the whole target: scale the ready pods by its ratio to the target value."""
    return current if is_within_tolerance(ratio, tolerance) else math.ceil(ratio * ready)


def replicas_by_average(total: int, target: int, current: int, tolerance: tuple[float, float]) -> int:
    """Proposal for a value that is averaged over the pods."""
    return (
        current if current and is_within_tolerance(total / (target * current), tolerance) else math.ceil(total / target)
    )


def replicas_by_pods(
    samples: list[Sample], target: float, current: int, tolerance: tuple[float, float], of_requests: bool, cpu: bool
) -> tuple[int, int]:
    """(proposal, average usage in the unit of the target). Pods that are unready or without metrics only dampen it.

    The target is a fraction of the requests (`of_requests`; 0.5 is 50 %), or milli-units per pod.
    """
    known = [s for s in samples if s.used is not None and (s.ready or not cpu)]
    missing = [s for s in samples if s.used is None]
    unready = [s for s in samples if s.used is not None and not s.ready and cpu]
    if not known:
        text = "did not receive metrics for targeted pods (pods might be unready)"
        raise MetricUnavailable("FailedGetResourceMetric", text)

    def ratio_of(uses: list[tuple[int, Sample]]) -> float:
        if of_requests:
            asked = sum(sample.requested for _, sample in uses)
            return sum(use for use, _ in uses) / (asked * target) if asked else 0.0
        return sum(use for use, _ in uses) / (len(uses) * target)

    uses = [(s.used or 0, s) for s in known]
    ratio = ratio_of(uses)
    average = round(ratio * target * 100) if of_requests else sum(use for use, _ in uses) // len(uses)
    rebalance = bool(unready) and ratio > 1
    if not missing and not rebalance:
        return replicas_by_ratio(ratio, current, len(known), tolerance), average
    if missing and ratio < 1:
        uses += [(int(max(1.0, target) * s.requested) if of_requests else int(target), s) for s in missing]
    elif missing:
        uses += [(0, s) for s in missing]
    if rebalance:
        uses += [(0, s) for s in unready]
    again = ratio_of(uses)
    if is_within_tolerance(again, tolerance) or (ratio < 1) != (again < 1):
        return current, average
    proposal = math.ceil(again * len(uses))
    if (again < 1 and proposal > current) or (again > 1 and proposal < current):
        return current, average
    return proposal, average


# ---- one size


def stabilize_recommendation(
    history: ScalingHistory, hpa: Obj, desired: int, current: int, now: float
) -> tuple[int, str]:
    """(size, reason if it differs from the wanted size)."""
    up_s, down_s = (scaling_rules(hpa, up).get("stabilizationWindowSeconds") or 0 for up in (True, False))
    if not history.recommended:
        history.recommended = [(now, current)]
    upper = min([desired, *(size for at, size in history.recommended if at > now - up_s)])
    lower = max([desired, *(size for at, size in history.recommended if at > now - down_s)])
    history.recommended = [(at, size) for at, size in history.recommended if at > now - max(up_s, down_s)]
    history.recommended.append((now, desired))
    size = min(max(current, upper), lower)
    if size == desired:
        return size, ""
    return size, "ScaleUpStabilized" if desired > current else "ScaleDownStabilized"


def limit_change(history: ScalingHistory, hpa: Obj, desired: int, current: int, now: float) -> tuple[int, str, str]:
    """(size, reason, message) after applying policies, minimum and maximum; an empty reason means unlimited."""
    least, most = hpa["spec"].get("minReplicas", 1), hpa["spec"]["maxReplicas"]
    if desired > current:
        limit = max(_policy_limit(scaling_rules(hpa, True), history, current, now, up=True), current)
        if min(limit, most) < desired:
            if limit < most:
                return (
                    limit,
                    "ScaleUpLimit",
                    "the desired replica count is increasing faster than the maximum scale rate",
                )
            return most, "TooManyReplicas", "the desired replica count is more than the maximum replica count"
    elif desired < current:
        limit = min(_policy_limit(scaling_rules(hpa, False), history, current, now, up=False), current)
        if max(limit, least) > desired:
            if limit > least:
                text = "the desired replica count is decreasing faster than the maximum scale rate"
                return limit, "ScaleDownLimit", text
            return least, "TooFewReplicas", "the desired replica count is less than the minimum replica count"
    if desired > most:
        return most, "TooManyReplicas", "the desired replica count is more than the maximum replica count"
    if desired < least:
        return least, "TooFewReplicas", "the desired replica count is less than the minimum replica count"
    return desired, "", "the desired count is within the acceptable range"


def _policy_limit(rules: Obj, history: ScalingHistory, current: int, now: float, up: bool) -> int:
    select = rules.get("selectPolicy") or "Max"
    if select == "Disabled":
        return current
    sizes = []
    for policy in rules["policies"]:
        recent = sum(change for at, change in history.changes if at > now - policy["periodSeconds"])
        start, value = current - recent, policy["value"]
        if policy["type"] == "Pods":
            sizes.append(start + value if up else start - value)
        else:
            sizes.append(math.ceil(start * (1 + value / 100)) if up else int(start * (1 - value / 100)))
    return max(sizes) if (select == "Max") == up else min(sizes)


def record_change(history: ScalingHistory, hpa: Obj, change: int, now: float) -> None:
    """Record a change of size, which counts against the policies for the longest of their periods."""
    policies = scaling_rules(hpa, True)["policies"] + scaling_rules(hpa, False)["policies"]
    longest = max(policy["periodSeconds"] for policy in policies)
    history.changes = [(at, was) for at, was in history.changes if at > now - longest] + [(now, change)]
