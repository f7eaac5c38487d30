"""The decode pool, stepping in lock step.

All dies step together, so the pool needs no event per token. Between two changes of the batch, steps get longer only as
contexts grow: linearly, as long as the same die has the most tokens and the timing's own linear piece lasts
(`DecodeTiming.linear_segment`). So any number of steps is summed at once, exactly, and a request that needs m steps
finishes at a known one. Events are joins, which wait for the next step boundary, finishes, and the ends of linear
pieces. A step that has begun keeps its duration even if requests leave; when the fabric's rates change, the part of it
already done stays done; when ranks are rebuilt, it is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import ceil, floor, inf, sqrt
from random import Random

from infer_workload.engine.kv_load import KvLoadTracker
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
        """When the present step begins; or, with `_step_progress` of it done, when it resumed at another pace."""
        self._step_progress = 0.0
        self._first_s = self._growth_s = 0.0
        """The whole duration of the present step, and by how much each step is longer than the one before."""
        self._paused_until = 0.0
        self._finish_heap: list[tuple[int, int, InferenceRequest]] = []
        self._joining: list[InferenceRequest] = []
        self._kv_load = KvLoadTracker(timing.tokens_per_step)

    @property
    def active(self) -> int:
        return len(self._finish_heap)

    @property
    def step_s(self) -> float:
        """The present duration of a step, as of the last event or `sync_counters`; 0 while nothing decodes."""
        return self._first_s if self._finish_heap else 0.0

    def kv_tokens(self, die: DecodeDie) -> float:
        """Tokens in the KV memory of a die, as of the last event or `sync_counters`."""
        return self._kv_load.tokens(die, self.steps)

    def max_load(self) -> tuple[int, float]:
        """The most requests, and the most tokens, that are decoding on one die."""
        return self._kv_load.linear_segment(self.steps)[:2] if self._finish_heap else (0, 0.0)

    @property
    def paused_until(self) -> float:
        """No step begins before this time."""
        return self._paused_until

    def next_finishes(self, number: int) -> list[tuple[int, InferenceRequest]]:
        """At most that many (step, request) of decoding requests and the pool steps with which they finish: the first
        to finish and others that finish early."""
        return [(step, request) for step, _, request in sorted(self._finish_heap[:number])]

    def time_of_step(self, step: int) -> float:
        """When the pool will have taken that many steps, with its present batch."""
        return self._step_at + self._duration_of(max(0, step - self.steps))

    def sample_finish_steps(self, number: int) -> list[int]:
        """The pool steps, in order, with which a sample of about `number` decoding requests finish."""
        return sorted(step for step, _, _ in self._finish_heap[:: max(1, len(self._finish_heap) // number)])

    def requests(self) -> list[InferenceRequest]:
        """All requests that are decoding or about to."""
        return [request for _, _, request in self._finish_heap] + self._joining

    def join(self, request: InferenceRequest, now: float) -> None:
        """Decode the request from the next step on."""
        self._joining.append(request)
        if not self._finish_heap:
            self._due_steps, self.due = 0, min(self.due, max(now, self._paused_until))
        elif self._first_s < inf:
            self._schedule_by(max(self._steps_begun(now), 1 if self._step_progress else 0))

    def run(self, now: float) -> list[InferenceRequest]:
        """Process the boundary that is due: finishes, joins, a new pace. Return the finished requests."""
        self._advance(self._due_steps, now)
        finished = []
        while self._finish_heap and self._finish_heap[0][0] <= self.steps:
            request = heappop(self._finish_heap)[2]
            self._kv_load.remove(request)
            request.generated = request.output_tokens
            request.leave_decode(self.steps)
            finished.append(request)
        for request in self._joining:
            self._start_decoding(request)
        self._joining.clear()
        self._schedule_next()
        return finished

    def sync_counters(self, now: float) -> None:
        """Account for the steps done by `now`, so that a reader sees their tokens."""
        if self._finish_heap and now < self.due and (steps := self._steps_done(now)):
            self._advance(steps, self._step_at + self._duration_of(steps))
            self._due_steps -= steps

    def tokens_of(self, request: InferenceRequest, now: float) -> int:
        """Tokens that the request has by `now`, the first one included; they are spread evenly over its steps."""
        if request.state != DECODING or request.end_step <= request.start_step:
            return request.generated
        steps = self.steps + self._steps_done(now)
        share = min(1.0, max(0, steps - request.start_step) / (request.end_step - request.start_step))
        return request.tokens_at_start + int((request.output_tokens - request.tokens_at_start) * share + 1e-9)

    def pause(self, until: float) -> None:
        """Take no step before `until`, while ranks are rebuilt; the step under way is repeated. Call `sync_counters`
        first."""
        self._paused_until = max(self._paused_until, until)
        if self._paused_until > self._step_at:
            self._step_at, self._step_progress = self._paused_until, 0.0
        self._schedule_next()

    def remove(self, requests: Iterable[InferenceRequest], now: float) -> None:
        """Remove these requests unfinished. Call `sync_counters` first."""
        leaving = set(requests)
        kept = [entry for entry in self._finish_heap if entry[2] not in leaving]
        for _, _, request in self._finish_heap:
            if request in leaving:
                self._kv_load.remove(request)
                request.leave_decode(self.steps)
        changed = len(kept) < len(self._finish_heap)
        self._joining = [request for request in self._joining if request not in leaving]
        if changed:
            heapify(kept)
            self._finish_heap = kept
        if not self._finish_heap:
            self._step_at, self._step_progress = max(now, self._paused_until), 0.0
            self._schedule_next()
        elif changed and self._first_s < inf:
            self._schedule_by(self._steps_begun(now))

    def rebuild(self, timing: DecodeTiming, dies: list[DecodeDie], now: float) -> None:
        """Change the pool's timing and dies from now on."""
        self.sync_counters(now)
        if now > self._step_at:
            if self._finish_heap and 0 < self._first_s < inf:
                self._step_progress += (now - self._step_at) / self._first_s
            self._step_at = now
        self.timing, self.dies = timing, dies
        self._kv_load.set_growth(timing.tokens_per_step, self.steps, (entry[2] for entry in self._finish_heap))
        self._schedule_next()

    # How long steps take.

    def _schedule_next(self) -> None:
        """Compute the present linear piece of step times, and what is due at its end or before."""
        if not self._finish_heap:
            self._first_s = self._growth_s = 0.0
            self._due_steps, self.due = 0, max(self._step_at, self._paused_until) if self._joining else inf
            return
        fullest, tokens, growth, ahead = self._kv_load.linear_segment(self.steps)
        self._first_s, per_token, room = self.timing.linear_segment(fullest, tokens)
        if self._first_s == inf:
            self._due_steps, self.due = 0, inf
            return
        self._growth_s = per_token * growth
        ahead = min(ahead, self._finish_heap[0][0] - self.steps, STEPS_MAX)
        if growth and ahead * growth > room:
            ahead = min(ahead, floor(room / growth) + 1)
        if self._joining:
            ahead = min(ahead, 1 if self._step_progress else 0)
        self._due_steps = ahead
        self.due = self._step_at + self._duration_of(ahead)

    def _schedule_by(self, steps: int) -> None:
        """Make the next event due after that many steps, unless one is due earlier."""
        if steps < self._due_steps:
            self._due_steps, self.due = steps, self._step_at + self._duration_of(steps)

    def _duration_of(self, steps: int) -> float:
        """Seconds from `_step_at` to the end of that many steps."""
        if not steps:
            return 0.0
        return (steps - self._step_progress) * self._first_s + self._growth_s * (steps * (steps - 1) // 2)

    def _steps_within(self, seconds: float) -> float:
        """The fractional number of steps that take that many seconds (the inverse of `_duration_of`)."""
        elapsed, growth = seconds + self._step_progress * self._first_s, self._growth_s
        linear = self._first_s - growth / 2.0
        return 2.0 * elapsed / (linear + sqrt(max(0.0, linear * linear + 2.0 * growth * elapsed)))

    def _steps_begun(self, now: float) -> int:
        """Steps begun by `now`; the next boundary is at the end of them."""
        seconds = now - self._step_at - ROUNDING_S
        if seconds <= 0:
            return 1 if self._step_progress else 0
        steps = max(1, ceil(self._steps_within(seconds)))
        while steps > 1 and self._duration_of(steps - 1) >= seconds:
            steps -= 1
        while self._duration_of(steps) < seconds:
            steps += 1
        return steps

    def _steps_done(self, now: float) -> int:
        """Steps finished by `now`, at most those until `due`."""
        seconds = now - self._step_at
        if seconds <= 0 or not self._finish_heap or not self._due_steps or self._first_s == inf:
            return 0
        steps = min(self._due_steps, floor(self._steps_within(seconds)))
        while steps and self._duration_of(steps) > seconds + ROUNDING_S:
            steps -= 1
        while steps < self._due_steps and self._duration_of(steps + 1) <= seconds:
            steps += 1
        return steps

    def _advance(self, steps: int, now: float) -> None:
        if steps:
            self._emitted(self._step_at, now, len(self._finish_heap) * steps * self.timing.tokens_per_step)
            self.steps += steps
            self._first_s += self._growth_s * steps
            self._step_progress = 0.0
        self._step_at = max(now, self._step_at)

    # The batch.

    def _start_decoding(self, request: InferenceRequest) -> None:
        request.move(DECODING)
        request.start_step = self.steps
        request.tokens_at_start, request.drafting = request.generated, self.timing.options.mtp
        request.end_step = self.steps + self._draw_steps(request.output_tokens - request.generated)
        heappush(self._finish_heap, (request.end_step, request.number, request))
        self._kv_load.add(request, self.steps)

    def _draw_steps(self, tokens: int) -> int:
        """Draw the steps until that many tokens: each step brings one, and a second one with the acceptance rate."""
        if not self.timing.options.mtp:
            return tokens
        mean, variance = self.step_statistics(tokens)
        return min(tokens, max(-(-tokens // 2), round(self._rng.gauss(mean, variance**0.5)), 1))

    def step_statistics(self, tokens: int) -> tuple[float, float]:
        """The mean and the variance of the number of steps for that many tokens."""
        rate = self.timing.acceptance if self.timing.options.mtp else 0.0
        return tokens / (1 + rate), tokens * rate * (1 - rate) / (1 + rate) ** 3
