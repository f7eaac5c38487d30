"""The decode pool, stepping in lock step.

All dies step together, so the pool needs no event per token. Between two changes of the batch, steps get longer only as
contexts grow: linearly, as long as the same die has the most tokens and the timing's own linear piece lasts
(`DecodeTiming.line`). So any number of steps is summed at once, exactly, and a request that needs m steps finishes at a
known one. Events are joins, which wait for the next step boundary, finishes, and the ends of linear pieces. A step that
has begun keeps its duration even if requests leave; when the fabric's rates change, the part of it already done stays
done; when ranks are rebuilt, it is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import ceil, floor, inf, sqrt
from random import Random

from infer_workload.engine.longest_die import LongestDie
from infer_workload.engine.request import DECODING, DecodeDie, InferenceRequest
from infer_workload.timing.decode import DecodeTiming

STEPS_MAX = 64
"""The most steps between events, so that a caller that sleeps until something is due, as the service does, sees new
tokens at least that often."""
ROUNDING_S = 1e-9
"""A request that joins this little after a boundary joins at it."""


class DecodePool:
    """The steps of one decode pool. `emitted(start, end, tokens)` is called with the tokens of each interval."""

    def __init__(
        self, timing: DecodeTiming, dies: list[DecodeDie], rng: Random, emitted: Callable[[float, float, float], None]
    ) -> None:
        self.timing = timing
        self.dies = dies
        self.due = inf
        self.steps = 0
        self._due_steps = 0
        """Steps from `_step_at` until `due`."""
        self._rng = rng
        self._emitted = emitted
        self._step_at = 0.0
        """When the present step begins; or, with `_part` of it done, when it resumed at another pace."""
        self._part = 0.0
        self._first_s = self._growth_s = 0.0
        """The whole duration of the present step, and by how much each step is longer than the one before."""
        self._paused_until = 0.0
        self._ends: list[tuple[int, int, InferenceRequest]] = []
        self._joining: list[InferenceRequest] = []
        self._longest = LongestDie(timing.tokens_per_step)

    @property
    def active(self) -> int:
        return len(self._ends)

    @property
    def step_s(self) -> float:
        """The present duration of a step, as of the last event or `settle`; 0 while nothing decodes."""
        return self._first_s if self._ends else 0.0

    def kv_tokens(self, die: DecodeDie) -> float:
        """Tokens in the KV memory of a die, as of the last event or `settle`."""
        return self._longest.tokens(die, self.steps)

    def fullest(self) -> tuple[int, float]:
        """The most requests, and the most tokens, that are decoding on one die."""
        return self._longest.line(self.steps)[:2] if self._ends else (0, 0.0)

    @property
    def paused_until(self) -> float:
        """No step begins before this time."""
        return self._paused_until

    def next_ends(self, number: int) -> list[tuple[int, InferenceRequest]]:
        """At most that many (step, request) of decoding requests and the pool steps with which they finish: the first
        to finish and others that finish early."""
        return [(step, request) for step, _, request in sorted(self._ends[:number])]

    def reached_at(self, step: int) -> float:
        """When the pool will have taken that many steps, with its present batch."""
        return self._step_at + self._takes(max(0, step - self.steps))

    def sampled_ends(self, number: int) -> list[int]:
        """The pool steps, in order, with which a sample of about `number` decoding requests finish."""
        return sorted(step for step, _, _ in self._ends[:: max(1, len(self._ends) // number)])

    def requests(self) -> list[InferenceRequest]:
        """All requests that are decoding or about to."""
        return [request for _, _, request in self._ends] + self._joining

    def join(self, request: InferenceRequest, now: float) -> None:
        """Decode the request from the next step on."""
        self._joining.append(request)
        if not self._ends:
            self._due_steps, self.due = 0, min(self.due, max(now, self._paused_until))
        elif self._first_s < inf:
            self._have_due(max(self._begun_by(now), 1 if self._part else 0))

    def run(self, now: float) -> list[InferenceRequest]:
        """Process the boundary that is due: finishes, joins, a new pace. Return the finished requests."""
        self._advance(self._due_steps, now)
        finished = []
        while self._ends and self._ends[0][0] <= self.steps:
            request = heappop(self._ends)[2]
            self._longest.leave(request)
            request.generated = request.output_tokens
            request.leave_decode(self.steps)
            finished.append(request)
        for request in self._joining:
            self._enter(request)
        self._joining.clear()
        self._pace()
        return finished

    def settle(self, now: float) -> None:
        """Account for the steps done by `now`, so that a reader sees their tokens."""
        if self._ends and now < self.due and (steps := self._done_by(now)):
            self._advance(steps, self._step_at + self._takes(steps))
            self._due_steps -= steps

    def tokens_of(self, request: InferenceRequest, now: float) -> int:
        """Tokens that the request has by `now`, the first one included; they are spread evenly over its steps."""
        if request.state != DECODING or request.end_step <= request.start_step:
            return request.generated
        steps = self.steps + self._done_by(now)
        share = min(1.0, max(0, steps - request.start_step) / (request.end_step - request.start_step))
        return request.tokens_at_start + int((request.output_tokens - request.tokens_at_start) * share + 1e-9)

    def pause(self, until: float) -> None:
        """Take no step before `until`, while ranks are rebuilt; the step under way is repeated. Call `settle` first."""
        self._paused_until = max(self._paused_until, until)
        if self._paused_until > self._step_at:
            self._step_at, self._part = self._paused_until, 0.0
        self._pace()

    def remove(self, gone: Iterable[InferenceRequest], now: float) -> None:
        """Remove these requests unfinished. Call `settle` first."""
        leaving = set(gone)
        kept = [entry for entry in self._ends if entry[2] not in leaving]
        for _, _, request in self._ends:
            if request in leaving:
                self._longest.leave(request)
                request.leave_decode(self.steps)
        changed = len(kept) < len(self._ends)
        self._joining = [request for request in self._joining if request not in leaving]
        if changed:
            heapify(kept)
            self._ends = kept
        if not self._ends:
            self._step_at, self._part = max(now, self._paused_until), 0.0
            self._pace()
        elif changed and self._first_s < inf:
            self._have_due(self._begun_by(now))

    def rebuild(self, timing: DecodeTiming, dies: list[DecodeDie], now: float) -> None:
        """Change the pool's timing and dies from now on."""
        self.settle(now)
        if now > self._step_at:
            if self._ends and 0 < self._first_s < inf:
                self._part += (now - self._step_at) / self._first_s
            self._step_at = now
        self.timing, self.dies = timing, dies
        self._longest.grow_by(timing.tokens_per_step, self.steps, (entry[2] for entry in self._ends))
        self._pace()

    # How long steps take.

    def _pace(self) -> None:
        """Compute the present linear piece of step times, and what is due at its end or before."""
        if not self._ends:
            self._first_s = self._growth_s = 0.0
            self._due_steps, self.due = 0, max(self._step_at, self._paused_until) if self._joining else inf
            return
        fullest, tokens, growth, ahead = self._longest.line(self.steps)
        self._first_s, per_token, room = self.timing.line(fullest, tokens)
        if self._first_s == inf:
            self._due_steps, self.due = 0, inf
            return
        self._growth_s = per_token * growth
        ahead = min(ahead, self._ends[0][0] - self.steps, STEPS_MAX)
        if growth and ahead * growth > room:
            ahead = min(ahead, floor(room / growth) + 1)
        if self._joining:
            ahead = min(ahead, 1 if self._part else 0)
        self._due_steps = ahead
        self.due = self._step_at + self._takes(ahead)

    def _have_due(self, steps: int) -> None:
        """Make the next event due after that many steps, unless one is due earlier."""
        if steps < self._due_steps:
            self._due_steps, self.due = steps, self._step_at + self._takes(steps)

    def _takes(self, steps: int) -> float:
        """Seconds from `_step_at` to the end of that many steps."""
        if not steps:
            return 0.0
        return (steps - self._part) * self._first_s + self._growth_s * (steps * (steps - 1) // 2)

    def _solved(self, seconds: float) -> float:
        """The fractional number of steps that take that many seconds (the inverse of `_takes`)."""
        passed, growth = seconds + self._part * self._first_s, self._growth_s
        linear = self._first_s - growth / 2.0
        return 2.0 * passed / (linear + sqrt(max(0.0, linear * linear + 2.0 * growth * passed)))

    def _begun_by(self, now: float) -> int:
        """Steps begun by `now`; the next boundary is at the end of them."""
        seconds = now - self._step_at - ROUNDING_S
        if seconds <= 0:
            return 1 if self._part else 0
        steps = max(1, ceil(self._solved(seconds)))
        while steps > 1 and self._takes(steps - 1) >= seconds:
            steps -= 1
        while self._takes(steps) < seconds:
            steps += 1
        return steps

    def _done_by(self, now: float) -> int:
        """Steps finished by `now`, at most those until `due`."""
        seconds = now - self._step_at
        if seconds <= 0 or not self._ends or not self._due_steps or self._first_s == inf:
            return 0
        steps = min(self._due_steps, floor(self._solved(seconds)))
        while steps and self._takes(steps) > seconds + ROUNDING_S:
            steps -= 1
        while steps < self._due_steps and self._takes(steps + 1) <= seconds:
            steps += 1
        return steps

    def _advance(self, steps: int, now: float) -> None:
        if steps:
            self._emitted(self._step_at, now, len(self._ends) * steps * self.timing.tokens_per_step)
            self.steps += steps
            self._first_s += self._growth_s * steps
            self._part = 0.0
        self._step_at = max(now, self._step_at)

    # The batch.

    def _enter(self, request: InferenceRequest) -> None:
        request.move(DECODING)
        request.start_step = self.steps
        request.tokens_at_start, request.drafting = request.generated, self.timing.options.mtp
        request.end_step = self.steps + self._steps_for(request.output_tokens - request.generated)
        heappush(self._ends, (request.end_step, request.number, request))
        self._longest.enter(request, self.steps)

    def _steps_for(self, tokens: int) -> int:
        """Draw the steps until that many tokens: each step brings one, and a second one with the acceptance rate."""
        if not self.timing.options.mtp:
            return tokens
        mean, variance = self.steps_for(tokens)
        return min(tokens, max(-(-tokens // 2), round(self._rng.gauss(mean, variance**0.5)), 1))

    def steps_for(self, tokens: int) -> tuple[float, float]:
        """The mean and the variance of the number of steps for that many tokens."""
        rate = self.timing.acceptance if self.timing.options.mtp else 0.0
        return tokens / (1 + rate), tokens * rate * (1 - rate) / (1 + rate) ** 3
