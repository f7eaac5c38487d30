"""Pools of a served model, played in slots of half a second on CloudMatrix-Infer's own timing.

A member is two nodes: a prefill instance of the paper (EP32), or a decode instance (EP32). Prompts are read first come,
first served, by whichever member is free; a request then decodes at the pace of its pool, which the requests on the
fullest die set. Arrivals come at their time whatever became of the ones before (open loop). A member that is added
serves after the start time and is paid for from the first second; one that leaves takes nothing new, finishes what it
has (at the latest after DRAIN_S, when the rest is handed over) and is paid for until then. Nothing is ever dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from heapq import heappop, heappush
from math import ceil, inf

import numpy as np

from benchmarks.autoscaler.traces import Trace
from infer_workload.contract import DeploymentShape
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.fabric import DIES_PER_NODE
from infer_workload.timing.model import load_model

SLOT_S = 0.5
MEMBER_NODES = 2
DIES = MEMBER_NODES * DIES_PER_NODE
DRAIN_S = 600.0
TTFT_S, TPOT_S = 5.0, 0.05
"""The objective: the first token within, and each further one on average within."""


@dataclass(frozen=True)
class Timing:
    """What the pools' members do, tabled from the model of the machine."""

    lengths: np.ndarray
    alone_s: np.ndarray
    """Seconds of a member for one prompt of that many new tokens, by itself."""
    token_s: float
    pair_s: float
    """Of a full chunk: seconds for each new token, and for each pair of tokens that attend to one another."""
    tpot_s: np.ndarray
    """By requests on a die and by kilotokens of context of each."""
    room: int
    """Tokens of KV that a member has room for."""
    batch: int
    """Requests that a die takes at most."""

    def work_s(self, new: np.ndarray, past: np.ndarray) -> np.ndarray:
        """Seconds of a member that each prompt costs in a full chunk."""
        return self.token_s * new + self.pair_s * (new * past + new * new / 2)

    def pace_s(self, on_die: float, context: float) -> float:
        fullest = min(max(1, ceil(on_die - 1e-9)), self.batch)
        return float(self.tpot_s[fullest, min(int(context / 1000), self.tpot_s.shape[1] - 1)])

    def batch_within(self, context: float, within_s: float = TPOT_S) -> int:
        """Requests on a die for which a token still takes no longer than that."""
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
    return Timing(lengths, alone, (base - pair_s * pairs[0]) / 65536, pair_s, tpot, room, batch)


@dataclass
class Role:
    """The members of one role: serving, starting (when each will serve), and leaving."""

    name: str
    serving: int
    starting: list[float] = field(default_factory=list)
    leaving: list[tuple[float, float]] = field(default_factory=list)
    """When (in tokens of progress, and in seconds at the latest) each has finished what it has."""
    member_s: float = 0.0
    changes: list[tuple[float, int]] = field(default_factory=list)

    @property
    def members(self) -> int:
        return self.serving + len(self.starting)

    def resize(self, members: int, now: float, start_s: float, ends: Callable[[int], float]) -> None:
        """Members that are to be there. Those that start go first; `ends` says when that many have finished."""
        change = members - self.members
        if not change:
            return
        self.changes.append((now, change))
        while change > 0 and self.leaving:
            self.leaving.pop()
            self.serving, change = self.serving + 1, change - 1
        self.starting += [now + start_s] * change
        while change < 0 and self.starting:
            self.starting.pop()
            change += 1
        if change < 0:
            until = ends(-change)
            self.serving += change
            self.leaving += [(until, now + DRAIN_S)] * -change

    def pass_on(self, now: float, progress: float, paid: bool) -> None:
        """A slot: what has started serves, what has finished is gone, and all of it is paid for."""
        self.member_s += (self.members + len(self.leaving)) * SLOT_S * paid
        if self.starting:
            ready = sum(at <= now for at in self.starting)
            if ready:
                self.starting = [at for at in self.starting if at > now]
                self.serving += ready
        if self.leaving:
            self.leaving = [each for each in self.leaving if each[0] > progress and each[1] > now]


@dataclass
class Seen:
    """What a policy is shown of one role. Counts are of this moment, rates of the last tick."""

    role: str
    now: float
    members: int
    ready: int
    start_s: float
    load: float
    """The work that came in, in members that it would keep busy."""
    backlog_s: float
    """Seconds of one member that wait."""
    waiting: int
    running: int
    busy: float
    kv: float
    stays_s: float
    """How long a request stays with its member."""
    late: bool
    """Whether what comes in now will miss the objective."""


@dataclass
class Outcome:
    """A replay: what became of every request, and what it cost."""

    trace: Trace
    ttft_s: np.ndarray
    tpot_s: np.ndarray
    alone_s: np.ndarray
    """What each prompt takes by itself."""
    node_hours: float
    roles: list[Role]
    decode_running: np.ndarray
    """Requests that decode, by slot."""

    @property
    def late(self) -> np.ndarray:
        """Whose first token missed the objective; one that is long by itself may take twice its own time."""
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


Policy = Callable[[list[Seen]], list[int]]
"""Members that each role is to have (prefill, decode)."""


def replay(trace: Trace, policy: Policy, first: tuple[int, int], start_s: float, tick_s: float = 15.0) -> Outcome:
    """The whole trace under a policy that looks every `tick_s`; `first` members serve at its beginning."""
    times = timing()
    count = len(trace.at)
    new = trace.prompt - trace.cached
    work = times.work_s(new, trace.cached)
    before = np.concatenate([[0.0], np.cumsum(work)])
    alone = np.interp(new, times.lengths, times.alone_s)
    started, joins = np.full(count, np.nan), np.full(count, np.nan)
    finished = np.full(count, np.nan)
    prefill, decode = Role("prefill", first[0]), Role("decode", first[1])
    served = progress = 0.0
    arrived = begun = joined = 0
    ends: list[tuple[float, int]] = []
    due: list[tuple[float, int]] = []
    kv_tokens = 0.0
    tick_at, last = 0.0, (0, 0)
    answers: list[float] = []
    running: list[int] = []
    context, answer_mean = 4000.0, 500.0
    now = 0.0
    while joined < count or ends:
        if now >= tick_at:
            came = slice(last[0], arrived)
            span = tick_s if now else 1.0
            requests = arrived - last[0]
            answer_mean = float(np.mean(answers[-2000:])) if answers else answer_mean
            context = kv_tokens / len(ends) if len(ends) > 20 else context
            capacity = times.batch_within(context) * DIES
            rate = capacity / TPOT_S
            waiting = arrived - begun
            seen = [
                Seen(
                    "prefill", now, prefill.members, prefill.serving, start_s, float(work[came].sum()) / span,
                    float(before[arrived] - served), waiting, len(due), min(1.0, waiting / max(1, prefill.serving)),
                    0.0, 0.0, float(before[arrived] - served) / max(1, prefill.serving) > TTFT_S / 2,
                ),
                Seen(
                    "decode", now, decode.members, decode.serving, start_s,
                    max(requests / span * answer_mean / rate, (len(ends) + len(due)) / capacity), 0.0,
                    len(due), len(ends),
                    len(ends) / max(1, decode.serving) / capacity, kv_tokens / max(1, decode.serving) / times.room,
                    answer_mean * TPOT_S,
                    times.pace_s(len(ends) / max(1, decode.serving) / DIES, context) > TPOT_S,
                ),
            ]  # fmt: skip
            wanted = policy(seen)
            prefill.resize(max(1, wanted[0]), now, start_s, lambda _: -inf)
            decode.resize(max(1, wanted[1]), now, start_s, lambda k: _last_end(ends, k, decode.serving))
            last, tick_at = (arrived, 0), tick_at + tick_s
        end = now + SLOT_S
        # Arrivals, and prompts that are begun: the work before each is done.
        arrived = int(np.searchsorted(trace.at, end))
        capacity_s = prefill.serving * SLOT_S
        reach = min(served + capacity_s, float(before[arrived]))
        upto = max(begun, min(int(np.searchsorted(before[:-1], reach, side="right")), arrived))
        if upto > begun:
            which = slice(begun, upto)
            at = now + np.maximum(0.0, before[which] - served) / max(1, prefill.serving)
            started[which] = np.maximum(at, trace.at[which])
            joins[which] = started[which] + alone[which]
            for number in range(begun, upto):
                heappush(due, (joins[number], number))
            begun = upto
        served = reach
        # Decoding: at the pace of the fullest die.
        members = max(1, decode.serving + len(decode.leaving))
        while due and due[0][0] <= end:
            number = due[0][1]
            if (len(ends) + 1) > members * DIES * times.batch or kv_tokens + trace.prompt[
                number
            ] > members * times.room:
                break
            heappop(due)
            heappush(ends, (progress + trace.answer[number], number))
            kv_tokens += trace.prompt[number] + trace.answer[number] / 2
            joined += 1
        mean = kv_tokens / len(ends) if ends else context
        pace = times.pace_s(len(ends) / members / DIES, mean)
        progress += SLOT_S / pace
        while ends and ends[0][0] <= progress:
            at, number = heappop(ends)
            finished[number] = end - (progress - at) * pace
            kv_tokens -= trace.prompt[number] + trace.answer[number] / 2
            answers.append(trace.answer[number])
        running.append(len(ends))
        prefill.pass_on(end, progress, now < trace.seconds)
        decode.pass_on(end, progress, now < trace.seconds)
        now = end
    ttft = joins - trace.at
    tpot = np.maximum(0.0, finished - joins) / np.maximum(1.0, trace.answer - 1)
    tpot[trace.answer <= 1] = 0.0
    hours = (prefill.member_s + decode.member_s) * MEMBER_NODES / 3600
    return Outcome(trace, ttft, tpot, alone, hours, [prefill, decode], np.array(running))


def _last_end(ends: list[tuple[float, int]], leaving: int, serving: int) -> float:
    """When the last request ends of those on members that leave: every so many of all."""
    some = ends[:: max(1, serving // max(1, leaving))]
    return max((at for at, _ in some), default=-inf)
