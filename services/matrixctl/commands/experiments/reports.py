"""report: experiment reports kept on a stack. `experiment run --keep NAME` keeps one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.experiments.parameters import write_output
from services.matrixctl.commands.experiments.runs import print_changes
from services.matrixctl.commands.help.completion import names_of
from services.matrixctl.commands.options import FiguresOutput, ProjectOptions, print_for_programs
from services.matrixctl.output.screen import echo, file_error_message

group("report", "Experiment reports kept on the stack. `get reports` lists them, `--keep NAME` keeps one.")

Report = Annotated[str, typer.Argument(help="Name of the report.", autocompletion=names_of("reports"))]


@command("report keep")
def report_keep(
    stack: ProjectOptions,
    name: Annotated[str, typer.Argument(help="Name to keep it under.")],
    file: Annotated[Path, typer.Argument(help="Output of `matrixctl experiment ... -o json`.", dir_okay=False)],
    html: Annotated[Path | None, typer.Option(help="HTML page of the same report.", dir_okay=False)] = None,
    title: Annotated[str | None, typer.Option(help="Title (default: the file's name).")] = None,
) -> None:
    """Keep a report that was made earlier, or on another machine."""
    found = _document(file)
    made = found.get("made_by") or {}
    line = str(made.get("command", "")) if isinstance(made, dict) else ""
    body = {
        "experiment": _experiment(line, found, file), "title": title or file.stem, "command": line, "document": found,
        "html": _read(html, "--html") if html is not None else "",
    }  # fmt: skip
    view = stack.client.call("infer", "PUT", resource_path("reports", name), body=body)
    echo(f"{name} is kept: {view['sizeBytes']:,} bytes of {view['experiment']}")


@command("report show")
def report_show(
    stack: ProjectOptions,
    name: Report,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report's HTML page to this file.")] = None,
    output: FiguresOutput = "table",
) -> None:
    """Show a report; with -o json, the document that the experiment printed."""
    content = stack.client.call("infer", "GET", resource_path("reports", name, "/content"))
    if html is not None:
        if not content["html"]:
            raise InvalidField(f"{name} was kept without a page", field="--html")
        write_output(html, content["html"], "--html")
    if print_for_programs(content["document"], output):
        return
    echo(f"[bold]{content['title']}[/]")
    echo(content["command"])
    print(json.dumps(content["document"], indent=1, ensure_ascii=False))


@command("report compare")
def report_compare(
    stack: ProjectOptions,
    before: Report,
    after: Annotated[str, typer.Argument(help="Name of the other report.", autocompletion=names_of("reports"))],
    output: FiguresOutput = "table",
) -> None:
    """Compare two kept reports of `experiment run`."""
    params = {"with": after}
    found = stack.client.call("infer", "GET", resource_path("reports", before, "/comparison"), params=params)
    made = {which: {"command": found[which]["command"]} for which in ("before", "after")}
    print_changes({"made_by": made, "changes": found["changes"]}, output)


@command("report delete")
def report_delete(stack: ProjectOptions, name: Report) -> None:
    """Delete a kept report."""
    stack.client.call("infer", "DELETE", resource_path("reports", name))
    echo(f"{name} is gone")


def _document(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(_read(file, "FILE"))
    except ValueError as wrong:
        raise InvalidField(f"{file} is not JSON: {wrong}", field="FILE") from wrong
    if not isinstance(found, dict):
        raise InvalidField(f"{file} is not a report of `matrixctl experiment ... -o json`", field="FILE")
    return found


def _read(file: Path, field: str) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise InvalidField(f"{file} cannot be read: {file_error_message(wrong)}", field=field) from wrong


def _experiment(line: str, found: dict[str, Any], file: Path) -> str:
    """The experiment that made it, by its command, or else by its contents. Raises InvalidField if reports of it are
    not kept."""
    from infer_workload.experiments.comparison import is_comparable
    from infer_workload.report_store.contract import Experiment

    kept = get_args(Experiment)
    words = line.split()[:3]
    if words[:2] == ["matrixctl", "experiment"]:
        name = "".join(words[2:])
    else:
        parts = (("changes", "compare"), ("fixed", "autoscale"), ("tried", "capacity"), ("points", "sweep"))
        name = next((experiment for part, experiment in parts if part in found), "run" if is_comparable(found) else "")
    if name not in kept:
        raise InvalidField(
            f"{file} is not a report of `matrixctl experiment` {', '.join(kept)}, written by -o json", field="FILE"
        )
    return name
