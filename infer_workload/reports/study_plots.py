"""The plots of studies. Values to be compared share one plot, over an axis that has a unit.

A capacity search is a curve over nodes beside its objective; two runs are two distributions in one plot; two reports
are their percentiles; policies are their node counts over time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infer_workload.reports.html import Plot, plots_of
from infer_workload.reports.served import Requests

PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0))
LATENCIES = (("ttft", "Time to first token", 1.0, "s"), ("tpot", "Time per token", 1e3, "ms"),
             ("latency", "Whole request", 1.0, "s"))  # fmt: skip

Change = Mapping[str, Any]
"""One figure in two reports: `name`, `before`, `after`."""


def capacity_plots(document: Mapping[str, Any]) -> list[Plot]:
    """The share of requests within the objectives, and P90 of both latencies, over the numbers of nodes tried.
    `document` is the output of `experiment capacity`. Sizes that could not be laid out are left out."""
    tried = [(float(each["nodes"]), each["report"]) for each in document["tried"] if each["report"] is not None]
    if not tried:
        return []
    objectives = document["objectives"]

    def over(title: str, unit: str, values: Sequence[float | None], objective: float) -> Plot:
        sizes = [nodes for nodes, _ in tried]
        found = [(size, value) for size, value in zip(sizes, values, strict=True) if value is not None]
        lines = {"found": found, "objective": [(each, objective) for each in sizes]}
        return Plot(title, "nodes", unit, lines)

    ttft, tpot = ([report[name]["p90"] for _, report in tried] for name in ("ttft", "tpot"))
    shares = [report["goodput_share"] for _, report in tried]
    return [
        over("Requests within the objectives", "share", shares, objectives["attained"]),
        over("Time to first token, P90", "s", ttft, objectives["ttft_s"]),
        over("Time per token, P90", "ms", [each and each * 1e3 for each in tpot], objectives["tpot_s"] * 1e3),
    ]


def comparison_plots(before: Requests, after: Requests) -> list[Plot]:
    """The plots of a run with the lines of both runs in each. A run without requests adds no lines."""
    runs = {"before": plots_of(before), "after": plots_of(after)}
    found: dict[str, tuple[Plot, dict[str, Sequence[tuple[float, float]]]]] = {}
    for run, plots in runs.items():
        for plot in plots:
            _, lines = found.setdefault(plot.title, (plot, {}))
            lines |= {f"{name}, {run}": points for name, points in plot.lines.items()}
    return [Plot(plot.title, plot.x, plot.y, lines) for plot, lines in found.values()]


def change_plots(changes: Sequence[Change]) -> list[Plot]:
    """The latency percentiles that both reports have, before and after."""
    known = {each["name"]: each for each in changes}
    plots = []
    for figure, title, factor, unit in LATENCIES:
        there = [(at, known[f"{figure}.{name}"]) for name, at in PERCENTILES if f"{figure}.{name}" in known]
        if there:
            lines = {run: [(at, each[run] * factor) for at, each in there] for run in ("before", "after")}
            plots.append(Plot(title, "percentile of requests", unit, lines))
    return plots


def policy_plots(document: Mapping[str, Any]) -> list[Plot]:
    """The nodes of each policy over time, as steps, and the fewest fixed nodes that keep the objectives. `document` is
    the output of `experiment autoscale`."""
    named = [(", ".join(f"{name} {value}" for name, value in each["varied"].items()) or "policy", each)
             for each in document["points"]]  # fmt: skip
    lines = {name: _steps(each["sizes"], each["seconds"]) for name, each in named if each["sizes"]}
    if document["fixed"]["nodes"]:
        size, seconds = float(document["fixed"]["nodes"]), document["fixed"]["seconds"]
        lines = {"fixed": [(0.0, size), (seconds, size)]} | lines
    return [Plot("Nodes over time", "seconds of the trace", "nodes", lines)] if lines else []


def _steps(sizes: Sequence[tuple[float, int, str]], seconds: float) -> list[tuple[float, float]]:
    """Points of a step line: each size holds until the next change, the last until the end."""
    found: list[tuple[float, float]] = []
    for at_s, size, _ in sizes:
        if found:
            found.append((at_s, found[-1][1]))
        found.append((at_s, float(size)))
    return [*found, (max(seconds, found[-1][0]), found[-1][1])]


def validation_plots(document: Mapping[str, Any]) -> list[Plot]:
    """Predictions and the ends of their intervals relative to the published figure, which is 1. `document` is the
    output of `experiment validate`; there is one plot per section, in the order of its table."""
    sections: dict[str, list[Mapping[str, Any]]] = {}
    for each in document["figures"]:
        sections.setdefault(each["section"], []).append(each)
    plots = []
    for section, rows in sections.items():
        lines = {
            name: [(float(at), each[key] / each["published"]) for at, each in enumerate(rows, 1)]
            for name, key in (("published", "published"), ("predicted", "predicted"),
                              ("interval, low", "low"), ("interval, high", "high"))
        }  # fmt: skip
        plots.append(Plot(f"Predicted and published: {section}", "row of the table", "ratio to published", lines))
    return plots


def operator_plots(document: Mapping[str, Any]) -> list[Plot]:
    """The cumulative time of each stream of a step, its operators from the longest on. `document` is the output of
    `experiment operators`."""
    streams: dict[str, list[float]] = {}
    for each in document["rows"]:
        streams.setdefault(each["stream"], []).append(each["ms"])
    lines: dict[str, Sequence[tuple[float, float]]] = {}
    for stream, taken in streams.items():
        ranked = sorted(taken, reverse=True)
        lines[stream] = [(float(at), sum(ranked[:at])) for at in range(len(ranked) + 1)]
    return [Plot("Cumulative time per stream", "operators, longest first", "ms", lines)]
