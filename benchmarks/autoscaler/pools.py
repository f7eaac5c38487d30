"""Simulated pools of a served model, in slots of half a second with CloudMatrix-Infer's own timing.

A member is two nodes: a prefill instance of the paper (EP32), or a decode instance (EP32). Prompts are processed first
come, first served, by any free member; a request then decodes at the pace of its pool, set by the requests on the
fullest die. Arrivals keep their times whatever happens to earlier ones (open loop). A member that is added serves after
the start time and is paid for from the first second. One that leaves takes no new work, finishes what it has (at the
latest after DRAIN_S, when the rest is handed over) and is paid for until then. No request is ever dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import ceil, inf

import numpy as np

from benchmarks.autoscaler.spares import Spares
from benchmarks.autoscaler.traces import Trace
from infer_workload.contract.deployments import DeploymentShape
from infer_workload.ems.model_cache import ModelCache
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out
from infer_workload.layout.recovery import cold_start_s, role_switch_s
from infer_workload.serving.work import ANSWER_RATE_WINDOW_S
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.fabric import DIES_PER_NODE
from infer_workload.timing.model import load_model
from matrixcompute.autoscaling.decision import TICK_S

SLOT_S = 0.5
MEMBER_NODES = 2
DIES = MEMBER_NODES * DIES_PER_NODE
DRAIN_S = 600.0
ANSWERS_AVERAGED = 2000
"""The number of answers that the mean answer length is averaged over; before the trace it is that of its first ones."""
TTFT_S, TPOT_S = 5.0, 0.05
"""The objective: the time to the first token, and the mean time per further token (s)."""


@dataclass(frozen=True)
class Timing:
    """The timing of the pools' members, as tables computed from the machine model."""

    lengths: np.ndarray
    alone_s: np.ndarray
    """Member-seconds for a single prompt of each of `lengths` new tokens."""
    token_s: float
    pair_s: float
    """In a full chunk: member-seconds per new token, and per pair of tokens that attend to one another."""
    tpot_s: np.ndarray
    """The time per output token, by requests on a die and by kilotokens of context of each."""
    room: int
    """The KV capacity of a member, in tokens."""
    batch: int
    """The most requests on a die."""
    switch_s: float
    """How long a member takes to change its role, loading weights included."""
    warm_s: float
    """How long a booted member takes until it serves: executors, graphs and weights from the model cache."""

    def work_s(self, new: np.ndarray, past: np.ndarray) -> np.ndarray:
        """The member-seconds that each prompt costs in a full chunk."""
        return self.token_s * new + self.pair_s * (new * past + new * new / 2)

    def step_s(self, on_die: float, context: float) -> float:
        fullest = min(max(1, ceil(on_die - 1e-9)), self.batch)
        return float(self.tpot_s[fullest, min(int(context / 1000), self.tpot_s.shape[1] - 1)])

    def batch_within(self, context: float, within_s: float = TPOT_S) -> int:
        """The most requests on a die with which a token takes at most `within_s`."""
        column = self.tpot_s[1:, min(int(context / 1000), self.tpot_s.shape[1] - 1)]
        fitting = int(np.searchsorted(column, within_s, side="right"))
        room = int(self.room / DIES / max(context, 1.0))
        return max(1, min(fitting, room, self.batch))


@cache
def timing() -> Timing:
    shape = DeploymentShape(prefill_npus=8 * MEMBER_NODES, decode_npus=8 * MEMBER_NODES)
    deployment = lay_out(healthy_fabric(2 * MEMBER_NODES), load_model(), load_calibration(), shape)
    prefill, decode = deployment.prefill_timing(0), deployment.decode_timing()
    lengths = np.array([1, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144], dtype=float)
    alone = np.array([prefill.chunk_s([(int(length), 0)]) for length in lengths])
    base, long = prefill.chunk_s([(2048, 0)] * 32), prefill.chunk_s([(32768, 0)] * 2)
    pairs = [32 * 2048 * 2048 / 2, 2 * 32768 * 32768 / 2]
    pair_s = (long - base) / (pairs[1] - pairs[0])
    batch = deployment.batch_per_die
    tpot = np.array([
        [decode.step_s(max(1, at), max(1, at) * (1000.0 * context + 500)) for context in range(48)]
        for at in range(batch + 1)
    ]) / decode.tokens_per_step  # fmt: skip
    tpot = np.maximum.accumulate(tpot, axis=0)
    room = deployment.kv_tokens_per_die * DIES
    weights = ModelCache(load_calibration(), {load_model().name})
    rest = room, batch, role_switch_s(deployment), cold_start_s(deployment, weights)
    return Timing(lengths, alone, (base - pair_s * pairs[0]) / 65536, pair_s, tpot, *rest)


@dataclass
class Role:
    """The members of one role: `serving`, `starting` (when each will serve, s), and leaving."""

    name: str
    serving: int
    starting: list[float] = field(default_factory=list)
    leaving: list[tuple[float, float]] = field(default_factory=list)
    """When each will have finished its requests, in tokens of progress, and the latest time (s)."""
    moving: list[tuple[float, float]] = field(default_factory=list)
    """The same for members that take the other role afterwards."""
    awaited: int = 0
    """Members of the other role that will take this one."""
    member_s: float = 0.0
    changes: list[tuple[float, int]] = field(default_factory=list)

    @property
    def members(self) -> int:
        return self.serving + len(self.starting) + self.awaited

    @property
    def present(self) -> int:
        """The members that process requests, whether they stay or leave."""
        return self.serving + len(self.leaving) + len(self.moving)

    def switch_role(self, members: int, other: Role, now: float, until: float) -> None:
        """Let serving members take the other role once they have finished their requests. `until`: when that is, in
        tokens of progress."""
        self.serving -= members
        self.moving += [(until, now + DRAIN_S)] * members
        other.awaited += members
        self.changes.append((now, -members))
        other.changes.append((now, members))

    def resize(self, members: int, now: float, spares: Spares, ends: Callable[[int], float]) -> None:
        """Set the number of members. Starting ones are removed first; `ends(n)` is when n leaving members have
        finished."""
        change = members - self.members
        if not change:
            return
        self.changes.append((now, change))
        while change > 0 and self.leaving:
            self.leaving.pop()
            self.serving, change = self.serving + 1, change - 1
        self.starting += spares.start(max(0, change), now)
        while change < 0 and self.starting:
            self.starting.pop()
            change += 1
        if change < 0:
            until = ends(-change)
            self.serving += change
            self.leaving += [(until, now + DRAIN_S)] * -change

    def advance(self, now: float, progress: float, paid: bool) -> None:
        """Advance by a slot: pay for all members, let started ones serve, and remove those that have finished."""
        self.member_s += (self.present + len(self.starting)) * SLOT_S * paid
        if self.starting:
            ready = sum(at <= now for at in self.starting)
            if ready:
                self.starting = [at for at in self.starting if at > now]
                self.serving += ready
        if self.leaving:
            self.leaving = [each for each in self.leaving if each[0] > progress and each[1] > now]

    def finish_switches(self, other: Role, now: float, progress: float) -> None:
        """Let members that have finished their requests start in the other role."""
        stays = [each for each in self.moving if each[0] > progress and each[1] > now]
        moved = len(self.moving) - len(stays)
        self.moving, other.awaited = stays, other.awaited - moved
        other.starting += [now + timing().switch_s] * moved


@dataclass
class RoleObservation:
    """What a policy observes of one role. Counts are current; rates are those of the last tick."""

    role: str
    now: float
    members: int
    ready: int
    start_s: float
    load: float
    """The work that arrived, in members that it would keep busy."""
    backlog_s: float
    """The waiting work, in member-seconds."""
    waiting: int = 0
    running: int = 0
    busy: float = 0.0
    kv: float = 0.0
    stays_s: float = 0.0
    """How long a request stays on its member."""
    late: bool = False
    """Whether requests that arrive now will miss the objective."""


@dataclass
class Outcome:
    """The result of a replay: the latencies of every request, and the cost."""

    trace: Trace
    ttft_s: np.ndarray
    tpot_s: np.ndarray
    alone_s: np.ndarray
    """The time of each prompt by itself."""
    node_hours: float
    roles: list[Role]
    decode_running: np.ndarray
    """Decoding requests, by slot."""

    @property
    def late(self) -> np.ndarray:
        """The requests whose first token missed the objective; a prompt that is long by itself may take twice its own
        time."""
        return self.ttft_s > np.maximum(TTFT_S, 2 * self.alone_s)

    @property
    def slow(self) -> np.ndarray:
        return self.tpot_s > TPOT_S

    @property
    def good(self) -> np.ndarray:
        return ~self.late & ~self.slow

    @property
    def attainment(self) -> float:
        return float(self.good.mean())

    @property
    def lost(self) -> int:
        return int(np.isnan(self.ttft_s).sum())


Policy = Callable[[list[RoleObservation]], list[int]]
"""Returns the members that each role should have: prefill, decode."""


class Decoding:
    """The decoding requests, by the token of progress at which each ends."""

    def __init__(self, tokens: int, answer_mean: float) -> None:
        self._sums = np.zeros((3, tokens))  # requests, KV tokens and answer tokens that end there
        self.progress = 0.0
        self.running, self.kv_tokens = 0, 0.0
        self.answer_mean = answer_mean

    def add(self, ends: np.ndarray, kv_tokens: np.ndarray, answers: np.ndarray) -> None:
        at = np.ceil(ends).astype(int)
        while at.max(initial=0) >= self._sums.shape[1]:
            self._sums = np.concatenate([self._sums, np.zeros_like(self._sums)], axis=1)
        for row, values in enumerate((np.ones(len(ends)), kv_tokens, answers)):
            np.add.at(self._sums[row], at, values)
        self.running, self.kv_tokens = self.running + len(ends), self.kv_tokens + float(kv_tokens.sum())

    def advance(self, tokens: float) -> None:
        """Advance each request by that many tokens, and remove those that end."""
        first, self.progress = int(self.progress) + 1, self.progress + tokens
        ended, kv_tokens, answers = self._sums[:, first : int(self.progress) + 1].sum(axis=1)
        self.running, self.kv_tokens = self.running - int(ended), self.kv_tokens - float(kv_tokens)
        if ended:
            self.answer_mean += (float(answers / ended) - self.answer_mean) * min(1.0, float(ended) / ANSWERS_AVERAGED)

    def drain_end(self, leaving: int, serving: int) -> float:
        """The token of progress at which the last request on `leaving` of `serving` members ends, with requests spread
        evenly over members."""
        rest = self._sums[0, int(self.progress) + 1 :]
        longer = np.cumsum(rest[::-1])
        rank = int(np.searchsorted(longer, max(1.0, serving / max(1, leaving))))
        return int(self.progress) + len(rest) - rank if self.running else -inf


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
    times, beside = timing(), spares or Spares(0, start_s, start_s)
    count = len(trace.at)
    new = trace.prompt - trace.cached
    before = np.concatenate([[0.0], np.cumsum(times.work_s(new, trace.cached))])
    alone = np.interp(new, times.lengths, times.alone_s)
    kv = trace.prompt + trace.answer / 2
    joins, ends = np.full(count, np.nan), np.full(count, np.nan)
    prefill, decode = Role("prefill", first[0]), Role("decode", first[1])
    decoding = Decoding(1 << 18, float(trace.answer[:ANSWERS_AVERAGED].mean()))
    due = np.zeros(0, dtype=int)
    served = context = 0.0
    tick_at = tick_s
    slot = arrived = begun = last = 0
    progress: list[float] = [0.0]
    running: list[int] = []
    while begun < count or len(due) or decoding.running:
        now, end = slot * SLOT_S, (slot + 1) * SLOT_S
        if now >= tick_at:
            context = decoding.kv_tokens / decoding.running if decoding.running > 20 else context or 4000.0
            seen = [
                _observe_prefill(
                    prefill,
                    now,
                    start_s,
                    (before[arrived] - before[last]) / tick_s,
                    before[arrived] - served,
                    float(alone[max(0, arrived - ANSWERS_AVERAGED) : arrived].mean()) if arrived else 0.0,
                ),
                _observe_decode(decode, now, start_s, _per_s(trace, now, decoding), decoding, len(due), context),
            ]
            seen[0].waiting, seen[0].running = arrived - begun, len(due)
            seen[0].busy = min(1.0, (arrived - begun) / max(1, prefill.serving))
            wanted = policy(seen)
            if changes_roles:
                _change_roles(prefill, decode, wanted, now, decoding)
            prefill.resize(max(1, wanted[0]), now, beside, lambda _: -inf)
            decode.resize(max(1, wanted[1]), now, beside, lambda k: decoding.drain_end(k, decode.serving))
            last, tick_at = arrived, tick_at + tick_s
        # Arrivals, and prompts that begin, since the work before them is done.
        arrived = int(np.searchsorted(trace.at, end))
        reach = min(served + prefill.serving * SLOT_S, float(before[arrived]))
        upto = max(begun, min(int(np.searchsorted(before[:-1], reach, side="right")), arrived))
        if upto > begun:
            which = slice(begun, upto)
            at = now + np.maximum(0.0, before[which] - served) / max(1, prefill.serving)
            joins[which] = np.maximum(at, trace.at[which]) + alone[which]
            due = np.concatenate([due, np.arange(begun, upto)])
            due = due[np.argsort(joins[due], kind="stable")]
            begun = upto
        served = reach
        # Decoding: at the pace of the fullest die.
        members = max(1, decode.present)
        if len(due):
            fit = int(np.searchsorted(joins[due], end, side="right"))
            fit = min(fit, max(0, members * DIES * times.batch - decoding.running))
            room = members * times.room - decoding.kv_tokens
            fit = min(fit, int(np.searchsorted(np.cumsum(kv[due[:fit]]), room, side="right")))
            enter, due = due[:fit], due[fit:]
            ends[enter] = decoding.progress + trace.answer[enter]
            decoding.add(ends[enter], kv[enter], trace.answer[enter])
        mean = decoding.kv_tokens / decoding.running if decoding.running else context
        decoding.advance(SLOT_S / times.step_s(decoding.running / members / DIES, mean))
        progress.append(decoding.progress)
        running.append(decoding.running)
        prefill.advance(end, decoding.progress, now < trace.seconds)
        decode.advance(end, decoding.progress, now < trace.seconds)
        prefill.finish_switches(decode, end, decoding.progress)
        decode.finish_switches(prefill, end, decoding.progress)
        beside.advance(end)
        slot += 1
    finished = np.interp(ends, progress, np.arange(len(progress)) * SLOT_S)
    tpot = np.maximum(0.0, finished - joins) / np.maximum(1.0, trace.answer - 1)
    tpot[trace.answer <= 1] = 0.0
    member_s = prefill.member_s + decode.member_s + beside.count * trace.seconds
    hours = member_s * MEMBER_NODES / 3600
    return Outcome(trace, joins - trace.at, tpot, alone, hours, [prefill, decode], np.array(running))


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
