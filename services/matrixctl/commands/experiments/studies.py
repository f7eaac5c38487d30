"""experiment sweep and capacity: studies of many trials."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.hardware_names import NPUS_PER_NODE
from matrixcommon.model.quantities import pluralized
from services.matrixctl.commands.command import command
from services.matrixctl.commands.experiments.kept_reports import KeepOptions, KeptReport, table_report
from services.matrixctl.commands.experiments.parameters import (
    TrialOptions,
    provenance,
    translating_errors,
    write_output,
)
from services.matrixctl.commands.experiments.runs import Html
from services.matrixctl.commands.options import FiguresOutput, print_for_programs
from services.matrixctl.output.screen import echo, progress, table

if TYPE_CHECKING:
    from infer_workload.experiments.sweep import Axis, Point

PLOTTED = (
    ("Time to first token, P90", "s", lambda report: report.ttft.p90),
    ("Time per token, P90", "ms", lambda report: report.tpot.p90 and report.tpot.p90 * 1e3),
    ("Requests within the objectives", "share", lambda report: report.goodput_share),
    ("Tokens a second and NPU", "tokens/s", lambda report: report.tokens_per_s_per_npu),
)


@command("sweep")
@command("experiment sweep")
def sweep(
    options: TrialOptions,
    keeping: KeepOptions,
    over: Annotated[
        list[str] | None,
        typer.Option(help="A parameter and its values: nodes=8,16,32 or rate=2:10:2. Repeatable."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Number of processes, also for a local Ray cluster (default: one per core)."),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Run on a Ray cluster instead: HOST:PORT, ray://HOST:PORT, auto, or local.")
    ] = None,
    html: Html = None,
    csv: Annotated[Path | None, typer.Option(help="Write a CSV line per point to this file.")] = None,
    output: FiguresOutput = "table",
) -> None:
    """Run an experiment over every combination of parameter values.

    Parameters are the options of `experiment run`. The outcome does not depend on the number of workers.
    """
    from infer_workload.experiments import sweep as sweeps
    from infer_workload.experiments.ray_cluster import ray_runner

    axes = [sweeps.parse_axis(text) for text in over or ()]
    points = sweeps.expand_points(options.given(), axes)
    keeping.check(html, csv)
    processes = workers or os.cpu_count() or 1
    runner = sweeps.local_runner(processes) if ray is None else ray_runner(ray, processes)
    with translating_errors(), progress() as show:
        found = sweeps.sweep(points, runner, (lambda done, total: show(done, total, "points")) if show else _quiet)
    made = provenance("sweep", options.trial(), *[f"--over={text}" for text in over or ()])
    names, figures = sweeps.table_rows(found)
    columns = [*(axis.parameter for axis in axes), *names]
    rows = [
        [*(f"{value}" for value in point.varied.values()), *each] for point, each in zip(found, figures, strict=True)
    ]
    document = {"made_by": made, "points": [point.row() for point in found]}
    title = f"Sweep over {', '.join(axis.parameter for axis in axes)}"
    keeping.store(lambda: table_report("sweep", title, made, document, columns, rows, plots(found, axes)), html)
    write_output(csv, sweeps.to_csv(found), "--csv")
    if not print_for_programs(document, output):
        table(columns, rows)


def _quiet(done: int, total: int) -> None:
    """Progress is not shown outside a terminal."""


def plots(found: list[Point], axes: list[Axis]) -> list[Any]:
    """Plot each figure over the first numeric axis, with a line for every combination of the others."""
    from infer_workload.reports.html import Plot

    along = next((axis.parameter for axis in axes if _numbers(found, axis.parameter)), None)
    if along is None:
        return []
    drawn = []
    for title, unit, figure in PLOTTED:
        lines: dict[str, list[tuple[float, float]]] = {}
        for point in found:
            if point.report is not None and (value := figure(point.report)) is not None:
                others = [f"{name} {value}" for name, value in point.varied.items() if name != along]
                lines.setdefault(", ".join(others) or title, []).append((float(point.varied[along]), value))
        drawn.append(Plot(title, along, unit, lines))
    return drawn


def _numbers(found: list[Point], parameter: str) -> bool:
    return all(
        isinstance(point.varied[parameter], int | float) and not isinstance(point.varied[parameter], bool)
        for point in found
    )


@command("experiment capacity")
def capacity(
    options: TrialOptions,
    keeping: KeepOptions,
    attained: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Share of requests that have to meet --ttft and --tpot.")
    ] = 0.95,
    least: Annotated[int, typer.Option(min=1, max=48, help="Smallest number of nodes to try.")] = 2,
    most: Annotated[int, typer.Option(min=1, max=48, help="Largest number of nodes to try.")] = 48,
    html: Html = None,
    output: FiguresOutput = "table",
) -> None:
    """Find the fewest nodes on which requests meet their objectives."""
    from infer_workload.experiments import sweep as sweeps
    from infer_workload.experiments.capacity import min_nodes

    if least > most:
        raise InvalidField(f"{least} is more than --most {most}", field="--least")
    trial = options.trial()
    keeping.check(html)
    with translating_errors(), progress() as show:
        sizes = (most - least + 1).bit_length() + 1
        count = 0

        def tried(point: Point) -> None:
            nonlocal count
            count += 1
            if show:
                show(min(count, sizes), sizes, pluralized(point.varied["nodes"], "node"))

        found = min_nodes(trial, attained, least, most, tried)
    more = [f"--attained={attained}", f"--least={least}", f"--most={most}"]
    made = provenance("capacity", trial, *more)
    document = {
        "made_by": made,
        "nodes": found.nodes,
        "npus": None if found.nodes is None else found.nodes * NPUS_PER_NODE,
        "objectives": {"ttft_s": trial.ttft, "tpot_s": trial.tpot, "attained": attained},
        "tried": [{"nodes": each.varied["nodes"], "report": asdict(each.report) if each.report else None,
                   "why_not": each.why_not} for each in found.tried],
    }  # fmt: skip
    names, figures = sweeps.table_rows(found.tried)
    columns = ("nodes", *names)
    rows = [(each.varied["nodes"], *shown) for each, shown in zip(found.tried, figures, strict=True)]
    title = f"Fewest nodes that meet the objectives: {found.nodes or f'more than {most}'}"

    def kept_report() -> KeptReport:
        from infer_workload.reports.study_plots import capacity_plots

        return table_report("capacity", title, made, document, columns, rows, capacity_plots(document))

    keeping.store(kept_report, html)
    if not print_for_programs(document, output):
        table(columns, rows)
        within = f"TTFT {trial.ttft:g} s and TPOT {trial.tpot * 1e3:g} ms for {attained:.1%} of requests"
        if found.nodes is None:
            echo(f"not enough for {within}: {pluralized(most, 'node')}")
        else:
            echo(f"enough for {within}: {pluralized(found.nodes, 'node')} ({found.nodes * NPUS_PER_NODE} NPUs)")
    if found.nodes is None:
        raise typer.Exit(1)
