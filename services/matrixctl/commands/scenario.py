"""scenario: timed faults, expectations and a verdict."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import format_duration
from services.matrixctl.clients.input_files import read_mapping
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import names_of, scenarios
from services.matrixctl.commands.options import Output, StackOptions, print_for_programs
from services.matrixctl.commands.reading.get import show
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.resource_kinds import find_kind
from services.matrixctl.output.screen import OutputFormat, echo
from services.matrixctl.output.waiting import Progress, wait_for_state

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
    typer.Argument(metavar="RUN", help="The name of a run in MatrixCompute.", autocompletion=names_of("scenario-runs")),
]
Seed = Annotated[int | None, typer.Option(help="Random seed (default: the scenario's own).")]


@command("scenario list")
def scenario_list(output: Output = OutputFormat.TABLE) -> None:
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
    if not print_for_programs({"items": found}, output):
        print_table("name, faults, what it shows:title" + (", source" if output is OutputFormat.WIDE else ""), found)


@command("scenario preview")
def scenario_preview(stack: StackOptions, what: What, seed: Seed = None, output: Output = OutputFormat.TABLE) -> None:
    """Show what a scenario would strike and what it expects. Changes nothing."""
    from services.matrixctl.scenarios import host

    name, scenario = _load_scenario(what, seed)
    shown = host.run_async(host.preview_scenario(stack.client, name, scenario))
    if print_for_programs(shown.wire(), output):
        return
    echo(f"[bold]{name}[/]: {scenario.title} (seed {scenario.seed})")
    if scenario.explanation:
        echo(f"  {scenario.explanation}")
    for key, nodes in shown.given.items():
        echo(f"creates instance {key} on {', '.join(nodes)}")
    for target, chosen in shown.targets.items():
        echo(f"  target {target}: {', '.join(chosen)}")
    for action in shown.actions:
        echo(f"  at {action}")
    for expectation in shown.expectations:
        echo(f"  expects {expectation}")
    echo(f"takes about {format_duration(shown.seconds)} emulated; nothing was changed")


@command("scenario run")
def scenario_run(
    stack: StackOptions,
    what: What,
    seed: Seed = None,
    remote: Annotated[bool, typer.Option("--remote", help="Have MatrixCompute run it.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="With --remote: name of the run.")] = None,
    output: Output = OutputFormat.TABLE,
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
        body = {
            **_run_request(what),
            **({} if seed is None else {"seed": seed}),
            **({} if name is None else {"name": name}),
        }
        view = stack.client.call("compute", "POST", f"/v1/{COLLECTION}", body=body)
        _wait_and_exit(stack.client, view["name"], output)
        return
    if name is not None:
        raise InvalidField("only MatrixCompute's runs have names: add --remote", field="--name")
    name, scenario = _load_scenario(what, seed)
    replay = f"matrixctl scenario run {shlex.quote(what)} --seed {scenario.seed}"
    quiet = output in (OutputFormat.JSON, OutputFormat.YAML)
    if not quiet:
        echo(f"[bold]{name}[/]: {scenario.title} (seed {scenario.seed})")
    report = host.run_async(
        host.run_scenario(stack.client, name, scenario, replay, (lambda entry: None) if quiet else _print_entry)
    )
    if not print_for_programs(report.wire(), output):
        _print_report(report)
    raise typer.Exit(EXIT_CODES[report.verdict])


@command("scenario put")
def scenario_put(
    stack: StackOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A scenario.")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Store a scenario in MatrixCompute, to be run by name. `get scenarios` lists all."""
    name, scenario = _read_scenario(file)
    view = stack.client.call("compute", "PUT", resource_path("scenarios", name), body=scenario.wire())
    if not print_for_programs(view, output):
        echo(f"{name} is stored; run it with `matrixctl scenario run {name} --remote`")


@command("scenario runs")
def scenario_runs(stack: StackOptions, output: Output = OutputFormat.TABLE) -> None:
    """List past, current and queued runs in MatrixCompute."""
    show(
        find_kind("scenario-runs"),
        stack.client.list("compute", f"/v1/{COLLECTION}", {"orderBy": "createdAt"}),
        output,
        single=False,
    )


@command("scenario show")
def scenario_show(
    stack: StackOptions,
    name: Name,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Wait until it is over; the exit code is its verdict.")
    ] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show a run in MatrixCompute: what was done and observed, and its verdict."""
    if watch:
        _wait_and_exit(stack.client, name, output)
    else:
        _show_run(stack.client.call("compute", "GET", resource_path(COLLECTION, name)), output)


@command("scenario stop")
def scenario_stop(
    stack: StackOptions,
    name: Name,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is rolled back.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """End a run in MatrixCompute as STOPPED, and roll it back."""
    view = stack.client.call("compute", "POST", resource_path(COLLECTION, name, ":stop"))
    _show_run(_wait_for_run(stack.client, name) if wait else view, output)


def _run_request(what: str) -> dict[str, Any]:
    """The request for a run: a scenario from a file, or one that MatrixCompute knows by name."""
    file = Path(what)
    return {"definition": _read_scenario(file)[1].wire()} if file.is_file() else {"scenario": what}


def _wait_and_exit(client: Any, name: str, output: OutputFormat) -> None:
    """Wait until the run is over, show it, and exit with the code of its verdict."""
    view = _wait_for_run(client, name)
    _show_run(view, output)
    raise typer.Exit(EXIT_CODES[view["verdict"]])


def _wait_for_run(client: Any, name: str) -> dict[str, Any]:
    return wait_for_state(client, "compute", resource_path(COLLECTION, name), ("Completed",), _progress)


def _progress(view: dict[str, Any]) -> Progress:
    from matrixcompute.scenarios.runs import PHASES

    phase, entries = view.get("phase"), view["entries"]
    last = f": {entries[-1]['what']} {entries[-1]['about']}" if entries else ""
    text = f"{view['name']} is {view['state']}" if phase is None else f"{phase}{last}"
    return Progress(PHASES.index(phase) if phase else 0, len(PHASES), text, text)


def _show_run(view: dict[str, Any], output: OutputFormat) -> None:
    from matrixcompute.scenarios.report import Entry, Outcome

    if print_for_programs(view, output):
        return
    echo(f"[bold]{view['name']}[/] is {view['state']}: {view['title']}")
    for entry in view["entries"]:
        _print_entry(Entry.model_validate(entry))
    _print_outcomes([Outcome.model_validate(each) for each in view["expectations"]])
    _print_verdict(view.get("verdict"), view["message"])
    if view.get("replay"):
        echo(f"history {view.get('historyHash') or '-'}; replay: {view['replay']}")


def _print_entry(entry: Entry) -> None:
    behind = f": {entry.message}" if entry.message else ""
    echo(f"  {format_duration(entry.at_s):>8}  {MARKS.get(entry.what, entry.what)}  {entry.about}{behind}")


def _print_report(report: RunReport) -> None:
    _print_outcomes(report.expectations)
    _print_verdict(report.verdict, report.reason)
    echo(f"seed {report.seed}, version {report.version}, history {report.history_hash}; replay: {report.replay}")


def _print_outcomes(outcomes: list[Outcome]) -> None:
    for each in outcomes:
        after = "" if each.seconds is None else f" after {each.seconds:g} s"
        word = "[green]held[/]" if each.passed else "[red]did not hold[/]"
        why = "" if each.passed or not each.message else f": {each.message}"
        echo(f"  {each.name}: {word}{after} (within {each.within_s:g} s){why}")


def _print_verdict(verdict: str | None, reason: str) -> None:
    colour = "green" if verdict == "PASS" else "red"
    echo(reason if verdict is None else f"[{colour}]{verdict}[/]: {reason}")


def _load_scenario(what: str, seed: int | None) -> tuple[str, Scenario]:
    """A scenario from the library or a file. Raises InvalidField."""
    from matrixcompute.scenarios.library import library

    file = Path(what)
    if what in library():
        name, scenario = what, library()[what]
    elif file.is_file():
        name, scenario = _read_scenario(file)
    else:
        raise InvalidField(
            f"there is no file or scenario {what[:80]!r}; list the scenarios with `matrixctl scenario list`",
            field="SCENARIO",
        )
    return name, scenario if seed is None else scenario.model_copy(update={"seed": seed})


def _read_scenario(file: Path) -> tuple[str, Scenario]:
    """Read a scenario from a file. Raises InvalidField."""
    from matrixcompute.scenarios.checks import parse

    try:
        document = read_mapping(file, "SCENARIO")
    except OSError as wrong:
        raise InvalidField(f"{file} cannot be read: {wrong.strerror}", field="SCENARIO") from wrong
    return parse(document, file.stem)
