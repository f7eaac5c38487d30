"""Converts counters into rates: from two successive reports of a node.

Only the newest two are kept, in memory: after a restart rates are available with the second report. If a counter or a
clock went back (a node restarted, or emulated time was reset) it starts over; a node that has not been heard for a
while has no rates. GB/s each way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from matrixcommon.model.clock import Clock
from matrixlink.contract.link_reports import LinkReport, ReportedCounters
from matrixlink.fabric.condition.fabric import Fabric

Floats = NDArray[np.float64]
SENT, RECEIVED, DROPPED = range(3)
RATES_VALID_S, RATES_VALID_FLOOR_WALL_S = 60.0, 4.0
"""Rates of a node not heard for longer are not shown: six heartbeats."""
INTERVAL_MIN_S = 0.5
"""Reports closer together than this give no rate: whole megabytes are too coarse."""


@dataclass
class NodeRates:
    """One node: its newest counters, and the rates computed from them and those before."""

    counters: Floats
    at: float
    epoch: int
    slices: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    gbps: Floats | None = None
    slice_gbps: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    heard_at: float = 0.0


class PortRates:
    """The rates of all nodes. Ports are numbered as in `PortOrder.outward_ports`."""

    def __init__(self, fabric: Fabric, clock: Clock) -> None:
        self.ports = fabric.ports.outward_ports
        self.version = 0
        """Increases with every report that changed something, for watchers."""
        self._clock = clock
        self._nodes: dict[str, NodeRates] = {}

    def record_counters(self, report: LinkReport) -> None:
        """Take in a node's counters; a report without counters means that nothing ever moved there."""
        node, reported = str(report.node), report.counters
        if reported is None:
            if self._nodes.pop(node, None) is not None:
                self.version += 1
            return
        counters = self._as_array(reported)
        current = self._nodes.get(node)
        if current is None or current.epoch != report.epoch or _has_reset(current, reported.at, counters):
            self._nodes[node] = NodeRates(counters, reported.at, report.epoch, dict(reported.slices))
        elif reported.at - current.at >= INTERVAL_MIN_S:
            took_s = reported.at - current.at
            current.gbps = (counters - current.counters) / took_s / 1000
            current.slice_gbps = {
                slice: _rate(now, current.slices.get(slice, (0, 0, 0)), took_s)
                for slice, now in reported.slices.items()
            }
            current.counters, current.at, current.slices = counters, reported.at, dict(reported.slices)
        self._nodes[node].heard_at = self._clock.now()
        self.version += 1

    def forget_nodes(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self._nodes.pop(node, None)

    def _as_array(self, reported: ReportedCounters) -> Floats:
        """Sent, received and dropped of each port; 0 for what a report leaves out."""
        found = np.zeros((3, len(self.ports)))
        for row, each in ((SENT, reported.sent), (RECEIVED, reported.received)):
            found[row, : len(each)] = each[: len(self.ports)]
        for port, dropped in reported.dropped.items():
            if 0 <= port < len(self.ports):
                found[DROPPED, port] = dropped
        return found

    # -- what is known ------------------------------------------------------------------------------------------------

    def nodes(self) -> dict[str, Floats]:
        """By node, GB/s sent, received and dropped at each port; only nodes whose rates are known."""
        return {node: current.gbps for node, current in self._fresh().items() if current.gbps is not None}

    def slices(self) -> dict[str, dict[str, tuple[float, float, float]]]:
        """By slice and node, GB/s sent, received and dropped."""
        found: dict[str, dict[str, tuple[float, float, float]]] = {}
        for node, current in self._fresh().items():
            for slice, rates in current.slice_gbps.items():
                found.setdefault(slice, {})[node] = rates
        return found

    def at(self, node: str) -> float | None:
        """The time of a node's newest counters, emulated seconds."""
        current = self._nodes.get(node)
        return None if current is None else current.at

    def _fresh(self) -> dict[str, NodeRates]:
        since = self._clock.now() - self._clock.at_least_wall(RATES_VALID_S, RATES_VALID_FLOOR_WALL_S)
        return {node: current for node, current in self._nodes.items() if current.heard_at >= since}


def _has_reset(current: NodeRates, at: float, counters: Floats) -> bool:
    return at < current.at or bool((counters < current.counters).any())


def _rate(now: tuple[int, int, int], before: tuple[int, int, int], took_s: float) -> tuple[float, float, float]:
    """GB/s between two counts of megabytes."""
    sent, received, dropped = (max(0, a - b) / took_s / 1000 for a, b in zip(now, before, strict=True))
    return sent, received, dropped
