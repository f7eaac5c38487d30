"""What one could do who knew the trace: the least that is always enough (static peak), and the cheapest plan.

The plan of each role is a dynamic programme over members in slots of five seconds: a member is paid for while it is
there, and for the start time when it is added; there must be as many as the work of the slot needs. How full members
may be is then found by replaying: the leanest plan that the pools prove to meet the objective.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.autoscaler.pools import DIES, SLOT_S, Outcome, Policy, Seen, replay, timing
from benchmarks.autoscaler.traces import Trace

PLAN_SLOT_S = 5.0
ATTAINED = 0.99
CHANGE_S = 30.0
"""What a change costs, in seconds of a member: none is made for less."""


def static_peak(trace: Trace, step: int = 1) -> tuple[int, int]:
    """The smallest pools of one size that meet the objective, prefill and decode apart and then together."""
    many = 64
    prefill = _least(many, step, lambda n: _late(constant(trace, n, many), 0) <= (1 - ATTAINED) / 2)
    decode = _least(many, step, lambda n: _late(constant(trace, prefill, n), 1) <= (1 - ATTAINED) / 2)
    return prefill, decode


def constant(trace: Trace, prefill: int, decode: int) -> Outcome:
    return replay(trace, lambda seen: [prefill, decode], (prefill, decode), 0.0, tick_s=600.0)


def _late(outcome: Outcome, role: int) -> float:
    missed = outcome.slow if role else outcome.late
    return float(missed.mean())


def _least(most: int, step: int, holds: Callable[[int], bool]) -> int:
    low, high = 1, -(-most // step)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle * step) else (middle + 1, high)
    return low * step


def needs(trace: Trace, peak: Outcome) -> list[np.ndarray]:
    """Members that each role needs in each slot at full use, from the work that comes and the requests that decode."""
    times = timing()
    slots = int(len(peak.decode_running) * SLOT_S / PLAN_SLOT_S) + 1
    at = np.minimum((trace.at / PLAN_SLOT_S).astype(int), slots - 1)
    work = np.bincount(at, times.work_s(trace.prompt - trace.cached, trace.cached), slots) / PLAN_SLOT_S
    capacity = times.batch_within(float(trace.prompt.mean() + trace.answer.mean() / 2)) * DIES
    per_slot = int(PLAN_SLOT_S / SLOT_S)
    running = np.concatenate([peak.decode_running, np.zeros(slots * per_slot - len(peak.decode_running))])
    return [work, running.reshape(slots, per_slot).max(axis=1) / capacity]


def cheapest(needed: np.ndarray, start_s: float, step: int) -> np.ndarray:
    """Members in each slot: never fewer than needed, at the least cost of being there, starting and changing."""
    least = np.ceil(needed / step - 1e-9).astype(int).clip(1)
    most = int(least.max())
    sizes = np.arange(most + 1)
    grow = step * (start_s + CHANGE_S)
    cost = np.where(sizes >= least[0], sizes * step * PLAN_SLOT_S, np.inf)
    came = np.zeros((len(least), most + 1), dtype=int)
    for slot in range(1, len(least)):
        shrunk, shrunk_from = _running_min(cost[::-1])
        shrunk, shrunk_from = shrunk[::-1], most - shrunk_from[::-1]
        grown, grown_from = _running_min(cost - sizes * grow)
        grown = grown + sizes * grow
        came[slot] = np.where(shrunk <= grown, shrunk_from, grown_from)
        cost = np.minimum(shrunk, grown) + sizes * step * PLAN_SLOT_S
        cost[sizes < least[slot]] = np.inf
    plan = np.zeros(len(least), dtype=int)
    plan[-1] = int(np.argmin(cost))
    for slot in range(len(least) - 1, 0, -1):
        plan[slot - 1] = came[slot][plan[slot]]
    return plan * step


def _running_min(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least so far, and where it is."""
    least = np.minimum.accumulate(values)
    new = np.concatenate([[True], values[1:] < least[:-1]])
    return least, np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))


def followed(plans: list[np.ndarray], start_s: float) -> tuple[Policy, tuple[int, int]]:
    """A policy that has each member ordered in time to serve when the plan has it."""
    ahead = int(np.ceil(start_s / PLAN_SLOT_S))
    ordered = [np.array([plan[slot : slot + ahead + 1].max() for slot in range(len(plan))]) for plan in plans]

    def policy(seen: list[Seen]) -> list[int]:
        slot = int(seen[0].now / PLAN_SLOT_S + 1e-9)
        return [int(plan[min(slot, len(plan) - 1)]) for plan in ordered]

    return policy, (int(ordered[0][0]), int(ordered[1][0]))


def clairvoyant(trace: Trace, peak: Outcome, start_s: float, step: int = 1) -> Outcome:
    """The replay of the leanest plan that meets the objective; the static peak where none does."""
    needed = needs(trace, peak)
    best, full = peak, [1.0, 1.0]
    for role in (0, 1):
        other = 1 - role
        low, high = 0.4, 1.3
        for _ in range(7):
            middle = (low + high) / 2
            trial = [middle, middle]
            trial[other] = full[other] if role else 0.4
            met = _late(_played(trace, needed, trial, start_s, step), role) <= (1 - ATTAINED) * 0.55
            low, high = (middle, high) if met else (low, middle)
        full[role] = low
    found = _played(trace, needed, full, start_s, step)
    if found.attainment >= ATTAINED and found.node_hours < best.node_hours:
        best = found
    return best


def _played(trace: Trace, needed: list[np.ndarray], full: list[float], start_s: float, step: int) -> Outcome:
    plans = [cheapest(need / use, start_s, step) for need, use in zip(needed, full, strict=True)]
    policy, first = followed(plans, start_s)
    return replay(trace, policy, first, start_s, tick_s=PLAN_SLOT_S)
