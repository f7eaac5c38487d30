"""Bounds with full knowledge of the trace: the smallest constant size that is always enough (static peak), and the
cheapest plan.

The plan of each role is a dynamic programme over members in slots of five seconds. A member is paid for while it
exists, including its start time and its drain, and each request in a slot with fewer members than its work needs has a
price. Work may be deferred until its deadline. Without a ratio or a common limit the two roles are independent, so each
has its own programme. How full members may be and what a late request costs is found by replaying: the result is the
cheapest plan with which the simulated pools meet the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.autoscaler.pools import DIES, TPOT_S, TTFT_S, Outcome, Policy, RoleObservation, timing
from benchmarks.autoscaler.replay import replay
from benchmarks.autoscaler.traces import Trace
from matrixcompute.autoscaling.clairvoyant import cheapest_sizes

PLAN_SLOT_S = 5.0
MEMBERS_RATIO_MAX = 1.25
"""The most members that a policy may have within the goal for node-hours, relative to the most ever needed."""
ATTAINED = 0.99
UTILIZATION_RANGE = (0.5, 1.4)
"""The range of utilization to search for members."""
PRICE_RANGE_S = (0.02, 20.0)
"""The range of prices for a late request, in member-seconds: from where nearly all are late to where none is."""


def static_peak(trace: Trace, step: int = 1) -> tuple[int, int]:
    """The smallest pools of constant size that meet the objective. Prefill is first, as it does not need decode."""
    most = -(-64 // step)
    prefill = step * _bisect_min(most, lambda n: _missed_share(constant(trace, n * step, 64), 0))
    return prefill, step * _bisect_min(most, lambda n: _missed_share(constant(trace, prefill, n * step), 1))


def _bisect_min(most: int, missed: Callable[[int], float]) -> int:
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if missed(middle) <= (1 - ATTAINED) / 2 else (middle + 1, high)
    return low


def constant(trace: Trace, prefill: int, decode: int) -> Outcome:
    return replay(trace, lambda seen: [prefill, decode], (prefill, decode), 0.0, tick_s=600.0)


def _missed_share(outcome: Outcome, role: int) -> float:
    missed = outcome.slow if role else outcome.late
    return float(missed.mean())


@dataclass(frozen=True)
class Need:
    """What one role needs: members at full utilization and requests in each slot, and the duration of a drain (s)."""

    members: np.ndarray
    requests: np.ndarray
    drain_s: float


def needs(trace: Trace, spread: float = 1.0) -> list[Need]:
    """The needs of both roles. A prompt's work is spread over a share of the time that it may take (`spread`: 1 if a
    short prompt never waits behind long ones); an answer decodes for as long as the objective allows."""
    times = timing()
    new = trace.prompt - trace.cached
    alone = np.interp(new, times.lengths, times.alone_s)
    work = times.work_s(new, trace.cached)
    allowed = spread * (np.maximum(TTFT_S, 2 * alone) - alone)
    begins = trace.at + alone
    stays = np.maximum(trace.answer, 2.0) * TPOT_S
    slots = int(trace.seconds / PLAN_SLOT_S) + 1
    capacity = times.batch_within(float(trace.prompt.mean() + trace.answer.mean() / 2)) * DIES
    requests = np.bincount((trace.at / PLAN_SLOT_S).astype(int), minlength=slots)
    return [
        Need(_spread(trace.at, trace.at + allowed, work / allowed, slots), requests, 0.0),
        Need(
            _spread(begins, begins + stays, np.full(len(begins), 1 / capacity), slots),
            requests, float(np.quantile(trace.answer, 0.99) * TPOT_S),
        ),
    ]  # fmt: skip


def _spread(begin: np.ndarray, end: np.ndarray, rate: np.ndarray, slots: int) -> np.ndarray:
    """The mean over each slot of the sum of `rate`, each from its `begin` to its `end`."""
    edges = np.arange(slots + 1) * PLAN_SLOT_S

    def done(at: np.ndarray) -> np.ndarray:
        order = np.argsort(at)
        rates, moments = np.cumsum(rate[order]), np.cumsum((rate * at)[order])
        place = np.searchsorted(at[order], edges)
        rates, moments = np.append(0.0, rates)[place], np.append(0.0, moments)[place]
        return rates * edges - moments

    return np.diff(done(begin) - done(end)) / PLAN_SLOT_S


def attainment_bound(trace: Trace, start_s: float, more: float = MEMBERS_RATIO_MAX, since_s: float = 300.0) -> float:
    """The highest attainment possible for a policy that, after `since_s`, has at most `more` times the members ever
    needed until then: load beyond that is late until a member requested at that moment serves."""
    late = np.zeros(len(trace.at), dtype=bool)
    slot = (trace.at / PLAN_SLOT_S).astype(int)
    for need in needs(trace):
        known = int(np.ceil(start_s / PLAN_SLOT_S)) + 1
        members = np.ceil(more * np.maximum.accumulate(need.members) - 1e-9).clip(1)
        serving = np.concatenate([np.full(known, np.inf), members])[: len(members)]
        late |= (need.members > serving)[slot] & (trace.at > since_s)
    return 1.0 - float(late.mean())


def plan_members(need: Need, full: float, price_s: float, start_s: float, step: int) -> np.ndarray:
    """The members in each slot that minimize the cost of running, starting, draining and late requests."""
    least = np.ceil(need.members / full / step - 1e-9).astype(int).clip(1)
    return cheapest_sizes(least, PLAN_SLOT_S, start_s + need.drain_s, step, need.requests * price_s)


def follow_plans(plans: list[np.ndarray], start_s: float) -> tuple[Policy, tuple[int, int]]:
    """A policy that requests each member in time to serve when the plan needs it. Returns it with its initial pools."""
    ahead = int(np.ceil(start_s / PLAN_SLOT_S))
    ordered = [np.array([plan[slot : slot + ahead + 1].max() for slot in range(len(plan))]) for plan in plans]

    def policy(seen: list[RoleObservation]) -> list[int]:
        slot = int(seen[0].now / PLAN_SLOT_S + 1e-9)
        return [int(plan[min(slot, len(plan) - 1)]) for plan in ordered]

    return policy, (int(ordered[0][0]), int(ordered[1][0]))


def clairvoyant(trace: Trace, peak: Outcome, start_s: float, step: int = 1) -> Outcome:
    """The replay of the cheapest plan that meets the objective; the static peak if no plan is cheaper."""
    prefill, decode = needs(trace)
    plans = [plan_members(need, UTILIZATION_RANGE[0], PRICE_RANGE_S[1], start_s, step) for need in (prefill, decode)]
    best: Outcome | None = None

    def meets(role: int, plan: np.ndarray, missed_most: float) -> bool:
        nonlocal best
        found = _replay_plans(trace, [plan, plans[1]] if role == 0 else [plans[0], plan], start_s)
        met = 1 - found.attainment <= missed_most
        if met and (best is None or found.node_hours < best.node_hours):
            best, plans[role] = found, plan
        return met

    def search(role: int, need: Need, missed_most: float) -> None:
        _search_plans(lambda full, price_s: meets(role, plan_members(need, full, price_s, start_s, step), missed_most))

    for need in (needs(trace, 0.1)[0], prefill):  # prefill does not depend on decode, so it comes first
        search(0, need, (1 - ATTAINED) / 2)
    search(1, decode, 1 - ATTAINED)
    return best if best is not None and best.node_hours < peak.node_hours else peak


def _search_plans(meets: Callable[[float, float], bool]) -> None:
    """Search for plans: first by utilization at the highest price of a late request, then by that price."""
    fullest, most = UTILIZATION_RANGE
    for _ in range(6):
        middle = (fullest + most) / 2
        fullest, most = (middle, most) if meets(middle, PRICE_RANGE_S[1]) else (fullest, middle)
    for full in (0.97 * fullest, 0.85 * fullest):
        cheap, dear = np.log(PRICE_RANGE_S)
        for _ in range(4):
            middle = (cheap + dear) / 2
            cheap, dear = (cheap, middle) if meets(full, float(np.exp(middle))) else (middle, dear)


def _replay_plans(trace: Trace, plans: list[np.ndarray], start_s: float) -> Outcome:
    policy, first = follow_plans(plans, start_s)
    return replay(trace, policy, first, start_s, tick_s=PLAN_SLOT_S)
