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
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.fabric import DIES_PER_NODE
from infer_workload.timing.model import load_model

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
