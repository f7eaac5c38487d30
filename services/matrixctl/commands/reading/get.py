"""get, describe, events, stuck: read resources from the services."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from difflib import get_close_matches
from queue import SimpleQueue
from threading import Thread
from typing import Annotated, Any

import typer
import yaml

from matrixcommon.model.errors import Gone, MatrixError, NotFound, Unavailable
from matrixcommon.model.resource_key import DEFAULT_PROJECT, name_of, project_of
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.collections import every, named, one, served
from services.matrixctl.commands.command import command
from services.matrixctl.commands.help.completion import nouns, of, resources
from services.matrixctl.commands.options import OfProject, Output, printed
from services.matrixctl.output.columns import cells, listing, titles, with_projects
from services.matrixctl.output.resource_kinds import NOUNS, Noun, noun_of
from services.matrixctl.output.screen import Form, NotRunning, full_name, say

FOLLOW_AGAIN_WALL_S = 1.0

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep running and print changes.")]


def show(noun: Noun, views: list[dict[str, Any]], form: Form, single: bool) -> None:
    if printed(views[0] if single else {"items": views}, form):
        return
    if views:
        listing(with_projects(noun.shown(form is Form.WIDE), views), views)
    else:
        print(f"no {noun.name}" + (f": {noun.means}" if noun.means else ""), file=sys.stderr)


@command("get")
def get(
    stack: OfProject,
    noun: Annotated[str, typer.Argument(help=", ".join(noun.name for noun in NOUNS), autocompletion=nouns)],
    name: Annotated[str | None, typer.Argument(help="Show only this one.", autocompletion=resources)] = None,
    filter: Annotated[
        str | None, typer.Option(help="e.g. 'state=Active AND labels.team!=search'; for a list, one entry has to match")
    ] = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """List resources of a kind, or show one. Times are emulated (`status` shows the current one); kubectl shows wall
    time."""
    kind = noun_of(noun)
    client = stack.client
    if watch:
        _follow(stack, kind, name, output, filter)
        return
    if name is not None:
        show(kind, [found(client, kind, name)], output, single=True)
        return
    show(kind, every(client, kind, filter), output, single=False)


def _follow(stack: OfProject, kind: Noun, name: str | None, form: Form, filter: str | None) -> None:
    """Print a line per change until interrupted; after a service restarts, continue from the present."""
    columns = kind.shown(form is Form.WIDE)
    if form in (Form.TABLE, Form.WIDE):
        print("  ".join(title.upper().ljust(16) for title in ["change", *titles(columns)]))
    for change, view in _changes(stack, kind, {"filter": filter} if filter else {}):
        if name is not None and not _bears(view, name, stack.project):
            continue
        if form is Form.NAME:
            print(full_name(view), flush=True)
        elif form is Form.JSON:
            print(json.dumps({"type": change, "object": view}, ensure_ascii=False), flush=True)
        elif form is Form.YAML:
            document = yaml.safe_dump({"type": change, "object": view}, sort_keys=False, allow_unicode=True)
            print(f"---\n{document}", end="", flush=True)
        else:
            # Later rows may be of any project, so there is no project column; names carry it.
            row = cells(columns, {**view, "name": full_name(view)} if "name" in view else view)
            print("  ".join(cell.ljust(16) for cell in [change, *row]), flush=True)


def _bears(view: dict[str, Any], name: str, project: str | None) -> bool:
    """Whether the view is the one that `get` would show for that name."""
    owner = project_of(name) if "/" in name else project or DEFAULT_PROJECT
    return (view.get("name"), view.get("project", owner)) == (name_of(name), owner)


def _changes(stack: OfProject, kind: Noun, params: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changes from every service that serves the kind. A service that is down is retried, at its new address if
    it moved, while the others continue. Raises what a service refuses."""
    news: SimpleQueue[tuple[str, dict[str, Any]] | Exception] = SimpleQueue()

    def follow(service: str) -> None:
        reported = ""
        while True:
            try:
                reached = ApiClient.of(stack.folder, stack.project)
                for change, view in reached.watch(service, kind.path, params):
                    reported = ""
                    news.put((change, named(service, kind, view)))
            except (Gone, Unavailable, NotRunning) as away:
                if away.message != reported:
                    print(f"{away.message}; trying again", file=sys.stderr)
                reported = away.message
            except Exception as refused:  # raised in the consumer's thread
                return news.put(refused)
            time.sleep(FOLLOW_AGAIN_WALL_S)

    for service in served(stack.client, kind):
        stack.client.url(service)  # raises at once if the service is not part of this stack
        Thread(target=follow, args=(service,), daemon=True).start()
    while True:
        change = news.get()
        if isinstance(change, Exception):
            raise change
        yield change


@command("describe")
def describe(
    stack: OfProject,
    noun: Annotated[str, typer.Argument(help="A kind as for `get`.", autocompletion=nouns)],
    name: Annotated[str, typer.Argument(help="Name of the resource.", autocompletion=resources)],
    output: Output = Form.TABLE,
) -> None:
    """Show one resource in full: its fields, conditions, members and events."""
    kind = noun_of(noun)
    client = stack.client
    view = found(client, kind, name)
    if printed(view, output):
        return
    service = view.get("service", kind.service)
    tables = {key: view.pop(key) for key in list(view) if _is_table(view[key])}
    print(yaml.safe_dump(view, sort_keys=False, allow_unicode=True), end="")
    for title, rows in tables.items():
        say(f"\n[bold]{title}[/]")
        listing(", ".join(dict.fromkeys(column for row in rows for column in row)), rows)
    service = service if service in ("resource", "link") else "compute"
    try:
        every = client.list(service, "/v1/events")
        about = (view.get("name"), view.get("project"))
        events = [
            event
            for event in every
            if (event.get("instance", event.get("about")), event.get("project") or about[1]) == about
        ]
    except MatrixError:
        return  # no compute in this stack, or events of a later version; the resource itself was shown
    if events:
        say("\n[bold]events[/]")
        listing("at, reason, message", events)


def _is_table(value: Any) -> bool:
    """Whether the value is a list of flat objects, which reads better as a table."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) and not any(isinstance(cell, dict) for cell in row.values()) for row in value)
    )


def found(client: ApiClient, kind: Noun, name: str) -> dict[str, Any]:
    """Return the resource of that name. Raises NotFound, with a suggestion if another name is similar."""
    try:
        return one(client, kind, name)
    except NotFound as missing:
        near = get_close_matches(name, [str(view.get("name")) for view in every(client, kind)], 1, cutoff=0.7)
        if not near:
            raise
        raise NotFound(f"{missing.message}; did you mean {near[0]!r}?", field=missing.field) from missing


@command("operations")
def operations(
    stack: OfProject,
    name: Annotated[str | None, typer.Argument(help="Show only this one.", autocompletion=of("operations"))] = None,
    filter: Annotated[str | None, typer.Option(help="e.g. 'state=Running AND target=deepseek'")] = None,
    watch: Watch = False,
    output: Output = Form.TABLE,
) -> None:
    """List operations of all services with their current step; same as `get operations`. `operation` acts on one."""
    get(stack, "operations", name, filter, watch, output)


@command("events")
def events(stack: OfProject, watch: Watch = False, output: Output = Form.TABLE) -> None:
    """List events, oldest first."""
    get(stack, "events", watch=watch, output=output)


@command("stuck")
def stuck(stack: OfProject, output: Output = Form.TABLE) -> None:
    """List resources past the deadline of a transitional state, or whose operation cannot continue; exit code 1 if
    any."""
    client = stack.client
    found = [
        {"service": service, **{key: item.get(key) for key in ("name", "project", "state", "seconds", "message")}}
        for service in ("resource", "link", "compute", "infer")
        if service in client.stack.children
        for item in client.list(service, "/v1/stuck")
    ]
    if printed({"items": found}, output):
        raise typer.Exit(1 if found else 0)
    if found:
        listing(with_projects("service, name, state, emulated seconds:seconds, why:message", found), found)
    else:
        say("nothing is stuck")
    raise typer.Exit(1 if found else 0)
