"""The replay of a trace over simulated pools: slot by slot, prompts begin, requests decode, and a policy decides."""

from __future__ import annotations

from math import inf

import numpy as np

from benchmarks.autoscaler.pools import (
    ANSWERS_AVERAGED,
    DIES,
    MEMBER_NODES,
    SLOT_S,
    TPOT_S,
    TTFT_S,
    Decoding,
    Outcome,
    Policy,
    Role,
    RoleObservation,
    timing,
)
from benchmarks.autoscaler.spares import Spares
from benchmarks.autoscaler.traces import Trace
from infer_workload.serving.work import ANSWER_RATE_WINDOW_S
from matrixcompute.autoscaling.decision import TICK_S


def replay(
    trace: Trace,
    policy: Policy,
    first: tuple[int, int],
    start_s: float,
    tick_s: float = TICK_S,
    *,
    changes_roles: bool = False,
    spares: Spares | None = None,
) -> Outcome:
    """Replay a trace under a policy that decides every `tick_s`, starting with `first` members. With `changes_roles`,
    surplus members of one pool join the other once they have finished their requests."""
    replayed = _Replay(trace, first, start_s, spares or Spares(0, start_s, start_s))
    slot, tick_at = 0, tick_s
    while not replayed.is_over:
        now, end = slot * SLOT_S, (slot + 1) * SLOT_S
        if now >= tick_at:
            replayed.resize(policy(replayed.observe(now, tick_s)), now, changes_roles)
            tick_at += tick_s
        replayed.begin_prompts(now, end)
        replayed.decode_slot(end)
        replayed.advance_members(now, end)
        slot += 1
    return replayed.outcome()


class _Replay:
    """The pools, and what became of each request of the trace so far."""

    def __init__(self, trace: Trace, first: tuple[int, int], start_s: float, spares: Spares) -> None:
        times = timing()
        self.trace, self.start_s, self.spares = trace, start_s, spares
        new = trace.prompt - trace.cached
        self.work_before = np.concatenate([[0.0], np.cumsum(times.work_s(new, trace.cached))])
        """The prompt work (member-seconds) that arrives before each request, and in all."""
        self.alone_s = np.interp(new, times.lengths, times.alone_s)
        self.kv_tokens = trace.prompt + trace.answer / 2
        self.joins = np.full(len(trace.at), np.nan)
        """When each request joins the decoding ones."""
        self.ends = np.full(len(trace.at), np.nan)
        """At which token of progress each ends."""
        self.prefill, self.decode = Role("prefill", first[0]), Role("decode", first[1])
        self.decoding = Decoding(1 << 18, float(trace.answer[:ANSWERS_AVERAGED].mean()))
        self.due = np.zeros(0, dtype=int)
        """Requests whose prompts have begun and which do not decode yet, by when they join."""
        self.work_done = self.context = 0.0
        self.arrived = self.begun = self.arrived_at_tick = 0
        self.progress: list[float] = [0.0]
        """Tokens of progress, by slot."""
        self.running: list[int] = []

    @property
    def is_over(self) -> bool:
        return not (self.begun < len(self.trace.at) or len(self.due) or self.decoding.running)

    def observe(self, now: float, tick_s: float) -> list[RoleObservation]:
        """What a policy sees of both roles after a tick."""
        decoding, arrived = self.decoding, self.arrived
        self.context = decoding.kv_tokens / decoding.running if decoding.running > 20 else self.context or 4000.0
        prefill = _observe_prefill(
            self.prefill,
            now,
            self.start_s,
            (self.work_before[arrived] - self.work_before[self.arrived_at_tick]) / tick_s,
            self.work_before[arrived] - self.work_done,
            float(self.alone_s[max(0, arrived - ANSWERS_AVERAGED) : arrived].mean()) if arrived else 0.0,
        )
        prefill.waiting, prefill.running = arrived - self.begun, len(self.due)
        prefill.busy = min(1.0, (arrived - self.begun) / max(1, self.prefill.serving))
        per_s = _per_s(self.trace, now, decoding)
        self.arrived_at_tick = arrived
        return [
            prefill,
            _observe_decode(self.decode, now, self.start_s, per_s, decoding, len(self.due), self.context),
        ]

    def resize(self, wanted: list[int], now: float, changes_roles: bool) -> None:
        """Give each role the members that a policy wants."""
        prefill, decode, decoding = self.prefill, self.decode, self.decoding
        if changes_roles:
            _change_roles(prefill, decode, wanted, now, decoding)
        prefill.resize(max(1, wanted[0]), now, self.spares, lambda _: -inf)
        decode.resize(max(1, wanted[1]), now, self.spares, lambda k: decoding.drain_end(k, decode.serving))

    def begin_prompts(self, now: float, end: float) -> None:
        """Take what arrives in a slot, and begin the prompts before which all work is done."""
        trace, before, serving = self.trace, self.work_before, self.prefill.serving
        self.arrived = int(np.searchsorted(trace.at, end))
        reach = min(self.work_done + serving * SLOT_S, float(before[self.arrived]))
        upto = max(self.begun, min(int(np.searchsorted(before[:-1], reach, side="right")), self.arrived))
        if upto > self.begun:
            which = slice(self.begun, upto)
            at = now + np.maximum(0.0, before[which] - self.work_done) / max(1, serving)
            self.joins[which] = np.maximum(at, trace.at[which]) + self.alone_s[which]
            due = np.concatenate([self.due, np.arange(self.begun, upto)])
            self.due = due[np.argsort(self.joins[due], kind="stable")]
            self.begun = upto
        self.work_done = reach

    def decode_slot(self, end: float) -> None:
        """Let due requests join as far as there is room, and decode at the pace of the fullest die."""
        times, decoding, members = timing(), self.decoding, max(1, self.decode.present)
        if len(self.due):
            fit = int(np.searchsorted(self.joins[self.due], end, side="right"))
            fit = min(fit, max(0, members * DIES * times.batch - decoding.running))
            room = members * times.room - decoding.kv_tokens
            fit = min(fit, int(np.searchsorted(np.cumsum(self.kv_tokens[self.due[:fit]]), room, side="right")))
            enter, self.due = self.due[:fit], self.due[fit:]
            answers = self.trace.answer[enter]
            self.ends[enter] = decoding.progress + answers
            decoding.add(self.ends[enter], self.kv_tokens[enter], answers)
        mean = decoding.kv_tokens / decoding.running if decoding.running else self.context
        decoding.advance(SLOT_S / times.step_s(decoding.running / members / DIES, mean))
        self.progress.append(decoding.progress)
        self.running.append(decoding.running)

    def advance_members(self, now: float, end: float) -> None:
        """Let members start, leave and change their roles by the end of a slot."""
        prefill, decode, progress = self.prefill, self.decode, self.decoding.progress
        prefill.advance(end, progress, now < self.trace.seconds)
        decode.advance(end, progress, now < self.trace.seconds)
        prefill.finish_switches(decode, end, progress)
        decode.finish_switches(prefill, end, progress)
        self.spares.advance(end)

    def outcome(self) -> Outcome:
        trace, roles = self.trace, [self.prefill, self.decode]
        finished = np.interp(self.ends, self.progress, np.arange(len(self.progress)) * SLOT_S)
        tpot = np.maximum(0.0, finished - self.joins) / np.maximum(1.0, trace.answer - 1)
        tpot[trace.answer <= 1] = 0.0
        member_s = self.prefill.member_s + self.decode.member_s + self.spares.count * trace.seconds
        hours = member_s * MEMBER_NODES / 3600
        return Outcome(trace, self.joins - trace.at, tpot, self.alone_s, hours, roles, np.array(self.running))


def _change_roles(prefill: Role, decode: Role, wanted: list[int], now: float, decoding: Decoding) -> None:
    """Move serving members from a pool with too many to one with too few."""
    sizes = {"prefill": max(1, wanted[0]), "decode": max(1, wanted[1])}
    for one, other in ((prefill, decode), (decode, prefill)):
        moved = min(one.members - sizes[one.name], sizes[other.name] - other.members, one.serving - 1)
        if moved > 0:
            one.switch_role(moved, other, now, -inf if one is prefill else decoding.drain_end(moved, one.serving))


def _per_s(trace: Trace, now: float, decoding: Decoding) -> float:
    """Requests per second as the service reports them, averaged over longer if answers take longer."""
    over_s = min(max(ANSWER_RATE_WINDOW_S, decoding.answer_mean * TPOT_S / 2), max(now, SLOT_S))
    first, end = np.searchsorted(trace.at, [now - over_s, now])
    return float(end - first) / over_s


def _observe_prefill(
    role: Role, now: float, start_s: float, load: float, backlog_s: float, reads_s: float
) -> RoleObservation:
    late = backlog_s / max(1, role.serving) > TTFT_S / 2
    seen = (role.members, role.serving, start_s, float(load), float(backlog_s))
    return RoleObservation("prefill", now, *seen, stays_s=reads_s, late=late)


def _observe_decode(
    role: Role, now: float, start_s: float, per_s: float, decoding: Decoding, waiting: int, context: float
) -> RoleObservation:
    times, running, serving = timing(), decoding.running, max(1, role.serving)
    capacity = times.batch_within(context) * DIES
    stays_s = decoding.answer_mean * TPOT_S
    return RoleObservation(
        "decode", now, role.members, role.serving, start_s, max(per_s * stays_s, running + waiting) / capacity, 0.0,
        waiting, running, running / serving / capacity, decoding.kv_tokens / serving / times.room, stays_s,
        times.step_s(running / serving / DIES, context) > TPOT_S,
    )  # fmt: skip
