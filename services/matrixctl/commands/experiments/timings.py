"""experiment operators and validate: where the time of a step goes, and how far to trust the timing model."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from matrixcommon.model.errors import InvalidField
from services.matrixctl.commands.command import command
from services.matrixctl.commands.experiments.parameters import check_writable, write_output
from services.matrixctl.commands.experiments.runs import Html
from services.matrixctl.commands.options import FiguresOutput, print_for_programs
from services.matrixctl.output.screen import echo, table

if TYPE_CHECKING:  # imported late, so that other commands start faster
    from infer_workload.experiments.operator_table import OperatorTable


@command("experiment operators")
def operators(
    phase: Annotated[Literal["decode", "prefill"], typer.Option(help="A decode step, or a prefill chunk.")] = (
        "decode"
    ),
    batch: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Decode: requests per NPU (default: the machine's, 96).")
    ] = None,
    context: Annotated[
        int,
        typer.Option(min=1, max=1_000_000, help="Decode: tokens of context per request; prefill: tokens per prompt."),
    ] = 4096,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Prefill: tokens per chunk and NPU (default: the machine's, 16384)."),
    ] = None,
    ep: Annotated[
        int | None,
        typer.Option(
            min=1, max=16384, help="Dies that the experts are spread over (default: those of 20 nodes; prefill: of 2)."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="The model: a built-in one, or your own .yaml file.")] = "deepseek-r1",
    machine: Annotated[
        str, typer.Option(help="The machine: a built-in one, or your own .yaml file.")
    ] = "cloudmatrix384",
    microbatch: Annotated[
        Literal["auto", "on", "off"], typer.Option(help="Decode: overlap two microbatches.")
    ] = "auto",
    html: Html = None,
    output: FiguresOutput = "table",
) -> None:
    """Show every operator of a step: time, bound, share, and the source of its rate. Needs no stack.

    Rows are for the whole step on one die. Bounds: cube and vector cores, hbm, wire (a port of the plane used for
    exchange), issue (the sending cores), launch. Parallel streams add up to more than the step. -o wide adds the amount
    of work, -o json the full sources.
    """
    from infer_workload.experiments.operator_table import TooFewDies, decode_table, prefill_table
    from infer_workload.layout.deployment import MICROBATCHING

    _check_applicable(phase, {"--batch": batch is not None, "--microbatch": microbatch != "auto"}, "decode")
    _check_applicable(phase, {"--tokens": tokens is not None}, "prefill")
    _check_data_files(model, machine)
    try:
        if phase == "decode":
            found = decode_table(batch, context, ep, model, MICROBATCHING[microbatch], machine)
        else:
            found = prefill_table(tokens, context, ep, model, machine)
    except TooFewDies as wrong:
        raise InvalidField(str(wrong), field="--ep") from wrong
    if html is not None:
        amount = {"batch": batch, "microbatch": microbatch} if phase == "decode" else {"tokens": tokens}
        given = {"phase": phase, "context": context, "model": model, "machine": machine, "ep": ep} | amount
        _write_page(html, found, given)
    if not print_for_programs(found.document(), output):
        _print_table(found, wide=output == "wide")


def _check_applicable(phase: str, given: dict[str, bool], applies_to: str) -> None:
    """Raises InvalidField for an option that was given and says nothing about a step of this phase."""
    for option, is_given in given.items():
        if is_given and phase != applies_to:
            raise InvalidField(f"applies to --phase {applies_to} only", field=option)


def _check_data_files(model: str, machine: str) -> None:
    """Raises InvalidField."""
    from infer_workload.timing.calibration import load_calibration
    from infer_workload.timing.data_files import BadDataFile, UnknownDataFile
    from infer_workload.timing.model import load_model

    for option, name, load in (("--model", model, load_model), ("--machine", machine, load_calibration)):
        try:
            load(name)
        except (BadDataFile, UnknownDataFile) as wrong:
            raise InvalidField(str(wrong), field=option) from wrong


def _write_page(html: Path, found: OperatorTable, given: dict[str, Any]) -> None:
    from infer_workload.reports.html import table_page
    from infer_workload.reports.study_plots import operator_plots

    words = [f"--{name}={value}" for name, value in given.items() if value is not None]
    line = {"command": shlex.join(["matrixctl", "experiment", "operators", *words])}
    heads = ("stream", "operator", "times", "ms", "share", "bound")
    cells = [
        (each.stream, each.name, each.times, f"{each.ms:.3f}", f"{each.share:.1%}", each.bound) for each in found.rows
    ]
    title = f"Operators of {found.phase}, {found.model} on {found.dies} dies"
    write_output(html, table_page(title, line, heads, cells, operator_plots(found.document())), "--html")


def _print_table(found: OperatorTable, *, wide: bool) -> None:
    extra = ("GOPS", "HBM MB", "VECTOR MB", "WIRE MB", "RATE FROM") if wide else ("RATE FROM",)
    rows = []
    for each in found.rows:
        work = (each.operations_g, each.hbm_mb, each.vector_mb, each.wire_mb)
        shown = [f"{amount:,.0f}" for amount in work] if wide else []
        time = (each.times, f"{each.ms:.3f}", f"{each.share:.1%}", each.bound)
        rows.append((each.stream, each.name, *time, *shown, each.source.split(":")[0]))
    table(("STREAM", "OPERATOR", "TIMES", "MS", "SHARE", "BOUND", *extra), rows)
    split = f", {found.attention_cores} matrix cores for attention" if found.attention_cores else ""
    per_token = f", {found.tpot_ms:.1f} ms per token" if found.tpot_ms else ""
    echo(
        f"{found.phase} of {found.model} on {found.dies} dies of {found.machine}: {found.step_ms:.2f} ms{per_token}, "
        f"{found.tokens_per_s_per_npu:,.0f} tokens/s per NPU; {found.microbatches} microbatch"
        f"{'es' if found.microbatches > 1 else ''}{split}; operators add up to {found.summed_ms:.2f} ms"
    )


@command("experiment validate")
def validate(html: Html = None, output: FiguresOutput = "table") -> None:
    """Compare every published figure with the prediction: interval, error, fitted or not. Needs no stack.

    Constants are fitted to the rows marked fitted; all others are predictions. `no fit` is the error with published
    efficiencies alone. Further tables: each fitted row predicted from the others, the constants with their uncertainty,
    and the gain from each mechanism of the paper, for which the published outcome is not used.
    """
    from infer_workload.experiments.validation.tables import format_text
    from infer_workload.experiments.validation.validation import validate as compared

    check_writable(html, "--html")
    found = compared()
    if html is not None:
        from infer_workload.reports.html import table_page
        from infer_workload.reports.study_plots import validation_plots

        document, numbered = found.document(), dict[str, int]()
        rows = []
        for each in document["figures"]:
            numbered[each["section"]] = numbered.get(each["section"], 0) + 1
            interval = f"{each['low']:.4g} to {each['high']:.4g}"
            rows.append((
                each["section"], numbered[each["section"]], each["name"], each["unit"], f"{each['published']:.4g}",
                f"{each['predicted']:.4g}", interval, f"{each['error']:+.1%}", each["role"], each["source"],
            ))  # fmt: skip
        heads = ("section", "row", "figure", "unit", "published", "predicted", "interval", "error", "role", "source")
        made = {"command": "matrixctl experiment validate"}
        whole = table_page(
            "Every published figure beside the prediction", made, heads, rows, validation_plots(document)
        )
        write_output(html, whole, "--html")
    if not print_for_programs(found.document(), output):
        typer.echo(format_text(found), nl=False)
