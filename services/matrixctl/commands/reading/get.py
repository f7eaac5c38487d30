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
from services.matrixctl.clients.collections import get_resource, list_resources, serving_services, with_service
from services.matrixctl.commands.command import command
from services.matrixctl.commands.help.completion import complete_kinds, complete_resources, names_of
from services.matrixctl.commands.options import Output, ProjectOptions, print_for_programs
from services.matrixctl.output.columns import cells, print_table, titles, with_projects
from services.matrixctl.output.resource_kinds import LISTED_KINDS, ListedKind, find_kind
from services.matrixctl.output.screen import NotRunning, OutputFormat, echo, full_name

RETRY_PERIOD_WALL_S = 1.0

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Keep running and print changes.")]


def show(noun: ListedKind, views: list[dict[str, Any]], form: OutputFormat, single: bool) -> None:
    if print_for_programs(views[0] if single else {"items": views}, form):
        return
    if views:
        print_table(with_projects(noun.shown(form is OutputFormat.WIDE), views), views)
    else:
        print(f"no {noun.name}" + (f": {noun.means}" if noun.means else ""), file=sys.stderr)


@command("get")
def get(
    stack: ProjectOptions,
    noun: Annotated[
        str, typer.Argument(help=", ".join(noun.name for noun in LISTED_KINDS), autocompletion=complete_kinds)
    ],
    name: Annotated[str | None, typer.Argument(help="Show only this one.", autocompletion=complete_resources)] = None,
    filter: Annotated[
        str | None, typer.Option(help="e.g. 'state=Active AND labels.team!=search'; for a list, one entry has to match")
    ] = None,
    watch: Watch = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List resources of a kind, or show one. Times are emulated (`status` shows the current one); kubectl shows wall
    time."""
    kind = find_kind(noun)
    client = stack.client
    if watch:
        _watch(stack, kind, name, output, filter)
        return
    if name is not None:
        show(kind, [get_or_suggest(client, kind, name)], output, single=True)
        return
    show(kind, list_resources(client, kind, filter), output, single=False)


def _watch(stack: ProjectOptions, kind: ListedKind, name: str | None, form: OutputFormat, filter: str | None) -> None:
    """Print a line per change until interrupted; after a service restarts, continue from the present."""
    columns = kind.shown(form is OutputFormat.WIDE)
    if form in (OutputFormat.TABLE, OutputFormat.WIDE):
        print("  ".join(title.upper().ljust(16) for title in ["change", *titles(columns)]))
    for change, view in _changes(stack, kind, {"filter": filter} if filter else {}):
        if name is not None and not _matches_name(view, name, stack.project):
            continue
        if form is OutputFormat.NAME:
            print(full_name(view), flush=True)
        elif form is OutputFormat.JSON:
            print(json.dumps({"type": change, "object": view}, ensure_ascii=False), flush=True)
        elif form is OutputFormat.YAML:
            document = yaml.safe_dump({"type": change, "object": view}, sort_keys=False, allow_unicode=True)
            print(f"---\n{document}", end="", flush=True)
        else:
            # Later rows may be of any project, so there is no project column; names carry it.
            row = cells(columns, {**view, "name": full_name(view)} if "name" in view else view)
            print("  ".join(cell.ljust(16) for cell in [change, *row]), flush=True)


def _matches_name(view: dict[str, Any], name: str, project: str | None) -> bool:
    """Whether the view is the one that `get` would show for that name."""
    owner = project_of(name) if "/" in name else project or DEFAULT_PROJECT
    return (view.get("name"), view.get("project", owner)) == (name_of(name), owner)


def _changes(stack: ProjectOptions, kind: ListedKind, params: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changes from every service that serves the kind. A service that is down is retried, at its new address if
    it moved, while the others continue. Raises what a service refuses."""
    changes: SimpleQueue[tuple[str, dict[str, Any]] | Exception] = SimpleQueue()

    def follow(service: str) -> None:
        reported = ""
        while True:
            try:
                client = ApiClient.of(stack.folder, stack.project)
                for change, view in client.watch(service, kind.path, params):
                    reported = ""
                    changes.put((change, with_service(service, kind, view)))
            except (Gone, Unavailable, NotRunning) as unavailable:
                if unavailable.message != reported:
                    print(f"{unavailable.message}; trying again", file=sys.stderr)
                reported = unavailable.message
            except Exception as refused:  # raised in the consumer's thread
                return changes.put(refused)
            time.sleep(RETRY_PERIOD_WALL_S)

    for service in serving_services(stack.client, kind):
        stack.client.url(service)  # raises at once if the service is not part of this stack
        Thread(target=follow, args=(service,), daemon=True).start()
    while True:
        change = changes.get()
        if isinstance(change, Exception):
            raise change
        yield change


@command("describe")
def describe(
    stack: ProjectOptions,
    noun: Annotated[str, typer.Argument(help="A kind as for `get`.", autocompletion=complete_kinds)],
    name: Annotated[str, typer.Argument(help="Name of the resource.", autocompletion=complete_resources)],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show one resource in full: its fields, conditions, members and events."""
    kind = find_kind(noun)
    client = stack.client
    view = get_or_suggest(client, kind, name)
    if print_for_programs(view, output):
        return
    service = view.get("service", kind.service)
    tables = {key: view.pop(key) for key in list(view) if _is_table(view[key])}
    print(yaml.safe_dump(view, sort_keys=False, allow_unicode=True), end="")
    for title, rows in tables.items():
        echo(f"\n[bold]{title}[/]")
        print_table(", ".join(dict.fromkeys(column for row in rows for column in row)), rows)
    service = service if service in ("resource", "link") else "compute"
    try:
        all_events = client.list(service, "/v1/events")
        about = (view.get("name"), view.get("project"))
        events = [event for event in all_events if (event.get("about"), event.get("project") or about[1]) == about]
    except MatrixError:
        return  # no compute in this stack, or events of a later version; the resource itself was shown
    if events:
        echo("\n[bold]events[/]")
        print_table("at, reason, message", events)


def _is_table(value: Any) -> bool:
    """Whether the value is a list of flat objects, which reads better as a table."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) and not any(isinstance(cell, dict) for cell in row.values()) for row in value)
    )


def get_or_suggest(client: ApiClient, kind: ListedKind, name: str) -> dict[str, Any]:
    """Return the resource of that name. Raises NotFound, with a suggestion if another name is similar."""
    try:
        return get_resource(client, kind, name)
    except NotFound as missing:
        near = get_close_matches(name, [str(view.get("name")) for view in list_resources(client, kind)], 1, cutoff=0.7)
        if not near:
            raise
        raise NotFound(f"{missing.message}; did you mean {near[0]!r}?", field=missing.field) from missing


@command("operations")
def operations(
    stack: ProjectOptions,
    name: Annotated[
        str | None, typer.Argument(help="Show only this one.", autocompletion=names_of("operations"))
    ] = None,
    filter: Annotated[str | None, typer.Option(help="e.g. 'state=Running AND target=deepseek'")] = None,
    watch: Watch = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List operations of all services with their current step; same as `get operations`. `operation` acts on one."""
    get(stack, "operations", name, filter, watch, output)


@command("events")
def events(
    stack: ProjectOptions,
    filter: Annotated[str | None, typer.Option(help="e.g. 'type=Warning' or 'about=sn0-l2p3-k11'")] = None,
    watch: Watch = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List events of all services, oldest first: of instances, nodes, links, switches and slices. `get node-events` and
    `get link-events` list those of one service."""
    get(stack, "events", None, filter, watch, output)


@command("stuck")
def stuck(stack: ProjectOptions, output: Output = OutputFormat.TABLE) -> None:
    """List resources past the deadline of a transitional state, or whose operation cannot continue; exit code 1 if
    any."""
    client = stack.client
    found = [
        {"service": service, **{key: item.get(key) for key in ("name", "project", "state", "seconds", "message")}}
        for service in ("resource", "link", "compute", "infer")
        if service in client.stack.children
        for item in client.list(service, "/v1/stuck")
    ]
    if print_for_programs({"items": found}, output):
        raise typer.Exit(1 if found else 0)
    if found:
        print_table(with_projects("service, name, state, emulated seconds:seconds, why:message", found), found)
    else:
        echo("nothing is stuck")
    raise typer.Exit(1 if found else 0)
