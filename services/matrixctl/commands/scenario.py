"""scenario: timed faults, expectations and a verdict."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.api.client import at
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import duration_text
from services.matrixctl.clients.input_files import mapping_in
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import of, scenarios
from services.matrixctl.commands.options import OnStack, Output, printed
from services.matrixctl.commands.reading.get import show
from services.matrixctl.output.columns import listing
from services.matrixctl.output.resource_kinds import noun_of
from services.matrixctl.output.screen import Form, say
from services.matrixctl.output.waiting import Progress, awaited

if TYPE_CHECKING:
    from matrixcompute.scenarios.report import Entry, Outcome, RunReport
    from matrixcompute.scenarios.schema import Scenario

group("scenario", "Rehearse failures: timed faults, what has to happen then, and a verdict.")

COLLECTION = "scenario-runs"
EXIT_CODES = {"PASS": 0, "FAIL": 1, "STOPPED": 4, "INVALID": 5}
MARKS = {"met": "[green]met[/]", "missed": "[red]missed[/]", "unverified": "[red]unverified[/]"}

What = Annotated[
    str,
    typer.Argument(metavar="SCENARIO", help="A file, or a name listed by `scenario list`.", autocompletion=scenarios),
]
Name = Annotated[
    str,
    typer.Argument(metavar="RUN", help="The name of a run in MatrixCompute.", autocompletion=of("scenario-runs")),
]
Seed = Annotated[int | None, typer.Option(help="Random seed (default: the scenario's own).")]


@command("scenario list")
def scenario_list(output: Output = Form.TABLE) -> None:
    """List the built-in scenarios and what each shows."""
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
    """Show what a scenario would strike and what it expects. Changes nothing."""
    from services.matrixctl.scenarios import host

    name, scenario = _found(what, seed)
    shown = host.complete(host.previewed(stack.client, name, scenario))
    if printed(shown.wire(), output):
        return
    say(f"[bold]{name}[/]: {scenario.title} (seed {scenario.seed})")
    if scenario.explanation:
        say(f"  {scenario.explanation}")
    for key, nodes in shown.given.items():
        say(f"creates instance {key} on {', '.join(nodes)}")
    for target, chosen in shown.targets.items():
        say(f"  target {target}: {', '.join(chosen)}")
    for action in shown.actions:
        say(f"  at {action}")
    for expectation in shown.expectations:
        say(f"  expects {expectation}")
    say(f"takes about {duration_text(shown.seconds)} emulated; nothing was changed")


@command("scenario run")
def scenario_run(
    stack: OnStack,
    what: What,
    seed: Seed = None,
    remote: Annotated[bool, typer.Option("--remote", help="Have MatrixCompute run it.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="With --remote: name of the run.")] = None,
    output: Output = Form.TABLE,
) -> None:
    """Run a scenario, and always roll it back. If interrupted, it rolls back and exits; if killed, the next run rolls
    back.

    With --remote MatrixCompute runs it, even if this command is interrupted. It can strike services of a stack started
    by `matrixctl up`, but not MatrixCompute, which runs the scenario, nor the agents' process.

    Exit codes: 0 PASS; 1 FAIL, or refused before anything was changed; 4 STOPPED by a stop condition or a user;
    5 INVALID: a fault showed no effect, or the steady state did not hold at the start, so nothing was proved.
    """
    from services.matrixctl.scenarios import host

    if remote:
        body = {**_asked(what), **({} if seed is None else {"seed": seed}), **({} if name is None else {"name": name})}
        view = stack.client.call("compute", "POST", f"/v1/{COLLECTION}", body=body)
        _ended(stack.client, view["name"], output)
        return
    if name is not None:
        raise InvalidField("only MatrixCompute's runs have names: add --remote", field="--name")
    name, scenario = _found(what, seed)
    replay = f"matrixctl scenario run {shlex.quote(what)} --seed {scenario.seed}"
    quiet = output in (Form.JSON, Form.YAML)
    if not quiet:
        say(f"[bold]{name}[/]: {scenario.title} (seed {scenario.seed})")
    report = host.complete(host.run(stack.client, name, scenario, replay, (lambda entry: None) if quiet else _tell))
    if not printed(report.wire(), output):
        _show(report)
    raise typer.Exit(EXIT_CODES[report.verdict])


@command("scenario put")
def scenario_put(
    stack: OnStack,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A scenario.")],
    output: Output = Form.TABLE,
) -> None:
    """Store a scenario in MatrixCompute, to be run by name. `get scenarios` lists all."""
    name, scenario = _in(file)
    view = stack.client.call("compute", "PUT", at("scenarios", name), body=scenario.wire())
    if not printed(view, output):
        say(f"{name} is stored; run it with `matrixctl scenario run {name} --remote`")


@command("scenario runs")
def scenario_runs(stack: OnStack, output: Output = Form.TABLE) -> None:
    """List past, current and queued runs in MatrixCompute."""
    show(
        noun_of("scenario-runs"),
        stack.client.list("compute", f"/v1/{COLLECTION}", {"orderBy": "createdAt"}),
        output,
        single=False,
    )


@command("scenario show")
def scenario_show(
    stack: OnStack,
    name: Name,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Wait until it is over; the exit code is its verdict.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Show a run in MatrixCompute: what was done and observed, and its verdict."""
    if watch:
        _ended(stack.client, name, output)
    else:
        _show_run(stack.client.call("compute", "GET", at(COLLECTION, name)), output)


@command("scenario stop")
def scenario_stop(
    stack: OnStack,
    name: Name,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is rolled back.")] = False,
    output: Output = Form.TABLE,
) -> None:
    """End a run in MatrixCompute as STOPPED, and roll it back."""
    view = stack.client.call("compute", "POST", at(COLLECTION, name, ":stop"))
    _show_run(_awaited(stack.client, name) if wait else view, output)


def _asked(what: str) -> dict[str, Any]:
    """The request for a run: a scenario from a file, or one that MatrixCompute knows by name."""
    file = Path(what)
    return {"definition": _in(file)[1].wire()} if file.is_file() else {"scenario": what}


def _ended(client: Any, name: str, output: Form) -> None:
    """Wait until the run is over, show it, and exit with the code of its verdict."""
    view = _awaited(client, name)
    _show_run(view, output)
    raise typer.Exit(EXIT_CODES[view["verdict"]])


def _awaited(client: Any, name: str) -> dict[str, Any]:
    return awaited(client, "compute", at(COLLECTION, name), ("Completed",), _progress)


def _progress(view: dict[str, Any]) -> Progress:
    from matrixcompute.scenarios.runs import PHASES

    phase, entries = view.get("phase"), view["entries"]
    last = f": {entries[-1]['what']} {entries[-1]['about']}" if entries else ""
    text = f"{view['name']} is {view['state']}" if phase is None else f"{phase}{last}"
    return Progress(PHASES.index(phase) if phase else 0, len(PHASES), text, text)


def _show_run(view: dict[str, Any], output: Form) -> None:
    from matrixcompute.scenarios.report import Entry, Outcome

    if printed(view, output):
        return
    say(f"[bold]{view['name']}[/] is {view['state']}: {view['title']}")
    for entry in view["entries"]:
        _tell(Entry.model_validate(entry))
    _say_outcomes([Outcome.model_validate(each) for each in view["expectations"]])
    _say_verdict(view.get("verdict"), view["message"])
    if view.get("replay"):
        say(f"history {view.get('historyHash') or '-'}; replay: {view['replay']}")


def _tell(entry: Entry) -> None:
    behind = f": {entry.message}" if entry.message else ""
    say(f"  {duration_text(entry.at_s):>8}  {MARKS.get(entry.what, entry.what)}  {entry.about}{behind}")


def _show(report: RunReport) -> None:
    _say_outcomes(report.expectations)
    _say_verdict(report.verdict, report.reason)
    say(f"seed {report.seed}, version {report.version}, history {report.history_hash}; replay: {report.replay}")


def _say_outcomes(outcomes: list[Outcome]) -> None:
    for each in outcomes:
        after = "" if each.seconds is None else f" after {each.seconds:g} s"
        word = "[green]held[/]" if each.passed else "[red]did not hold[/]"
        why = "" if each.passed or not each.message else f": {each.message}"
        say(f"  {each.name}: {word}{after} (within {each.within_s:g} s){why}")


def _say_verdict(verdict: str | None, reason: str) -> None:
    colour = "green" if verdict == "PASS" else "red"
    say(reason if verdict is None else f"[{colour}]{verdict}[/]: {reason}")


def _found(what: str, seed: int | None) -> tuple[str, Scenario]:
    """A scenario from the library or a file. Raises InvalidField."""
    from matrixcompute.scenarios.library import library

    file = Path(what)
    if what in library():
        name, scenario = what, library()[what]
    elif file.is_file():
        name, scenario = _in(file)
    else:
        raise InvalidField(
            f"there is no file or scenario {what[:80]!r}; list the scenarios with `matrixctl scenario list`",
            field="SCENARIO",
        )
    return name, scenario if seed is None else scenario.model_copy(update={"seed": seed})


def _in(file: Path) -> tuple[str, Scenario]:
    """Read a scenario from a file. Raises InvalidField."""
    from matrixcompute.scenarios.checks import parse

    try:
        document = mapping_in(file, "SCENARIO")
    except OSError as wrong:
        raise InvalidField(f"{file} cannot be read: {wrong.strerror}", field="SCENARIO") from wrong
    return parse(document, file.stem)
