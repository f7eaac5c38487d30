"""share(flows, links): weighted max-min fair rates on shared links, with floors and ceilings.

No flow's rate can be raised without lowering that of one that has no more. All floors are set aside first; what is left
of each link is shared max-min by weight, up to the ceilings; a flow's rate is its floor plus its share. Floors that do
not fit on a link are refused (`Overcommitted`), never trimmed.

The method is progressive filling: links wait in a heap by the level at which they would fill; the lowest is closed, its
flows are fixed, and what they leave behind raises other links' levels. Each link is only re-evaluated when it reaches
the top, so the cost is close to (flows x path length) x log(links). Exact on Fractions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from matrixcommon.model.errors import InsufficientBandwidth, InvalidField
from matrixlink.fabric.sharing.flow import Flow, Number

ROUNDING = 1e-12
"""How far floats may exceed a link's capacity, relatively, through rounding alone."""


class Overcommitted(InsufficientBandwidth):
    """The floors on some links add up to more than their capacity. `links` are their keys, sorted."""

    def __init__(self, links: list[Hashable], blocking: list[dict[str, object]]) -> None:
        super().__init__(f"floors exceed the capacity of {', '.join(map(str, links[:5]))}", blocking=blocking)
        self.links = links


def share(flows: Sequence[Flow], links: Mapping[Hashable, Number]) -> list[Number]:
    """The rate of each flow, in order. Raises Overcommitted if floors do not fit, InvalidField for an invalid flow."""
    paths = checked_paths(flows, links)
    left: dict[Hashable, Any] = dict(links)
    for flow, path in zip(flows, paths, strict=True):
        if flow.floor:
            for key in path:
                rest: Any = left[key] - flow.floor
                left[key] = rest if rest > 0 else 0
    above = [Flow(flow.links, flow.weight, 0, flow.ceiling - flow.floor) for flow in flows]
    extra = Filling(above, paths, left).run()
    return [flow.floor + more for flow, more in zip(flows, extra, strict=True)]


def checked_paths(flows: Sequence[Flow], links: Mapping[Hashable, Number]) -> list[tuple[Hashable, ...]]:
    """The links of each flow, each once. Raises InvalidField for an invalid flow, and Overcommitted with every link
    whose floors exceed its capacity."""
    paths = [_checked_path(number, flow, links) for number, flow in enumerate(flows)]
    booked: dict[Hashable, Number] = {}
    for flow in flows:
        if flow.floor:
            for key in set(flow.links):
                booked[key] = booked.get(key, 0) + flow.floor
    over = sorted((key for key, sum in booked.items() if _exceeds(sum, links[key])), key=str)
    if over:
        raise Overcommitted(
            over,
            [{"link": str(k), "capacityGbps": float(links[k]), "floorsGbps": float(booked[k])} for k in over],
        )
    return paths


def _exceeds(load: Number, capacity: Number) -> bool:
    if isinstance(load, float) or isinstance(capacity, float):
        return load > capacity + ROUNDING * max(abs(float(capacity)), abs(float(load)))
    return load > capacity


def _checked_path(number: int, flow: Flow, links: Mapping[Hashable, Number]) -> tuple[Hashable, ...]:
    if not flow.weight > 0:
        raise InvalidField("a weight must be above 0", field=f"flows[{number}].weight")
    if not 0 <= flow.floor <= flow.ceiling:
        raise InvalidField("a floor must be at least 0 and at most the ceiling", field=f"flows[{number}].floor")
    path = tuple(dict.fromkeys(flow.links))
    for key in path:
        if key not in links:
            raise InvalidField(f"there is no link {key!r}", field=f"flows[{number}].links")
    if not path and flow.ceiling == math.inf:
        raise InvalidField("a flow without links needs a ceiling", field=f"flows[{number}].links")
    return path


class Filling:
    """One run of progressive filling, for flows without floors. Heap entries are (level, kind, number): a link that
    fills at that level, or a flow that reaches its ceiling there. Levels of links only rise as flows are fixed, so an
    entry that is too low is put back."""

    def __init__(
        self, flows: Sequence[Flow], paths: Sequence[tuple[Hashable, ...]], links: Mapping[Hashable, Number]
    ) -> None:
        self.flows = flows
        used: dict[Hashable, int] = {}
        self.path = [[used.setdefault(key, len(used)) for key in path] for path in paths]
        self.left: list[Number] = [links[key] for key in used]  # capacity minus what is fixed
        self.pull: list[Number] = [0] * len(used)  # total weight of the rising flows
        self.active = [0] * len(used)  # the number of rising flows, which tells when the pull is zero despite rounding
        self.on: list[list[int]] = [[] for _ in used]
        self.rate: list[Number | None] = [None] * len(flows)
        self.rising = [True] * len(flows)
        for f, path in enumerate(self.path):
            for link in path:
                self.on[link].append(f)
                self.pull[link] += flows[f].weight
                self.active[link] += 1
        self.heap: list[tuple[Number, int, int]] = []

    LINK, CEILING = 0, 1

    def run(self) -> list[Number]:
        self.heap += [(self._fill_level(link, 0), self.LINK, link) for link, active in enumerate(self.active) if active]
        for f, flow in enumerate(self.flows):
            if flow.ceiling != math.inf:
                self.heap.append((exact_ratio(flow.ceiling, flow.weight), self.CEILING, f))
        heapq.heapify(self.heap)
        level: Number = 0
        while self.heap:
            at, what, which = heapq.heappop(self.heap)
            if what == self.LINK:
                if not self.active[which]:
                    continue
                now = self._fill_level(which, level)
                if now > at:
                    heapq.heappush(self.heap, (now, self.LINK, which))
                    continue
                level = max(level, at)
                for f in self.on[which]:
                    if self.rising[f]:
                        self._fix(f, self.flows[f].weight * level)
            elif self.rate[which] is None:
                level = max(level, at)
                self._reached(what, which, level)
        return [flow.floor if rate is None else rate for flow, rate in zip(self.flows, self.rate, strict=True)]

    def _reached(self, what: int, f: int, level: Number) -> None:
        self._fix(f, self.flows[f].ceiling)

    def _fill_level(self, link: int, level: Number) -> Number:
        """The level at which the link fills if nothing else changes; never below the present one."""
        return max(exact_ratio(self.left[link], self.pull[link]), level)

    def _fix(self, f: int, rate: Number) -> None:
        self.rate[f], self.rising[f] = rate, False
        for link in self.path[f]:
            self.pull[link] -= self.flows[f].weight
            self.active[link] -= 1
            self.left[link] -= rate


def exact_ratio(a: Number, b: Number) -> Number:
    """a / b, exact if both are."""
    return a / b if isinstance(a, float) or isinstance(b, float) else Fraction(a) / b
