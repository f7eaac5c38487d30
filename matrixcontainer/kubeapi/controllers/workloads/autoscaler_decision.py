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
class Memory:
    """An autoscaler's recent recommendations and changes of size, with their times. Losing it is harmless."""

    recommended: list[tuple[float, int]] = field(default_factory=list)
    changes: list[tuple[float, int]] = field(default_factory=list)


class NoMetric(Exception):
    """The metric is not available; `reason` goes into the ScalingActive condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def rules_of(hpa: Obj, up: bool) -> Obj:
    reported = (hpa["spec"].get("behavior") or {}).get("scaleUp" if up else "scaleDown") or {}
    return (UP if up else DOWN) | {key: value for key, value in reported.items() if value is not None}


def tolerances(hpa: Obj) -> tuple[float, float]:
    """Tolerances as fractions: (scaling down, scaling up)."""
    from matrixcontainer.kubeapi.meta.quantities import milli

    found = [rules_of(hpa, up).get("tolerance") for up in (False, True)]
    down, up = (TOLERANCE if text is None else milli(text) / 1000 for text in found)
    return down, up


def within(ratio: float, tolerance: tuple[float, float]) -> bool:
    return 1 - tolerance[0] <= ratio <= 1 + tolerance[1]


# ---- proposals


def by_ratio(ratio: float, current: int, ready: int, tolerance: tuple[float, float]) -> int:
    """Proposal for a value of the whole target: scale the ready pods by its ratio to the target value."""
    return current if within(ratio, tolerance) else math.ceil(ratio * ready)


def by_average(total: int, target: int, current: int, tolerance: tuple[float, float]) -> int:
    """Proposal for a value that is averaged over the pods."""
    return current if current and within(total / (target * current), tolerance) else math.ceil(total / target)


def by_pods(
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
        raise NoMetric("FailedGetResourceMetric", text)

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
        return by_ratio(ratio, current, len(known), tolerance), average
    if missing and ratio < 1:
        uses += [(int(max(1.0, target) * s.requested) if of_requests else int(target), s) for s in missing]
    elif missing:
        uses += [(0, s) for s in missing]
    if rebalance:
        uses += [(0, s) for s in unready]
    again = ratio_of(uses)
    if within(again, tolerance) or (ratio < 1) != (again < 1):
        return current, average
    proposal = math.ceil(again * len(uses))
    if (again < 1 and proposal > current) or (again > 1 and proposal < current):
        return current, average
    return proposal, average


# ---- one size


def stabilized(memory: Memory, hpa: Obj, wanted: int, current: int, now: float) -> tuple[int, str]:
    """(size, reason if it differs from the wanted size)."""
    up_s, down_s = (rules_of(hpa, up).get("stabilizationWindowSeconds") or 0 for up in (True, False))
    if not memory.recommended:
        memory.recommended = [(now, current)]
    upper = min([wanted, *(size for at, size in memory.recommended if at > now - up_s)])
    lower = max([wanted, *(size for at, size in memory.recommended if at > now - down_s)])
    memory.recommended = [(at, size) for at, size in memory.recommended if at > now - max(up_s, down_s)]
    memory.recommended.append((now, wanted))
    size = min(max(current, upper), lower)
    if size == wanted:
        return size, ""
    return size, "ScaleUpStabilized" if wanted > current else "ScaleDownStabilized"


def limited(memory: Memory, hpa: Obj, wanted: int, current: int, now: float) -> tuple[int, str, str]:
    """(size, reason, message) after applying policies, minimum and maximum; an empty reason means unlimited."""
    least, most = hpa["spec"].get("minReplicas", 1), hpa["spec"]["maxReplicas"]
    if wanted > current:
        limit = max(_policy_limit(rules_of(hpa, True), memory, current, now, up=True), current)
        if min(limit, most) < wanted:
            if limit < most:
                return (
                    limit,
                    "ScaleUpLimit",
                    "the desired replica count is increasing faster than the maximum scale rate",
                )
            return most, "TooManyReplicas", "the desired replica count is more than the maximum replica count"
    elif wanted < current:
        limit = min(_policy_limit(rules_of(hpa, False), memory, current, now, up=False), current)
        if max(limit, least) > wanted:
            if limit > least:
                text = "the desired replica count is decreasing faster than the maximum scale rate"
                return limit, "ScaleDownLimit", text
            return least, "TooFewReplicas", "the desired replica count is less than the minimum replica count"
    if wanted > most:
        return most, "TooManyReplicas", "the desired replica count is more than the maximum replica count"
    if wanted < least:
        return least, "TooFewReplicas", "the desired replica count is less than the minimum replica count"
    return wanted, "", "the desired count is within the acceptable range"


def _policy_limit(rules: Obj, memory: Memory, current: int, now: float, up: bool) -> int:
    select = rules.get("selectPolicy") or "Max"
    if select == "Disabled":
        return current
    sizes = []
    for policy in rules["policies"]:
        recent = sum(change for at, change in memory.changes if at > now - policy["periodSeconds"])
        start, value = current - recent, policy["value"]
        if policy["type"] == "Pods":
            sizes.append(start + value if up else start - value)
        else:
            sizes.append(math.ceil(start * (1 + value / 100)) if up else int(start * (1 - value / 100)))
    return max(sizes) if (select == "Max") == up else min(sizes)


def remember(memory: Memory, hpa: Obj, change: int, now: float) -> None:
    """Record a change of size, which counts against the policies for the longest of their periods."""
    policies = rules_of(hpa, True)["policies"] + rules_of(hpa, False)["policies"]
    longest = max(policy["periodSeconds"] for policy in policies)
    memory.changes = [(at, was) for at, was in memory.changes if at > now - longest] + [(now, change)]
