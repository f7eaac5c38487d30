"""Timeline: flows run to completion in virtual time.

Between two moments at which a flow starts or ends or a link changes, all rates are constant and given by `share`, so
the run is a sequence of such moments, computed exactly. A start or an end affects only the flows connected to it
through shared links, and only their rates are recomputed. Time is nanoseconds, size bytes, rate GB/s: one byte per
nanosecond.

If all flows start together with sizes proportional to weights, without floors or ceilings, one solve is sufficient: on
a flow's bottleneck every other flow has the same level or less, so the link stays full until the flow ends.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.fabric_oracles.floor_level import GUARANTEE_PLUS_SHARE, share
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.flow import Flow, Number


@dataclass(frozen=True, slots=True)
class FabricEvent:
    """At `time`, some links change capacity, and some flows move to other links with their remaining bytes."""

    time: Number
    capacity: Mapping[Hashable, Number] = field(default_factory=dict)
    moved: Mapping[int, tuple[Hashable, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlowCompletions:
    """`at`: when each flow ended (ns, in the order of the flows; inf if it never can). `rate_solves`: the moments after
    which flows were still running, so that rates had to be checked."""

    at: list[Number]
    rate_solves: int

    @property
    def makespan(self) -> Number:
        return max(self.at, default=0)


class Timeline:
    """One run. `links` maps link keys to GB/s; events may change these."""

    def __init__(
        self,
        flows: Sequence[Flow],
        links: Mapping[Hashable, Number],
        events: Iterable[FabricEvent] = (),
        rule: str = GUARANTEE_PLUS_SHARE,
    ) -> None:
        for number, flow in enumerate(flows):
            if not (flow.size >= 0 and flow.start >= 0):
                raise InvalidField("size and start are at least 0", field=f"flows[{number}]")
        self._flows = list(flows)
        self._links = dict(links)
        self._events = sorted(events, key=lambda event: event.time)
        self._rule = rule
        self._on: dict[Hashable, set[int]] = {}
        self._left = {number: flow.size for number, flow in enumerate(flows)}
        self._rate: dict[int, Number] = {}
        self._solves = 0

    def run(self) -> FlowCompletions:
        """Run all flows to completion."""
        if self._moves_together():
            rates = share(self._flows, self._links, self._rule)
            start = self._flows[0].start
            return FlowCompletions(
                [start + _duration(f.size, rate) for f, rate in zip(self._flows, rates, strict=True)], 1
            )
        ends: list[Number] = [math.inf] * len(self._flows)
        waiting = sorted(range(len(self._flows)), key=lambda n: self._flows[n].start, reverse=True)
        now: Number = 0
        while waiting or self._rate:
            moment = self._next_moment(now, waiting)
            if moment == math.inf:
                break
            for number, rate in self._rate.items():
                self._left[number] -= rate * (moment - now)
            touched = set(self._finish(moment, ends))
            touched |= set(self._change(moment))
            while waiting and self._flows[waiting[-1]].start <= moment:
                touched |= set(self._begin(waiting.pop(), moment, ends))
            now = moment
            self._solves += bool(self._rate)
            self._recompute_rates(touched)
        return FlowCompletions(ends, self._solves)

    def _moves_together(self) -> bool:
        if not self._flows or self._events:
            return False
        first = self._flows[0]
        return first.size > 0 and all(
            f.start == first.start and f.size * first.weight == first.size * f.weight
            and not f.floor and f.ceiling == math.inf
            for f in self._flows
        )  # fmt: skip

    def _next_moment(self, now: Number, waiting: list[int]) -> Number:
        ends = (now + _duration(max(self._left[n], 0), rate) for n, rate in self._rate.items())
        moments = [min(ends, default=math.inf)]
        if waiting:
            moments.append(self._flows[waiting[-1]].start)
        if self._events:
            moments.append(max(self._events[0].time, now))
        return min(moments)

    def _finish(self, moment: Number, ends: list[Number]) -> Iterable[Hashable]:
        """End the flows without remaining bytes; for floats, less than a billionth of the size counts as none."""
        for number in [n for n in self._rate if self._left[n] <= self._flows[n].size * _tolerance(self._left[n])]:
            ends[number] = moment
            del self._rate[number]
            yield from self._leave(number)

    def _change(self, moment: Number) -> Iterable[Hashable]:
        while self._events and self._events[0].time <= moment:
            event = self._events.pop(0)
            for key, capacity in event.capacity.items():
                self._links[key] = capacity
                yield key
            for number, path in event.moved.items():
                running = number in self._rate
                if running:
                    yield from self._leave(number)
                self._flows[number] = replace(self._flows[number], links=tuple(path))
                if running:
                    yield from self._join(number)

    def _begin(self, number: int, moment: Number, ends: list[Number]) -> Iterable[Hashable]:
        if self._flows[number].size == 0:
            ends[number] = moment
            return
        self._rate[number] = 0
        yield from self._join(number)

    def _join(self, number: int) -> Iterable[Hashable]:
        for key in self._flows[number].links:
            self._on.setdefault(key, set()).add(number)
        return self._flows[number].links

    def _leave(self, number: int) -> Iterable[Hashable]:
        for key in self._flows[number].links:
            self._on[key].discard(number)
        return self._flows[number].links

    def _recompute_rates(self, touched: set[Hashable]) -> None:
        """Recompute the rates of every flow that is connected to a touched link through shared links."""
        seen_flows: set[int] = set()
        seen_links, frontier = set(touched), list(touched)
        while frontier:
            for number in self._on.get(frontier.pop(), ()):
                if number not in seen_flows:
                    seen_flows.add(number)
                    fresh = [key for key in self._flows[number].links if key not in seen_links]
                    seen_links.update(fresh)
                    frontier += fresh
        if seen_flows:
            order = sorted(seen_flows)
            rates = share([self._flows[n] for n in order], self._links, self._rule)
            self._rate.update(zip(order, rates, strict=True))


def _duration(size: Number, rate: Number) -> Number:
    if rate == 0:
        return math.inf
    if isinstance(size, int) and isinstance(rate, int):
        from fractions import Fraction

        return Fraction(size, rate)
    return size / rate


def _tolerance(left: Number) -> float:
    return 1e-9 if isinstance(left, float) else 0
