"""The two rules of oracle cases with floors, exact and with arrays.

  guarantee-plus-share   the rule of MatrixLink's reservations (`matrixlink.fabric.sharing`)
  floor-level            one level rises for all flows; a flow's rate is weight x level, clamped between floor and
                         ceiling, until a link on its path is full. A floor counts as part of the share.

Without floors both are plain max-min.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.flow import Flow, Number
from matrixlink.fabric.sharing.max_min import Filling, checked_paths, exact_ratio
from matrixlink.fabric.sharing.max_min import share as share_above_floors
from matrixlink.fabric.sharing.max_min_arrays import fair_rates
from matrixlink.fabric.sharing.traffic import Traffic, validated_traffic

GUARANTEE_PLUS_SHARE = "guarantee-plus-share"
FLOOR_LEVEL = "floor-level"
RULES = (GUARANTEE_PLUS_SHARE, FLOOR_LEVEL)


def share(flows: Sequence[Flow], links: Mapping[Hashable, Number], rule: str = GUARANTEE_PLUS_SHARE) -> list[Number]:
    """The rate of each flow by either rule; exact for Fractions."""
    if rule not in RULES:
        raise InvalidField(f"{rule!r} is no sharing rule; there are {', '.join(RULES)}", field="rule")
    if rule == FLOOR_LEVEL:
        return _LevelFilling(flows, checked_paths(flows, links), links).run()
    return share_above_floors(flows, links)


def share_floats(
    flows: Sequence[Flow], links: Mapping[Hashable, Number], rule: str = GUARANTEE_PLUS_SHARE
) -> list[float]:
    """The same in floats, with the product's array code where it exists. Raises the same errors."""
    made, keys = from_flows(flows, links)
    if rule == GUARANTEE_PLUS_SHARE:
        return fair_rates(made, keys).tolist()
    return [float(rate) for rate in share(flows, {key: float(capacity) for key, capacity in links.items()}, rule)]


def from_flows(flows: Sequence[Flow], links: Mapping[Any, Number]) -> tuple[Traffic, list[Hashable]]:
    """The flows as arrays, and the key of each link by its index."""
    number = {key: index for index, key in enumerate(links)}
    starts, entries = [0], []
    for index, flow in enumerate(flows):
        for key in dict.fromkeys(flow.links):
            if key not in number:
                raise InvalidField(f"there is no link {key!r}", field=f"flows[{index}].links")
            entries.append(number[key])
        starts.append(len(entries))
    made = validated_traffic(
        np.array([float(capacity) for capacity in links.values()]),
        np.array(starts, np.int64),
        np.array(entries, np.int32),
        *([float(getattr(f, name)) for f in flows] for name in ("weight", "floor", "ceiling", "size", "start")),
    )
    return made, list(number)


class _LevelFilling(Filling):
    """A flow with a floor is inactive, with that rate reserved on its links, until the level reaches its floor. When it
    becomes active, the level of a link may fall, so that link is pushed onto the heap again."""

    WAKE = 2

    def __init__(
        self, flows: Sequence[Flow], paths: Sequence[tuple[Hashable, ...]], links: Mapping[Hashable, Number]
    ) -> None:
        super().__init__(flows, paths, links)
        for f, flow in enumerate(flows):
            if flow.floor:
                self.heap.append((exact_ratio(flow.floor, flow.weight), self.WAKE, f))
                self._set_active(f, awake=False)

    def _reached(self, what: int, f: int, level: Number) -> None:
        if what == self.CEILING:
            self._fix(f, self.flows[f].ceiling)
            return
        self._set_active(f, awake=True)
        for link in self.path[f]:
            heapq.heappush(self.heap, (self._fill_level(link, level), self.LINK, link))

    def _fix(self, f: int, rate: Number) -> None:
        if not self.rising[f]:
            self._set_active(f, awake=True)
        super()._fix(f, rate)

    def _set_active(self, f: int, *, awake: bool) -> None:
        sign, flow = 1 if awake else -1, self.flows[f]
        self.rising[f] = awake
        for link in self.path[f]:
            self.pull[link] += sign * flow.weight
            self.active[link] += sign
            self.left[link] += sign * flow.floor
