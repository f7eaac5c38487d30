"""experiment autoscale: simulate a scaling policy over a trace before applying it, with sweeps over its fields."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import pluralized
from matrixcommon.model.yaml_text import InvalidYaml, parse_yaml
from services.matrixctl.commands.command import command
from services.matrixctl.commands.experiments.kept_reports import KeepOptions, KeptReport, table_report
from services.matrixctl.commands.experiments.parameters import translating_errors
from services.matrixctl.commands.options import Output, print_for_programs
from services.matrixctl.output.screen import OutputFormat, echo, table

if TYPE_CHECKING:
    from infer_workload.experiments.autoscale import Outcome, Trace

POINTS_MAX = 200
FIGURES = ("node-hours", "within TTFT", "within TPOT", "wait P90 s", "changes", "nodes")


@command("experiment autoscale")
def autoscale(
    keeping: KeepOptions,
    file: Annotated[Path, typer.Option("--filename", "-f", help="A ScalingPolicy manifest, or its spec.")],
    trace: Annotated[Path | None, typer.Option(help="Requests to replay, in the Mooncake format.")] = None,
    generate: Annotated[
        int | None, typer.Option(min=1, max=10_000_000, help="Or generate this many requests of seeded traffic.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0.01, help="Generated requests per second, on average.")] = 10.0,
    swing: Annotated[float, typer.Option(help="Amplitude of the rate's swing, as a fraction of the rate.")] = 0.0,
    period: Annotated[float, typer.Option(help="Period of the swing in emulated seconds.")] = 3600.0,
    seed: Annotated[int, typer.Option(help="Seed of generated traffic.")] = 0,
    ttft: Annotated[float, typer.Option(min=0.001, help="Objective for the first token, s.")] = 2.0,
    tpot: Annotated[float, typer.Option(min=0.001, help="Objective for each token after it, s.")] = 0.05,
    attained: Annotated[
        float,
        typer.Option(min=0.01, max=1.0, help="Share of requests for which a fixed size has to meet the objectives."),
    ] = 0.95,
    start: Annotated[
        float | None, typer.Option(min=0, help="Seconds until a new node serves (default: the time to boot and load).")
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(help="A field and its values: maxReplicas=12,24 or objective.utilization=0.7:0.9:0.1."),
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Simulate a scaling policy over a trace in virtual time: node-hours, waiting requests, every change. Scales
    nothing.

    For comparison it shows the fewest fixed nodes that meet the objectives. The decisions are MatrixCompute's own; the
    load is a fluid approximation, so compare rows, and try the best one on a stack.
    """
    from infer_workload.experiments.autoscale import (
        check_supported,
        min_fixed_size,
        read_policy,
        simulate,
        with_changes,
    )

    document = _document(file)
    policy = read_policy(document)
    spec: dict[str, Any] = document.get("spec", document)
    axes = _axes(over or [])
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    policies = [read_policy(with_changes(spec, changes)) for changes in points]
    for each in (policy, *policies):
        check_supported(each)
    keeping.check()
    with translating_errors():
        asked = _trace(trace, generate, rate, seed).with_swing(swing, period)
        rows: list[tuple[dict[str, Any], Outcome]] = []
        for changes, one in zip(points, policies, strict=True):
            rows.append((changes, simulate(asked, one, ttft_s=ttft, tpot_s=tpot, start_s=start)))
        nodes, static = min_fixed_size(asked, policy, attained, ttft_s=ttft, tpot_s=tpot)
    objectives = {"ttft_s": ttft, "tpot_s": tpot, "attained": attained}
    played = [{"varied": changes, **asdict(outcome)} for changes, outcome in rows]
    found = {"points": played, "fixed": {"nodes": nodes, **asdict(static)}, "objectives": objectives}
    name = f"fixed at {nodes}" if nodes else f"fixed at {static.nodes_most}: not enough"
    columns = list(axes) or ["policy"]
    shown = [[*(str(value) for value in changes.values()), *_figures(each)] for changes, each in rows]
    if not axes:
        shown = [[file.name, *_figures(each)] for _, each in rows]
    shown.append([name, *[""] * (len(columns) - 1), *_figures(static)])
    if keeping.keep is not None:
        options = {
            "filename": file, "trace": trace, "generate": generate, "rate": rate, "swing": swing, "period": period,
            "seed": seed, "ttft": ttft, "tpot": tpot, "attained": attained, "start": start,
        }  # fmt: skip
        words = [f"--{name}={value}" for name, value in options.items() if value is not None]
        line = shlex.join(["matrixctl", "experiment", "autoscale", *words, *[f"--over={each}" for each in over or ()]])
        title = f"Scaling policy {file.stem} over a trace"

        def kept_report() -> KeptReport:
            from infer_workload.reports.study_plots import policy_plots

            drawn = policy_plots(found)
            return table_report("autoscale", title, {"command": line}, found, [*columns, *FIGURES], shown, drawn)

        keeping.store(kept_report)
    if print_for_programs(found, output):
        return
    table([*columns, *FIGURES], shown)
    if not axes:
        for at_s, size, reason in rows[0][1].sizes[1:]:
            echo(f"{at_s:8.0f} s  {pluralized(size, 'node')}  {reason}")


def _figures(outcome: Outcome) -> list[str]:
    return [
        f"{outcome.node_hours:.2f}", f"{outcome.within_ttft:.1%}", f"{outcome.within_tpot:.1%}",
        f"{outcome.wait_p90_s:.2f}", str(outcome.changes), f"{outcome.nodes_least}-{outcome.nodes_most}",
    ]  # fmt: skip


def _document(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise InvalidField(f"there is no file {file}", field="--filename")
    try:
        found = parse_yaml(file.read_text())
    except (InvalidYaml, UnicodeDecodeError) as wrong:
        raise InvalidField(f"{file} is not a YAML file with one document: {wrong}", field="--filename") from wrong
    if not isinstance(found, dict) or not isinstance(found.get("spec", found), dict):
        raise InvalidField(f"{file} is not a ScalingPolicy", field="--filename")
    return found


def _axes(over: list[str]) -> dict[str, list[Any]]:
    """Parse values by field: numbers, true, false, or else text (YAML would read Off as false)."""
    from infer_workload.experiments.sweep import parse_named_values

    axes: dict[str, list[Any]] = {}
    for name, words in map(parse_named_values, over):
        if name in axes:
            raise InvalidField(f"{name} is varied twice", field="--over")
        axes[name] = [_value(word) for word in words]
    points = 1
    for values in axes.values():
        points *= len(values)
    if points > POINTS_MAX:
        raise InvalidField(f"{points} combinations are more than {POINTS_MAX}", field="--over")
    return axes


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _trace(trace: Path | None, generate: int | None, rate: float, seed: int) -> Trace:
    from infer_workload.experiments.autoscale import Trace
    from infer_workload.experiments.experiment import generate_arrivals
    from infer_workload.traffic.generator import read_trace

    if (trace is None) == (generate is None):
        raise InvalidField("give either --trace FILE or --generate N", field="--trace")
    if trace is None:
        return Trace(generate_arrivals(generate or 0, seed, rate), "--generate")
    return Trace(read_trace(trace))
