"""experiment autoscale: simulate a scaling policy over a trace before applying it, with sweeps over its fields."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import pluralized
from matrixcommon.model.yaml_text import InvalidYaml, parse_yaml
from services.matrixctl.commands.command import command
from services.matrixctl.commands.experiments.kept_reports import KeepOptions, KeptReport, table_report
from services.matrixctl.commands.experiments.parameters import translating_errors
from services.matrixctl.commands.options import FiguresOutput, print_for_programs
from services.matrixctl.output.screen import echo, table

if TYPE_CHECKING:
    from infer_workload.experiments.autoscale import Outcome, Trace
    from matrixcompute.autoscaling.policy import ScalingPolicySpec

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
    output: FiguresOutput = "table",
) -> None:
    """Simulate a scaling policy over a trace in virtual time: node-hours, waiting requests, every change. Scales
    nothing.

    For comparison it shows the fewest fixed nodes that meet the objectives. The decisions are MatrixCompute's own; the
    load is a fluid approximation, so compare rows, and try the best one on a stack.
    """
    study = _Study.read(file, over or [])
    keeping.check()
    requests = {"trace": trace, "generate": generate, "rate": rate, "swing": swing, "period": period, "seed": seed}
    objectives = {"ttft": ttft, "tpot": tpot, "attained": attained}
    with translating_errors():
        study.simulate(_trace(trace, generate, rate, seed).with_swing(swing, period), ttft, tpot, attained, start)
    found = study.report({"ttft_s": ttft, "tpot_s": tpot, "attained": attained})
    columns, rows = study.columns(), study.rows(file.name)
    if keeping.keep is not None:
        line = _command_line({"filename": file, **requests, **objectives, "start": start}, over or [])
        title = f"Scaling policy {file.stem} over a trace"

        def kept_report() -> KeptReport:
            from infer_workload.reports.study_plots import policy_plots

            return table_report("autoscale", title, {"command": line}, found, columns, rows, policy_plots(found))

        keeping.store(kept_report)
    if print_for_programs(found, output):
        return
    table(columns, rows)
    if not study.axes:
        for at_s, size, reason in study.outcomes[0].sizes[1:]:
            echo(f"{at_s:8.0f} s  {pluralized(size, 'node')}  {reason}")


@dataclass
class _Study:
    """A policy, its variants, and what simulating them over a trace gave."""

    axes: dict[str, list[Any]]
    """The varied fields and their values."""
    points: list[dict[str, Any]]
    """Their combinations."""
    policy: ScalingPolicySpec
    variants: list[ScalingPolicySpec]
    """The policy at each combination."""
    outcomes: list[Outcome] = field(default_factory=list)
    fixed_nodes: int | None = None
    """The fewest nodes of a fixed size that meets the objectives; None if none does."""
    fixed: Outcome | None = None

    @classmethod
    def read(cls, file: Path, over: list[str]) -> Self:
        from infer_workload.experiments.autoscale import check_supported, read_policy, with_changes

        document = _document(file)
        policy = read_policy(document)
        axes = _axes(over)
        points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        spec: dict[str, Any] = document.get("spec", document)
        variants = [read_policy(with_changes(spec, changes)) for changes in points]
        for each in (policy, *variants):
            check_supported(each)
        return cls(axes, points, policy, variants)

    def simulate(self, trace: Trace, ttft_s: float, tpot_s: float, attained: float, start_s: float | None) -> None:
        from infer_workload.experiments.autoscale import min_fixed_size, simulate

        layout_nodes = max(each.max_replicas for each in (self.policy, *self.variants))
        self.outcomes = [
            simulate(trace, variant, ttft_s=ttft_s, tpot_s=tpot_s, start_s=start_s, layout_nodes=layout_nodes)
            for variant in self.variants
        ]
        self.fixed_nodes, self.fixed = min_fixed_size(
            trace, self.policy, attained, ttft_s=ttft_s, tpot_s=tpot_s, layout_nodes=layout_nodes
        )

    def report(self, objectives: dict[str, float]) -> dict[str, Any]:
        assert self.fixed is not None
        played = [
            {"varied": changes, **asdict(outcome)} for changes, outcome in zip(self.points, self.outcomes, strict=True)
        ]
        fixed = {"nodes": self.fixed_nodes, **asdict(self.fixed)}
        return {"points": played, "fixed": fixed, "objectives": objectives}

    def columns(self) -> list[str]:
        return [*(list(self.axes) or ["policy"]), *FIGURES]

    def rows(self, policy: str) -> list[list[str]]:
        """A row for each variant, and for the fixed size. `policy`: what the only row is called if nothing varies."""
        assert self.fixed is not None
        names = [[str(value) for value in changes.values()] or [policy] for changes in self.points]
        size = f"{self.fixed_nodes}" if self.fixed_nodes else f"{self.fixed.nodes_most}: not enough"
        names.append([f"fixed at {size}", *[""] * (len(names[0]) - 1)])
        outcomes = [*self.outcomes, self.fixed]
        return [[*name, *_figures(outcome)] for name, outcome in zip(names, outcomes, strict=True)]


def _command_line(options: dict[str, Any], over: list[str]) -> str:
    """The command that gives the same report."""
    words = [f"--{name}={value}" for name, value in options.items() if value is not None]
    return shlex.join(["matrixctl", "experiment", "autoscale", *words, *[f"--over={each}" for each in over]])


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
