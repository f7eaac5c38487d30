"""Node-hours of a demo, compared with a pool of fixed size and with a plan that knew the load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from matrixcompute.autoscaling.clairvoyant import cheapest_sizes
from services.matrixctl.demo.gauge import Sample

SLOT_S = 15.0


@dataclass(frozen=True)
class NodeHours:
    """Node-hours allocated, of a pool that is always large enough, and of the cheapest plan with the load known."""

    spent: float
    fixed: float
    clairvoyant: float
    fixed_nodes: int

    def text(self) -> str:
        return (
            f"{self.spent:.1f} node-hours; a fixed pool of {self.fixed_nodes} takes {self.fixed:.1f}, "
            f"a plan that knew the load {self.clairvoyant:.1f} ({self.spent / self.clairvoyant:.2f} times as many)"
        )


def node_hours(samples: Sequence[Sample], required_nodes: Callable[[float], int], start_s: float) -> NodeHours:
    """Compute node-hours. `required_nodes`: nodes that a load (requests/s) needs. A node counts from `start_s` before
    it serves."""
    at = np.array([sample.at for sample in samples])
    edges = np.arange(at[0], at[-1], SLOT_S)
    latest = np.searchsorted(at, edges, side="right") - 1
    allocated = np.array([sample.allocated for sample in samples])[latest]
    least = np.array([required_nodes(sample.load_per_s) for sample in samples])[latest]
    plan = cheapest_sizes(least, SLOT_S, start_s)
    starts_s = float(np.maximum(0, np.diff(plan)).sum()) * start_s
    nodes = int(least.max())
    hours = SLOT_S / 3600
    return NodeHours(
        float(allocated.sum()) * hours,
        nodes * len(edges) * hours,
        float(plan.sum()) * hours + starts_s / 3600,
        nodes,
    )
