"""Capacity search: the fewest nodes on which a workload keeps its objectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from infer_workload.experiments.sweep import Point, run_trial
from infer_workload.experiments.trial import Trial


@dataclass(frozen=True)
class Capacity:
    """The result of a search. `nodes` is None if not even the maximum is enough; `on_tried` is in order of size."""

    nodes: int | None
    tried: tuple[Point, ...]


def min_nodes(
    trial: Trial, attained: float, least: int, most: int, on_tried: Callable[[Point], None] = lambda point: None
) -> Capacity:
    """Find the fewest nodes from `least` to `most` with at least that share of requests within the trial's objectives.

    By bisection, assuming that more nodes serve no worse. That need not hold exactly where a size leaves a role with a
    fraction of an instance; the size below the answer is always among those tried.
    """
    found: dict[int, Point] = {}

    def enough(nodes: int) -> bool:
        if nodes not in found:
            found[nodes] = Point({"nodes": nodes}, *run_trial(trial.with_changes({"nodes": nodes})))
            on_tried(found[nodes])
        report = found[nodes].report
        return report is not None and report.finished == report.requests and report.goodput_share >= attained

    low, high = least, most
    best = high if enough(high) else None
    while best is not None and low < high:
        middle = (low + high) // 2
        if enough(middle):
            best = high = middle
        else:
            low = middle + 1
    return Capacity(best, tuple(found[nodes] for nodes in sorted(found)))
