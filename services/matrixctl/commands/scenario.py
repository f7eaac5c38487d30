"""scenario: faults in time, what has to happen then, and a verdict."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import duration_text
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import OnStack, Output, printed
from services.matrixctl.output.resource_kinds import listing
from services.matrixctl.output.screen import Form, say

if TYPE_CHECKING:
    from matrixcompute.scenarios.report import Entry, RunReport
    from matrixcompute.scenarios.schema import Scenario

group("scenario", "Rehearse failures: faults in time, what has to happen then, and a verdict.")

EXIT_CODES = {"PASS": 0, "FAIL": 1, "STOPPED": 4, "INVALID": 5}
MARKS = {"met": "[green]met[/]", "missed": "[red]missed[/]", "unverified": "[red]unverified[/]"}

What = Annotated[str, typer.Argument(metavar="SCENARIO", help="A file, or a name that `scenario list` shows.")]
Seed = Annotated[int | None, typer.Option(help="For everything left to chance (default: the scenario's own).")]


@command("scenario list")
def scenario_list(output: Output = Form.TABLE) -> None:
    """The scenarios that come with the project, each with what it shows."""
    from matrixcompute.scenarios.library import library

    found = [
        {
            "name": name,
            "title": each.title,
            "faults": ", ".join(dict.fromkeys(action.fault for action in each.method)),
            "explanation": each.explanation,
            "source": each.source,
        }
        for name, each in library().items()
    ]
    if not printed({"items": found}, output):
        listing("name, faults, what it shows:title" + (", source" if output is Form.WIDE else ""), found)


@command("scenario preview")
def scenario_preview(stack: OnStack, what: What, seed: Seed = None, output: Output = Form.TABLE) -> None:
    """What would be struck, and what is expected then. Nothing is changed."""
    from services.matrixctl.scenarios import host

    name, scenario = _found(what, seed)
    shown = host.complete(host.previewed(stack.client, name, scenario))
    if printed(shown.wire(), output):
        return
    say(f"[bold]{name}[/]: {scenario.title} (seed {scenario.seed})")
    if scenario.explanation:
        say(f"  {scenario.explanation}")
    for key, nodes in shown.given.items():
        say(f"  makes instance {key} on {', '.join(nodes)}")
    for target, chosen in shown.targets.items():
        say(f"  target {target}: {', '.join(chosen)}")
    for action in shown.actions:
        say(f"  at {action}")
    for expectation in shown.expectations:
        say(f"  expects {expectation}")
    say(f"  about {duration_text(shown.seconds)} emulated; nothing was changed")


@command("scenario run")
def scenario_run(stack: OnStack, what: What, seed: Seed = None, output: Output = Form.TABLE) -> None:
    """Run it and roll it back, whatever happens. Interrupted, it rolls back and ends; killed, the next run rolls back.

    Exit codes: 0 PASS; 1 FAIL, or refused before anything was changed; 4 STOPPED by a stop condition or a person;
    5 INVALID: a fault showed no effect, or the steady state did not hold at the start, so nothing was proved.
    """
    from services.matrixctl.scenarios import host

    name, scenario = _found(what, seed)
    replay = f"matrixctl scenario run {shlex.quote(what)} --seed {scenario.seed}"
    quiet = output in (Form.JSON, Form.YAML)
    if not quiet:
        say(f"[bold]{name}[/]: {scenario.title} (seed {scenario.seed})")
    report = host.complete(host.run(stack.client, name, scenario, replay, (lambda entry: None) if quiet else _tell))
    if not printed(report.wire(), output):
        _show(report)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _tell(entry: Entry) -> None:
    behind = f": {entry.message}" if entry.message else ""
    say(f"  {duration_text(entry.at_s):>8}  {MARKS.get(entry.what, entry.what)}  {entry.about}{behind}")


def _show(report: RunReport) -> None:
    for each in report.expectations:
        after = "" if each.seconds is None else f" after {each.seconds:g} s"
        word = "[green]held[/]" if each.passed else "[red]did not hold[/]"
        say(f"  {each.name}: {word}{after} (within {each.within_s:g} s)")
    colour = "green" if report.verdict == "PASS" else "red"
    say(f"[{colour}]{report.verdict}[/]: {report.reason}")
    say(f"seed {report.seed}, version {report.version}, history {report.history_hash}; replay: {report.replay}")


def _found(what: str, seed: int | None) -> tuple[str, Scenario]:
    """The scenario of a file, or of the library. Raises InvalidField."""
    from matrixcompute.scenarios.checks import parse
    from matrixcompute.scenarios.library import library

    file = Path(what)
    if what in library():
        name, scenario = what, library()[what]
    elif file.is_file():
        try:
            document = yaml.safe_load(file.read_text("utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as wrong:
            raise InvalidField(f"{file} is no YAML: {' '.join(str(wrong).split())[:200]}", field="SCENARIO") from wrong
        name, scenario = parse(document, file.stem)
    else:
        raise InvalidField(
            f"there is neither a file nor a scenario {what[:80]!r}; `matrixctl scenario list` shows those there are",
            field="SCENARIO",
        )
    return name, scenario if seed is None else scenario.model_copy(update={"seed": seed})
