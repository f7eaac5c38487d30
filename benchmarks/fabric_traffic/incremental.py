"""IncrementalMaxMin: fair rates of flows that start and end, updated one change at a time.

A change returns the flows whose rates were recomputed; all other rates are unchanged. With the C kernel only the rates
that the change can affect are recomputed (see kernel.c); without it, those of all live flows. The rule is guarantee
plus share. Rates are GB/s; links are indices into `capacity`.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.max_min import ROUNDING, Overcommitted
from matrixlink.fabric.sharing.max_min_arrays import fair_rates
from matrixlink.fabric.sharing.native_kernel import load_kernel
from matrixlink.fabric.sharing.traffic import Floats, traffic

Path = tuple[int, ...]
Numbers = NDArray[np.int32]


class IncrementalMaxMin:
    """At most `flows_max` flows at once, each over at most `links_max` links. A flow is identified by the number that
    `add` returns, which is reused after its removal."""

    def __init__(self, capacity: Sequence[float] | Floats, flows_max: int = 10_000, links_max: int = 8) -> None:
        self.capacity = np.array(capacity, float)
        self.flows_max, self.links_max = flows_max, links_max
        self._floors = np.zeros(len(self.capacity))
        self._flows: dict[int, tuple[Path, float, float, float]] = {}
        self._free = list(range(flows_max - 1, -1, -1))
        self._kernel = load_kernel()
        if self._kernel is None:
            self._shares = np.zeros(flows_max)
            return
        self._fabric = self._kernel.fabric_new(flows_max, len(self.capacity), links_max, self.capacity)
        if not self._fabric:
            raise MemoryError("no memory for the flows")
        weakref.finalize(self, self._kernel.fabric_free, self._fabric)
        self._shares = np.ctypeslib.as_array(self._kernel.fabric_shares(self._fabric), (flows_max,))
        self._set = np.ctypeslib.as_array(self._kernel.fabric_set_of(self._fabric), (flows_max,))
        self._path = (ctypes.c_int32 * links_max)()
        self._path_at = ctypes.addressof(self._path)

    def __len__(self) -> int:
        return len(self._flows)

    def rate(self, flow: int) -> float:
        """The rate of a live flow (GB/s). Raises KeyError if there is none with that number."""
        return self._flows[flow][2] + float(self._shares[flow])

    def rates(self) -> dict[int, float]:
        return {flow: self.rate(flow) for flow in self._flows}

    def add(
        self, links: Sequence[int], weight: float = 1.0, floor: float = 0.0, ceiling: float = np.inf
    ) -> tuple[int, Numbers]:
        """Add a flow. Returns its number and the flows recomputed. Raises Overbooked if its floor does not fit."""
        path = tuple(dict.fromkeys(links))
        self._check(path, weight, floor, ceiling)
        if floor:
            self._check_floors(path, floor)
        flow = self._free.pop()
        self._flows[flow] = (path, weight, floor, ceiling)
        if self._kernel is None:
            return flow, self._solve_all()
        self._path[: len(path)] = list(path)
        seen = self._kernel.fabric_add(self._fabric, flow, self._path_at, len(path), weight, floor, ceiling)
        return flow, self._set[:seen].copy()

    def remove(self, flow: int) -> Numbers:
        """Remove a flow. Returns the flows recomputed. Raises KeyError if there is none with that number."""
        path, _, floor, _ = self._flows.pop(flow)
        self._free.append(flow)
        if floor:
            self._floors[list(path)] -= floor
        if self._kernel is None:
            return self._solve_all()
        seen = self._kernel.fabric_remove(self._fabric, flow)
        return self._set[:seen].copy()

    def set_capacity(self, link: int, gbps: float) -> Numbers:
        """Change a link's capacity. Returns the flows recomputed. Raises Overbooked if it becomes less than the floors
        on the link: their flows have to be removed or moved first."""
        if not 0 <= link < len(self.capacity) or not 0 <= gbps < np.inf:
            raise InvalidField("a link that there is, and a finite rate of at least 0", field="capacityGbps")
        self._raise_overbooked([link], self._floors[[link]], np.array([gbps]))
        change, self.capacity[link] = gbps - self.capacity[link], gbps
        if self._kernel is None:
            return self._solve_all()
        seen = self._kernel.fabric_set_capacity(self._fabric, link, change)
        return self._set[:seen].copy()

    def _check(self, path: Path, weight: float, floor: float, ceiling: float) -> None:
        if not self._free:
            raise InvalidField(f"at most {self.flows_max} flows at once", field="links")
        if not 0 < len(path) <= self.links_max or min(path) < 0 or max(path) >= len(self.capacity):
            raise InvalidField(f"a path is 1 to {self.links_max} links that there are", field="links")
        if not 0 < weight < np.inf:
            raise InvalidField("a weight is above 0 and finite", field="weight")
        if not 0 <= floor <= ceiling:
            raise InvalidField("a floor is at least 0 and at most the ceiling", field="floor")

    def _check_floors(self, path: Path, floor: float) -> None:
        wanted = self._floors[list(path)] + floor
        self._raise_overbooked(path, wanted, self.capacity[list(path)])
        self._floors[list(path)] = wanted

    def _raise_overbooked(self, links: Sequence[int], floors: Floats, capacity: Floats) -> None:
        over = [n for n in range(len(links)) if floors[n] > capacity[n] * (1 + ROUNDING) + ROUNDING]
        if over:
            raise Overcommitted(
                [links[n] for n in over],
                [
                    {"link": str(links[n]), "capacityGbps": float(capacity[n]), "floorsGbps": float(floors[n])}
                    for n in over
                ],
            )

    def _solve_all(self) -> Numbers:
        flows = list(self._flows)
        if flows:
            current = list(self._flows.values())
            width = max(len(path) for path, *_ in current)
            paths = [path + (-1,) * (width - len(path)) for path, *_ in current]
            _, weight, floor, ceiling = zip(*current, strict=True)
            made = traffic(self.capacity, paths, weight=weight, floor=floor, ceiling=ceiling)
            self._shares[flows] = fair_rates(made) - made.floor
        return np.array(flows, np.int32)
