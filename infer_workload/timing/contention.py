"""Measured bandwidth of a workload's flows while other tenants use the same ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infer_workload.timing.fabric import FreeBandwidth

RATE_TOLERANCE = 0.005
"""Relative difference up to which two rates are taken as equal, because step times barely change."""


@dataclass(frozen=True)
class MeasuredContention:
    """Measured rates in GB/s: of collectives, by participating nodes, and free capacity of ports, by plane and node."""

    exchanges: Mapping[frozenset[str], float] = field(default_factory=dict)
    ports: Mapping[tuple[str, str], FreeBandwidth] = field(default_factory=dict)

    def exchange_gbps(self, nodes: frozenset[str]) -> float | None:
        return self.exchanges.get(nodes)

    def free_bandwidth(self, plane: str, node: str) -> FreeBandwidth | None:
        return self.ports.get((plane, node))

    def close_to(self, other: MeasuredContention | None) -> bool:
        """Whether every rate is within `RATE_TOLERANCE` of the other's, so that no time changes."""
        if other is None or self.exchanges.keys() != other.exchanges.keys() or self.ports.keys() != other.ports.keys():
            return False
        one, two = ([found.exchanges[key] for key in self.exchanges] for found in (self, other))
        return _all_close(one, two) and all(_ports_close(left, other.ports[key]) for key, left in self.ports.items())


def _ports_close(one: FreeBandwidth, other: FreeBandwidth) -> bool:
    return all(
        _all_close(getattr(one, name), getattr(other, name))
        for name in ("out_gbps", "in_gbps", "endpoint_out_gbps", "endpoint_in_gbps")
    )


def _all_close(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(abs(a - b) <= RATE_TOLERANCE * max(a, b) for a, b in zip(one, other, strict=True))
