"""The decode pool in lock step.

All dies take their steps together, so the pool needs no event per token: between two changes of its batch every step
takes the same time, and a request that wants m steps is finished at a known step. Events are joins, which wait for the
next step's boundary, finishes, and a refresh now and then because contexts grow. What a per-step loop would find is
found exactly, apart from the step time being held for up to REFRESH_STEPS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import ceil, inf
from random import Random

from infer_workload.engine.request import DECODING, DecodeDie, InferenceRequest
from infer_workload.timing.decode import DecodeTiming

REFRESH_STEPS = 64


class DecodePool:
    """The steps of one decode pool. `emitted(start, end, tokens)` hears how many tokens came when."""

    def __init__(
        self, timing: DecodeTiming, dies: list[DecodeDie], rng: Random, emitted: Callable[[float, float, float], None]
    ) -> None:
        self.timing = timing
        self.dies = dies
        self.due = inf
        self._rng = rng
        self._emitted = emitted
        self._step = 0
        self._step_at = 0.0
        self._step_s = 0.0
        self._paused_until = 0.0
        self._ends: list[tuple[int, int, InferenceRequest]] = []
        self._joining: list[InferenceRequest] = []
        self._busy: dict[DecodeDie, None] = {}
        self.steps = 0

    @property
    def active(self) -> int:
        return len(self._ends)

    @property
    def step_s(self) -> float:
        """What a step takes at present; 0 while nothing decodes."""
        return self._step_s if self._ends else 0.0

    @property
    def _stands(self) -> bool:
        """Whether no step ends: its exchanges have no way."""
        return bool(self._ends) and self._step_s == inf

    def requests(self) -> list[InferenceRequest]:
        """All that decode or are about to."""
        return [request for _, _, request in self._ends] + self._joining

    def join(self, request: InferenceRequest, now: float) -> None:
        """Decode the request from the next step on."""
        self._joining.append(request)
        at = max(now, self._paused_until)
        if self._stands:
            return
        if self._ends and at > self._step_at:
            at = self._step_at + ceil((at - self._step_at) / self._step_s - 1e-9) * self._step_s
        self.due = min(self.due, at) if self._ends else max(at, self._step_at)

    def run(self, now: float) -> list[InferenceRequest]:
        """What happens at a boundary that is due: finishes, joins, a new pace. Returns the finished."""
        self._advance(now)
        finished = []
        while self._ends and self._ends[0][0] <= self._step:
            request = heappop(self._ends)[2]
            self._leave(request)
            finished.append(request)
        for request in self._joining:
            self._enter(request)
        self._joining.clear()
        self._pace()
        return finished

    def settle(self, now: float) -> None:
        """Account for the steps done so far, so that a reader sees the tokens of the current stretch."""
        if self._ends and not self._stands and now < self.due and now > self._step_at:
            self._advance(self._step_at + int((now - self._step_at) / self._step_s) * self._step_s)

    def tokens_of(self, request: InferenceRequest, now: float) -> int:
        """Tokens the request has by now, the first one included."""
        if request.state != DECODING or request.end_step <= request.start_step:
            return request.generated
        steps = self._step + (
            int((now - self._step_at) / self._step_s + 1e-9) if self._step_s and now > self._step_at else 0
        )
        share = min(1.0, max(0, steps - request.start_step) / (request.end_step - request.start_step))
        return request.tokens_at_start + int((request.output_tokens - request.tokens_at_start) * share + 1e-9)

    def pause(self, until: float) -> None:
        """No step before `until`: the ranks are being rebuilt. Call `settle` first."""
        self._paused_until = max(self._paused_until, until)
        self._step_at = max(self._step_at, self._paused_until)
        self._pace()
        if self._joining:
            self.due = min(self.due, self._step_at)

    def remove(self, gone: Iterable[InferenceRequest]) -> None:
        """These leave without finishing. Call `settle` first."""
        leaving = set(gone)
        for _, _, request in self._ends:
            if request in leaving:
                self._leave(request)
        self._ends = [entry for entry in self._ends if entry[2] not in leaving]
        heapify(self._ends)
        self._joining = [request for request in self._joining if request not in leaving]
        self._pace()
        if self._joining:
            self.due = min(self.due, max(self._step_at, self._paused_until))

    def rebuild(self, timing: DecodeTiming, dies: list[DecodeDie], now: float) -> None:
        """The pool has another shape, or another pace, from now on."""
        if self._stands:
            self._step_at = max(now, self._step_at)
        self.timing, self.dies = timing, dies
        self._pace()
        if self._joining and not self._stands:
            self.due = min(self.due, max(self._step_at, self._paused_until))

    def _enter(self, request: InferenceRequest) -> None:
        request.move(DECODING)
        request.start_step = self._step
        request.tokens_at_start = request.generated
        request.end_step = self._step + self._steps_for(request.output_tokens - request.generated)
        heappush(self._ends, (request.end_step, request.number, request))
        assert request.die is not None
        request.die.active += 1
        request.die.kv_tokens += request.prompt
        self._busy[request.die] = None

    def _leave(self, request: InferenceRequest) -> None:
        die = request.die
        assert die is not None
        die.active -= 1
        if die.active == 0:
            die.kv_tokens = 0.0
            self._busy.pop(die, None)
        else:
            grown = (self._step - request.start_step) * self.timing.tokens_per_step
            die.kv_tokens = max(0.0, die.kv_tokens - request.prompt - grown)

    def _steps_for(self, tokens: int) -> int:
        """Steps until that many tokens are accepted: each brings one, and a second one with the acceptance."""
        if not self.timing.options.mtp:
            return tokens
        rate = self.timing.acceptance
        mean, spread = tokens / (1 + rate), (tokens * rate * (1 - rate) / (1 + rate) ** 3) ** 0.5
        return min(tokens, max(-(-tokens // 2), round(self._rng.gauss(mean, spread)), 1))

    def _advance(self, now: float) -> None:
        if not self._ends:
            self._step_at = max(now, self._step_at)
            return
        steps = round((now - self._step_at) / self._step_s) if self._step_s else 0
        if steps > 0:
            gained = steps * self.timing.tokens_per_step
            for die in self._busy:
                die.kv_tokens += die.active * gained
            self._emitted(self._step_at, now, len(self._ends) * gained)
            self._step += steps
            self.steps += steps
            self._step_at = now

    def _pace(self) -> None:
        if not self._ends:
            self.due, self._step_s = inf, 0.0
            return
        fullest, longest = 0, 0.0
        for die in self._busy:
            if die.active > fullest:
                fullest = die.active
            if die.kv_tokens > longest:
                longest = die.kv_tokens
        self._step_s = self.timing.step_s(fullest, longest)
        if self._step_s == inf:
            self.due = inf
            return
        ahead = min(self._ends[0][0] - self._step, REFRESH_STEPS)
        self.due = self._step_at + max(0, ahead) * self._step_s
