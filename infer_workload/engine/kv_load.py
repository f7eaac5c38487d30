"""The die of a pool with the most requests, the one with the most tokens, and for how many steps that stays so.

With every step a die gains tokens for each of its requests, so its tokens are linear in steps. Dies with equally many
requests grow alike: the one with the most tokens stays ahead until one of them changes. So only the longest die for
each number of requests is compared: a few lines, however many dies there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import count
from math import floor

from infer_workload.engine.request import DecodeDie, InferenceRequest

STALE_ENTRIES_MAX = 4
"""Entries per die in a heap at which it is rebuilt, to drop stale entries."""

Heap = list[tuple[float, int, DecodeDie]]
"""Dies with one number of requests: (negated tokens at step 0, tie-breaker, die). Entries may be stale."""


class KvLoadTracker:
    """Tracks the longest die. `growth`: tokens that a request gains per step."""

    def __init__(self, growth: float) -> None:
        self._growth = growth
        self._heaps: dict[int, Heap] = {}
        self._dies: dict[int, int] = {}
        """The number of dies by number of requests."""
        self._numbers = count()

    def tokens(self, die: DecodeDie, step: int) -> float:
        return die.kv_base + die.active * self._growth * step

    def add(self, request: InferenceRequest, step: int) -> None:
        """Add a request that decodes from that step on."""
        die = request.die
        assert die is not None
        request.kv_base = request.prompt - self._growth * step
        self._update_die(die, 1, die.kv_base + request.kv_base)

    def remove(self, request: InferenceRequest) -> None:
        die = request.die
        assert die is not None
        self._update_die(die, -1, die.kv_base - request.kv_base if die.active > 1 else 0.0)

    def set_growth(self, growth: float, step: int, decoding: Iterable[InferenceRequest]) -> None:
        """Change the tokens that a request gains per step, from that step on."""
        if growth == self._growth:
            return
        dies: dict[DecodeDie, None] = {}
        for request in decoding:
            assert request.die is not None
            request.kv_base += (self._growth - growth) * step
            dies[request.die] = None
        for die in dies:
            die.kv_base += die.active * (self._growth - growth) * step
        self._growth = growth
        self._heaps.clear()
        for die in dies:
            self._push(die)

    def linear_segment(self, step: int) -> tuple[int, float, float, int]:
        """For a pool that decodes: the most requests of a die, the most tokens of a die, their growth per step, and for
        how many steps the same die has the most."""
        lead, most = 0, -1.0
        tops = [(active, self._max_base(active) + active * self._growth * step) for active in self._dies]
        for active, tokens in tops:
            if tokens > most or (tokens == most and active > lead):
                lead, most = active, tokens
        fullest, steps = lead, 1 << 60
        for active, tokens in tops:
            if active > lead:
                steps = min(steps, floor((most - tokens) / ((active - lead) * self._growth)) + 1)
                fullest = max(fullest, active)
        return fullest, most, lead * self._growth, steps

    def _max_base(self, active: int) -> float:
        heap = self._heaps[active]
        while True:
            base, _, die = heap[0]
            if die.active == active and die.kv_base == -base:
                return -base
            heappop(heap)

    def _update_die(self, die: DecodeDie, change: int, base: float) -> None:
        before, dies = die.active, self._dies
        die.active, die.kv_base = before + change, base
        if before:
            dies[before] -= 1
            if not dies[before]:
                del dies[before], self._heaps[before]
        if die.active:
            dies[die.active] = dies.get(die.active, 0) + 1
            self._push(die)

    def _push(self, die: DecodeDie) -> None:
        heap = self._heaps.setdefault(die.active, [])
        heappush(heap, (-die.kv_base, next(self._numbers), die))
        if len(heap) > 64 and len(heap) > STALE_ENTRIES_MAX * self._dies[die.active]:
            current = (entry for entry in heap if entry[2].active == die.active and entry[2].kv_base == -entry[0])
            heap[:] = {entry[2]: entry for entry in current}.values()
            heapify(heap)
