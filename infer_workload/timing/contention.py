"""What a workload's flows get beside those of others, as it was measured on the ports they go over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infer_workload.timing.fabric import Left

SAME = 0.005
"""Rates this close, relative, time a step alike."""


@dataclass(frozen=True)
class MeasuredContention:
    """GB/s: of collectives by the nodes that take part, and of what ports have left by plane and node."""

    exchanges: Mapping[frozenset[str], float] = field(default_factory=dict)
    ports: Mapping[tuple[str, str], Left] = field(default_factory=dict)

    def exchange_gbps(self, nodes: frozenset[str]) -> float | None:
        return self.exchanges.get(nodes)

    def left(self, plane: str, node: str) -> Left | None:
        return self.ports.get((plane, node))

    def close_to(self, other: MeasuredContention | None) -> bool:
        """Whether nothing takes another time than under the other."""
        if other is None or self.exchanges.keys() != other.exchanges.keys() or self.ports.keys() != other.ports.keys():
            return False
        one, two = ([found.exchanges[key] for key in self.exchanges] for found in (self, other))
        return _close(one, two) and all(_ports_close(left, other.ports[key]) for key, left in self.ports.items())


def _ports_close(one: Left, other: Left) -> bool:
    return all(
        _close(getattr(one, name), getattr(other, name))
        for name in ("out_gbps", "in_gbps", "endpoint_out_gbps", "endpoint_in_gbps")
    )


def _close(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(abs(a - b) <= SAME * max(a, b) for a, b in zip(one, other, strict=True))
