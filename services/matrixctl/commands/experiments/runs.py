"""experiment run, what-if and compare: one trial, one beside another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.experiments.parameters import TrialOptions, made_by, refusals, written
from services.matrixctl.commands.options import Output, printed
from services.matrixctl.output.screen import Form, progress, say, table

if TYPE_CHECKING:
    from infer_workload.experiments.experiment import Outcome
    from infer_workload.experiments.trial import Trial
    from infer_workload.reports.report import Report

group("experiment", "Serve a trace in virtual time and report; sweep, compare, ask what if; see where time goes.")

Html = Annotated[Path | None, typer.Option("--html", help="Write a report with plots to that file.")]


@command("experiment run")
def run(
    options: TrialOptions,
    html: Html = None,
    csv: Annotated[Path | None, typer.Option(help="Write a line for each request to that file.")] = None,
    output: Output = Form.TABLE,
) -> None:
    """Serve requests in virtual time; print TTFT, TPOT, tokens a second per NPU and the cache hit rate."""
    trial = options.trial()
    outcome = served(trial)
    made = made_by("run", trial)
    if html is not None:
        from infer_workload.reports.html import page, plots_of

        title = f"{outcome.report.workload} on {trial.nodes} nodes"
        written(html, page(title, made, outcome.report.rows(), plots_of(outcome.requests)), "--html")
    if csv is not None:
        from infer_workload.reports.timeline import requests_csv

        written(csv, requests_csv(outcome.requests), "--csv")
    if not printed(asdict(outcome.report) | {"made_by": made}, output):
        print(outcome.report.text(), end="")


def served(trial: Trial) -> Outcome:
    """Run a trial with a bar on a terminal."""
    from infer_workload.experiments import experiment

    with refusals(), progress() as show:
        return experiment.run(
            trial, show and (lambda done, total, second: show(done, total, f"{second:,.0f} s emulated"))
        )


@command("experiment what-if")
def what_if(
    options: TrialOptions,
    name: Annotated[str, typer.Argument(help="Which change; without one they are listed.")] = "",
    output: Output = Form.TABLE,
) -> None:
    """Run a trial, and the same with one thing changed, and compare."""
    from infer_workload.experiments.what_ifs import WHAT_IFS, what_if

    if not name:
        if not printed([{"name": each, "changes": about.text} for each, about in WHAT_IFS.items()], output):
            table(("name", "changes"), [(each, about.text) for each, about in WHAT_IFS.items()])
        return
    trial = options.trial()
    with refusals():
        changed = what_if(name, trial)
    before, after = served(trial).report, served(changed).report
    shown(before, after, {"before": made_by("run", trial), "after": made_by("run", changed)}, output)


@command("experiment compare")
def compare(
    before: Annotated[Path, typer.Argument(help="A report printed with -o json.")],
    after: Annotated[Path, typer.Argument(help="Another one.")],
    output: Output = Form.TABLE,
) -> None:
    """Set two reports beside one another: what changed, by how much, and whether for the better."""
    from infer_workload.experiments.comparison import read

    documents = []
    for path, field in ((before, "BEFORE"), (after, "AFTER")):
        try:
            documents.append(read(path.read_text(encoding="utf-8"), field))
        except (OSError, UnicodeDecodeError) as wrong:
            raise InvalidField(f"{path} cannot be read: {wrong}", field=field) from wrong
    made = {"before": documents[0].get("made_by"), "after": documents[1].get("made_by")}
    shown(documents[0], documents[1], made, output)


def shown(
    before: Mapping[str, Any] | Report, after: Mapping[str, Any] | Report, made: Mapping[str, Any], output: Form
) -> None:
    """Print what changed between two reports."""
    from infer_workload.experiments.comparison import compare

    changes = compare(before, after)
    document = {
        "made_by": made,
        "changes": [asdict(change) | {"part": change.part} for change in changes],
    }
    if printed(document, output):
        return
    for which, about in made.items():
        if about:
            say(f"{which:7} {about['command']}")
    moved = [change for change in changes if change.before != change.after]
    if not moved:
        say("nothing differs")
        return
    words: dict[bool | None, str] = {True: "better", False: "worse", None: ""}
    rows: Sequence[Sequence[str]] = [
        (
            change.name,
            f"{change.before:,.6g}",
            f"{change.after:,.6g}",
            "" if change.part is None else f"{change.part:+.1%}",
            words[change.better],
        )
        for change in moved
    ]
    table(("figure", "before", "after", "change", ""), rows)
