"""share(flows, links): weighted max-min fair rates on shared links, with floors and ceilings.

Nobody's rate can be raised without lowering that of somebody who has no more. Two rules say what a floor means:

  guarantee-plus-share   all floors are set aside first; what is left of each link is shared max-min by weight, up to
                         the ceilings; a flow's rate is its floor plus its share. MatrixLink promises by this rule.
  floor-level            one level rises for everybody; a flow's rate is weight x level held between floor and ceiling,
                         until a link on its path is full. A floor counts as part of the share.

Without floors the two are the same, plain max-min. Floors that do not fit on a link are refused (`Overbooked`), never
trimmed. The method is progressive filling: links wait in a heap by the level at which they would fill; the lowest is
closed, its flows are fixed, and what they leave behind pushes other links' levels up. Each link is looked at again only
when it comes to the top, so the cost is near (flows x path length) x log(links). Exact on Fractions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from matrixcommon.model.errors import InsufficientBandwidth, InvalidField
from matrixlink.fabric.sharing.flow import Flow, Number

GUARANTEE_PLUS_SHARE = "guarantee-plus-share"
FLOOR_LEVEL = "floor-level"
RULES = (GUARANTEE_PLUS_SHARE, FLOOR_LEVEL)

ROUNDING = 1e-12
"""How far, relative to a link's capacity, floats may miss it by rounding alone."""


class Overcommitted(InsufficientBandwidth):
    """The floors on some links add up to more than they have. `links` are their keys, sorted."""

    def __init__(self, links: list[Hashable], blocking: list[dict[str, object]]) -> None:
        super().__init__(f"floors exceed the capacity of {', '.join(map(str, links[:5]))}", blocking=blocking)
        self.links = links


def share(flows: Sequence[Flow], links: Mapping[Hashable, Number], rule: str = GUARANTEE_PLUS_SHARE) -> list[Number]:
    """The rate of each flow, in order. Raises Overbooked when floors do not fit, InvalidField for a bad flow."""
    if rule not in RULES:
        raise InvalidField(f"{rule!r} is no sharing rule; there are {', '.join(RULES)}", field="rule")
    paths = [_checked_path(number, flow, links) for number, flow in enumerate(flows)]
    refuse_overbooking(flows, links)
    if rule == FLOOR_LEVEL:
        return _Filling(flows, paths, links, floors_rise=True).run()
    left: dict[Hashable, Any] = dict(links)
    for flow, path in zip(flows, paths, strict=True):
        if flow.floor:
            for key in path:
                rest: Any = left[key] - flow.floor
                left[key] = rest if rest > 0 else 0
    above = [Flow(flow.links, flow.weight, 0, flow.ceiling - flow.floor) for flow in flows]
    extra = _Filling(above, paths, left, floors_rise=False).run()
    return [flow.floor + more for flow, more in zip(flows, extra, strict=True)]


def refuse_overbooking(flows: Sequence[Flow], links: Mapping[Hashable, Number]) -> None:
    """Raises Overbooked naming every link whose floors add up to more than it has."""
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


def _exceeds(load: Number, capacity: Number) -> bool:
    if isinstance(load, float) or isinstance(capacity, float):
        return load > capacity + ROUNDING * max(abs(float(capacity)), abs(float(load)))
    return load > capacity


def _checked_path(number: int, flow: Flow, links: Mapping[Hashable, Number]) -> tuple[Hashable, ...]:
    if not flow.weight > 0:
        raise InvalidField("a weight is above 0", field=f"flows[{number}].weight")
    if not 0 <= flow.floor <= flow.ceiling:
        raise InvalidField("a floor is at least 0 and at most the ceiling", field=f"flows[{number}].floor")
    path = tuple(dict.fromkeys(flow.links))
    for key in path:
        if key not in links:
            raise InvalidField(f"there is no link {key!r}", field=f"flows[{number}].links")
    if not path and flow.ceiling == math.inf:
        raise InvalidField("a flow over no link needs a ceiling", field=f"flows[{number}].links")
    return path


class _Filling:
    """One run of progressive filling. Heap entries are (level, number, what): a link that fills at that level, a flow
    that reaches its ceiling there, or a flow whose floor the level overtakes there. Levels of links only rise while
    flows are fixed, so an entry that is too low is put back; when a flow wakes a level may fall, so it is put anew."""

    def __init__(
        self,
        flows: Sequence[Flow],
        paths: Sequence[tuple[Hashable, ...]],
        links: Mapping[Hashable, Number],
        floors_rise: bool,
    ) -> None:
        self.flows, self.paths = flows, paths
        used: dict[Hashable, int] = {}
        self.path = [[used.setdefault(key, len(used)) for key in path] for path in paths]
        self.left: list[Number] = [links[key] for key in used]  # capacity less what is fixed or asleep
        self.pull: list[Number] = [0] * len(used)  # weight of the rising flows
        self.active = [0] * len(used)  # how many they are: tells when the pull is nothing, rounding or not
        self.on: list[list[int]] = [[] for _ in used]
        self.rate: list[Number | None] = [None] * len(flows)
        self.rising = [not (floors_rise and flow.floor) for flow in flows]
        for f, path in enumerate(self.path):
            for link in path:
                self.on[link].append(f)
                if self.rising[f]:
                    self.pull[link] += flows[f].weight
                    self.active[link] += 1
                else:
                    self.left[link] -= flows[f].floor
        self.heap: list[tuple[Number, int, int]] = []

    LINK, CEILING, WAKE = 0, 1, 2

    def run(self) -> list[Number]:
        for link, active in enumerate(self.active):
            if active:
                self.heap.append((self._level(link, 0), self.LINK, link))
        for f, flow in enumerate(self.flows):
            if flow.ceiling != math.inf:
                self.heap.append((_ratio(flow.ceiling, flow.weight), self.CEILING, f))
            if not self.rising[f]:
                self.heap.append((_ratio(flow.floor, flow.weight), self.WAKE, f))
        heapq.heapify(self.heap)
        level: Number = 0
        while self.heap:
            at, what, which = heapq.heappop(self.heap)
            if what == self.LINK:
                if not self.active[which]:
                    continue
                now = self._level(which, level)
                if now > at:
                    heapq.heappush(self.heap, (now, self.LINK, which))
                    continue
                level = max(level, at)
                for f in self.on[which]:
                    if self.rising[f] and self.rate[f] is None:
                        self._fix(f, self.flows[f].weight * level)
            elif self.rate[which] is None:
                level = max(level, at)
                if what == self.CEILING:
                    self._fix(which, self.flows[which].ceiling)
                else:
                    self._wake(which, level)
        return [flow.floor if rate is None else rate for flow, rate in zip(self.flows, self.rate, strict=True)]

    def _level(self, link: int, level: Number) -> Number:
        """The level at which the link fills if nothing else changes; never below the present one."""
        return max(_ratio(self.left[link], self.pull[link]), level)

    def _fix(self, f: int, rate: Number) -> None:
        self.rate[f] = rate
        flow = self.flows[f]
        for link in self.path[f]:
            if self.rising[f]:
                self.pull[link] -= flow.weight
                self.active[link] -= 1
                self.left[link] -= rate
            else:
                self.left[link] += flow.floor - rate

    def _wake(self, f: int, level: Number) -> None:
        self.rising[f] = True
        for link in self.path[f]:
            self.pull[link] += self.flows[f].weight
            self.active[link] += 1
            self.left[link] += self.flows[f].floor
            heapq.heappush(self.heap, (self._level(link, level), self.LINK, link))


def _ratio(a: Number, b: Number) -> Number:
    """a / b, kept exact where both are."""
    return a / b if isinstance(a, float) or isinstance(b, float) else Fraction(a) / b
