"""experiment run, what-if and compare: run a trial, or compare two."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import pluralized
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.experiments.kept_reports import KeepOptions, KeptReport, table_report
from services.matrixctl.commands.experiments.parameters import (
    TrialOptions,
    provenance,
    translating_errors,
    write_output,
)
from services.matrixctl.commands.options import FiguresFormat, FiguresOutput, Output, print_for_programs
from services.matrixctl.output.screen import OutputFormat, echo, file_error_message, progress, table

if TYPE_CHECKING:
    from infer_workload.experiments.experiment import Outcome
    from infer_workload.experiments.trial import Trial
    from infer_workload.reports.html import Plot
    from infer_workload.reports.report import Report

group("experiment", "Serve a trace in virtual time and report; sweep, compare, ask what-if; see where time goes.")

Html = Annotated[Path | None, typer.Option("--html", help="Write an HTML report with plots to this file.")]


@command("experiment run")
def run(
    options: TrialOptions,
    keeping: KeepOptions,
    html: Html = None,
    csv: Annotated[Path | None, typer.Option(help="Write a CSV line per request to this file.")] = None,
    output: FiguresOutput = "table",
) -> None:
    """Serve requests in virtual time; print TTFT, TPOT, tokens per second per NPU and the cache hit rate."""
    trial = options.trial()
    keeping.check(html, csv)
    outcome = run_trial(trial)
    made = provenance("run", trial)
    document = asdict(outcome.report) | {"made_by": made}

    def kept_report() -> KeptReport:
        from infer_workload.reports.html import page, plots_of

        title, plots = f"{outcome.report.workload} on {pluralized(trial.nodes, 'node')}", plots_of(outcome.requests)
        whole = page(title, made, outcome.report.rows(), plots)
        return KeptReport("run", title, made["command"], document, whole, plots)

    keeping.store(kept_report, html)
    if csv is not None:
        from infer_workload.reports.timeline import requests_csv

        write_output(csv, requests_csv(outcome.requests), "--csv")
    if not print_for_programs(document, output):
        print(outcome.report.text(), end="")


def run_trial(trial: Trial) -> Outcome:
    """Run a trial, with a progress bar on a terminal."""
    from infer_workload.experiments import experiment

    with translating_errors(), progress() as show:
        return experiment.run(
            trial, show and (lambda done, total, second: show(done, total, f"{second:,.0f} s emulated"))
        )


@command("experiment what-if")
def what_if(
    options: TrialOptions,
    keeping: KeepOptions,
    name: Annotated[str, typer.Argument(help="Which change (default: list them).")] = "",
    html: Html = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Run a trial twice, the second time with one thing changed, and compare."""
    from infer_workload.experiments.what_ifs import WHAT_IFS, what_if

    if not name:
        if not print_for_programs([{"name": each, "changes": about.text} for each, about in WHAT_IFS.items()], output):
            table(("name", "changes"), [(each, about.text) for each, about in WHAT_IFS.items()])
        return
    if output is OutputFormat.NAME:
        raise InvalidField("only the list of changes has names; use table, wide, json or yaml", field="--output")
    trial = options.trial()
    with translating_errors():
        changed = what_if(name, trial)
    keeping.check(html)
    first, second = run_trial(trial), run_trial(changed)
    made = {"before": provenance("run", trial), "after": provenance("run", changed)}
    command_line = provenance("what-if", trial, name)["command"]
    changes = compare_reports(first.report, second.report, made)

    def kept_report() -> KeptReport:
        from infer_workload.reports.study_plots import comparison_plots

        drawn = comparison_plots(first.requests, second.requests)
        return changes_report("what-if", f"{name}: {WHAT_IFS[name].text}", command_line, changes, drawn)

    keeping.store(kept_report, html)
    print_changes(changes, output)


@command("experiment compare")
def compare(
    keeping: KeepOptions,
    before: Annotated[Path, typer.Argument(help="A report written by -o json.")],
    after: Annotated[Path, typer.Argument(help="Another such report.")],
    html: Html = None,
    output: FiguresOutput = "table",
) -> None:
    """Compare two reports: what changed, by how much, and whether it improved.

    `report compare` does the same with two kept reports.
    """
    from infer_workload.experiments.comparison import parse_report

    documents = []
    for path, field in ((before, "BEFORE"), (after, "AFTER")):
        try:
            documents.append(parse_report(path.read_text(encoding="utf-8"), field))
        except (OSError, UnicodeDecodeError) as wrong:
            raise InvalidField(f"{path} cannot be read: {file_error_message(wrong)}", field=field) from wrong
    keeping.check(html)
    made = {"before": documents[0].get("made_by"), "after": documents[1].get("made_by")}
    changes = compare_reports(documents[0], documents[1], made)
    line = shlex.join(["matrixctl", "experiment", "compare", str(before), str(after)])

    def kept_report() -> KeptReport:
        from infer_workload.reports.study_plots import change_plots

        title, drawn = f"{before.name} and {after.name}", change_plots(changes["changes"])
        return changes_report("compare", title, line, changes, drawn)

    keeping.store(kept_report, html)
    print_changes(changes, output)


def compare_reports(
    before: Mapping[str, Any] | Report, after: Mapping[str, Any] | Report, made: Mapping[str, Any]
) -> dict[str, Any]:
    """The changes between two reports, as a document."""
    from infer_workload.experiments.comparison import compare

    changes = [asdict(change) | {"part": change.part} for change in compare(before, after)]
    return {"made_by": made, "changes": changes}


def changes_report(
    experiment: str, title: str, command_line: str, document: Mapping[str, Any], plots: Sequence[Plot]
) -> KeptReport:
    """The changes as a report that may be kept."""
    return table_report(experiment, title, {"command": command_line}, document, CHANGED, change_rows(document), plots)


CHANGED = ("figure", "before", "after", "change", "")


def change_rows(document: Mapping[str, Any]) -> list[Sequence[str]]:
    """Rows of the figures that changed."""
    words: dict[bool | None, str] = {True: "better", False: "worse", None: ""}
    return [
        (
            change["name"],
            f"{change['before']:,.6g}",
            f"{change['after']:,.6g}",
            "" if change.get("part") is None else f"{change['part']:+.1%}",
            words[change.get("better")],
        )
        for change in document["changes"]
        if change["before"] != change["after"]
    ]


def print_changes(document: Mapping[str, Any], output: OutputFormat | FiguresFormat) -> None:
    """Print the changes between two reports."""
    if print_for_programs(document, output):
        return
    for which, about in document["made_by"].items():
        if about:
            echo(f"{which:7} {about['command']}")
    rows = change_rows(document)
    if rows:
        table(CHANGED, rows)
    else:
        echo("nothing differs")
