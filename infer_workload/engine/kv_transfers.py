"""KV transfers in progress, sharing the RDMA plane.

Each goes from a prefill instance into the port of one decode die. Shared ports are divided by the same max-min `share`
with which MatrixLink admits slices. In the usual case no port is overloaded, and each transfer runs at the rate of its
narrowest port; otherwise only the transfers through overloaded ports are solved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, ulp

from infer_workload.engine.request import InferenceRequest
from matrixlink.fabric.sharing.flow import Flow
from matrixlink.fabric.sharing.max_min import share

Port = Hashable

ROUNDING_S = 1e-9
"""A remainder that moves within this time counts as moved."""
CLOCK_STEPS = 4.0
"""The same in units of the clock's resolution, if that is longer: a transfer that ends within one unit would never be
due later than now. The resolution of seconds since the epoch is a quarter of a microsecond, at 60 times as many
seconds 15."""


@dataclass(slots=True, eq=False)
class Transfer:
    """The transfer of one request's KV: its ports, the bytes left, and its present rate in GB/s."""

    request: InferenceRequest
    attempt: int
    ports: tuple[Port, ...]
    remaining_bytes: float
    rate: float = 0.0


class Transfers:
    """All transfers of a deployment. `capacity(port)` is the rate of a port, GB/s, fixed until the next `update_rates`.

    Rates are computed once for all starts and ends of one moment, when `due` is read or time passes.
    """

    def __init__(self, capacity: Callable[[Port], float]) -> None:
        self._capacity = cache(capacity)
        self._active: list[Transfer] = []
        self._at = 0.0
        self._due: float | None = inf
        """None: a transfer has started or ended since rates were computed."""

    def __len__(self) -> int:
        return len(self._active)

    @property
    def due(self) -> float:
        """When the first transfer ends; infinity if none does."""
        if self._due is None:
            self._due = self._allocate_rates()
        return self._due

    def start(self, now: float, request: InferenceRequest, ports: tuple[Port, ...], size_bytes: float) -> None:
        self._advance(now)
        self._active.append(Transfer(request, request.attempts, ports, size_bytes))
        self._due = None

    def pop_finished(self, now: float) -> list[Transfer]:
        """Remove and return the transfers that are complete."""
        self._advance(now)
        moved_s = max(ROUNDING_S, CLOCK_STEPS * ulp(self._at))
        done: list[Transfer] = []
        ongoing: list[Transfer] = []
        for current in self._active:
            (done if current.remaining_bytes <= current.rate * 1e9 * moved_s else ongoing).append(current)
        self._active = ongoing
        self._due = None
        return done

    def drop(self, now: float, requests: Iterable[InferenceRequest]) -> None:
        """Drop the transfers of these requests."""
        leaving = set(requests)
        if any(current.request in leaving for current in self._active):
            self._advance(now)
            self._active = [current for current in self._active if current.request not in leaving]
            self._due = None

    def update_rates(self, now: float) -> None:
        """Read the rates of ports again, as they have changed."""
        self._advance(now)
        self._capacity.cache_clear()
        self._due = None

    def _advance(self, now: float) -> None:
        if now <= self._at:
            return
        if self._due is None:
            self._due = self._allocate_rates()
        elapsed, self._at = now - self._at, now
        for current in self._active:
            current.remaining_bytes = max(0.0, current.remaining_bytes - current.rate * 1e9 * elapsed)

    def _allocate_rates(self) -> float:
        """Compute new rates. Return when the first transfer ends."""
        if len(self._active) < 2:
            due = inf
            for alone in self._active:
                alone.rate = min(self._capacity(port) for port in alone.ports)
                if alone.rate > 0:
                    due = self._at + alone.remaining_bytes / (alone.rate * 1e9)
            return due
        links = {port: self._capacity(port) for current in self._active for port in current.ports}
        demand = dict.fromkeys(links, 0.0)
        for current in self._active:
            current.rate = min(links[port] for port in current.ports)
            for port in current.ports:
                demand[port] += current.rate
        if overloaded := {port: gbps for port, gbps in links.items() if demand[port] > gbps * (1 + 1e-9)}:
            self._share_overloaded(overloaded)
        ends = [current.remaining_bytes / (current.rate * 1e9) for current in self._active if current.rate > 0]
        return self._at + min(ends) if ends else inf

    def _share_overloaded(self, overloaded: Mapping[Port, float]) -> None:
        """Divide the overloaded ports (GB/s) among the transfers through them. No other port can be full: each transfer
        asks for no more than its narrowest port gives."""
        sharing = [
            (current, path) for current in self._active if (path := [p for p in current.ports if p in overloaded])
        ]
        rates = share([Flow(tuple(path), ceiling=current.rate) for current, path in sharing], overloaded)
        for (current, _), rate in zip(sharing, rates, strict=True):
            current.rate = float(rate)
