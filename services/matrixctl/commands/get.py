"""get, describe, events, stuck: reading what the services tell."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from services.matrixctl.commands.options import DEFAULT_STATE, Output, Project, State, printed, reach
from services.matrixctl.output.screen import Form, say, table

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on and print what changes.")]


def _print(noun: Any, views: list[dict[str, Any]], form: Form, single: bool) -> None:
    if printed(views[0] if single else {"items": views}, form):
        return
    if views:
        wide = form is Form.WIDE
        table(noun.titles(wide), [noun.row(view, wide) for view in views])
    else:
        print(f"no {noun.name}", file=sys.stderr)


def get(
    noun: Annotated[
        str,
        typer.Argument(
            help="supernodes, domains, topology-versions, nodes, npus, allocations, reservations, quotas, "
            "defragmentations, slices, "
            "planes, switches, links, link-events, instances, faults, operations, events, deployments"
        ),
    ],
    name: Annotated[str | None, typer.Argument(help="Only this one.")] = None,
    filter: Annotated[str | None, typer.Option(help="e.g. 'state=Active AND cabinet!=sn0-c03'")] = None,
    watch: Watch = False,
    project: Project = None,
    output: Output = Form.TABLE,
    state: State = DEFAULT_STATE,
) -> None:
    """List a collection, or one of it."""
    from services.matrixctl.output.resource_kinds import noun_of

    kind = noun_of(noun)
    client = reach(state, project)
    if watch:
        _follow(client, kind, name, output)
        return
    if name is not None:
        _print(kind, [client.one(kind.service, kind.path, name, kind.whole)], output, single=True)
        return
    params = {"orderBy": kind.order} | ({"filter": filter} if filter else {})
    _print(kind, client.list(kind.service, kind.path, params), output, single=False)


def _follow(client: Any, kind: Any, name: str | None, form: Form) -> None:
    """A line per change, until interrupted; after a service was started again, from the present on."""
    import json
    import time

    from matrixcommon.model.errors import Unavailable
    from matrixcommon.model.resource_key import name_of

    wide = form is Form.WIDE
    if form in (Form.TABLE, Form.WIDE):
        print("  ".join(title.upper().ljust(16) for title in ["change", *kind.titles(wide)]))
    while True:
        try:
            for change, view in client.watch(kind.service, kind.path):
                if name is not None and view.get("name") != name_of(name):
                    continue
                if form in (Form.JSON, Form.YAML):
                    print(json.dumps({"type": change, "object": view}), flush=True)
                else:
                    print("  ".join(cell.ljust(16) for cell in [change, *kind.row(view, wide)]), flush=True)
        except Unavailable as away:
            print(f"{away.message}; trying again", file=sys.stderr)
        time.sleep(1.0)


def describe(
    noun: Annotated[str, typer.Argument(help="As for get.")],
    name: Annotated[str, typer.Argument(help="Which one.")],
    project: Project = None,
    state: State = DEFAULT_STATE,
) -> None:
    """Everything about one resource: its fields, conditions, members and events."""
    import yaml

    from matrixcommon.model.errors import MatrixError
    from matrixcommon.model.resource_key import name_of
    from services.matrixctl.output.resource_kinds import noun_of, shown

    kind = noun_of(noun)
    client = reach(state, project)
    view = client.one(kind.service, kind.path, name, kind.whole)
    tables = {key: view.pop(key) for key in list(view) if _is_table(view[key])}
    print(yaml.safe_dump(view, sort_keys=False, allow_unicode=True), end="")
    for title, rows in tables.items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        say(f"\n[bold]{title}[/]")
        table(columns, [[shown(row.get(column)) for column in columns] for row in rows])
    try:
        events = [event for event in client.list("compute", "/v1/events") if event.get("instance") == name_of(name)]
    except MatrixError:
        return  # a stack without compute, or events of a later version: the resource itself was shown
    if events:
        say("\n[bold]events[/]")
        table(
            ["at", "reason", "message"],
            [[shown(event.get(key)) for key in ("at", "reason", "message")] for event in events],
        )


def _is_table(value: Any) -> bool:
    """A list of flat objects reads better as a table."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) and not any(isinstance(cell, dict) for cell in row.values()) for row in value)
    )


def events(
    watch: Watch = False, project: Project = None, output: Output = Form.TABLE, state: State = DEFAULT_STATE
) -> None:
    """What happened, oldest first."""
    get("events", None, None, watch, project, output, state)


def stuck(project: Project = None, output: Output = Form.TABLE, state: State = DEFAULT_STATE) -> None:
    """Resources that have outlived the deadline of a passing state. Exit code 1 when there are any."""
    from matrixcommon.model.errors import NotFound, NotYetSupported

    client = reach(state, project)
    found, silent = [], []
    for service in ("resource", "link", "compute", "infer"):
        if service not in client.stack.children:
            continue
        try:
            items = client.list(service, "/v1/stuck")
        except (NotFound, NotYetSupported):
            silent.append(service)
            continue
        found += [
            {"service": service, **{key: item.get(key) for key in ("name", "state", "seconds")}} for item in items
        ]
    if printed({"items": found, "notAsked": silent}, output):
        raise typer.Exit(1 if found else 0)
    if found:
        table(["service", "name", "state", "emulated seconds"], [list(row.values()) for row in found])
    else:
        say("nothing is stuck")
    if silent:
        print(f"{', '.join(silent)} cannot tell yet", file=sys.stderr)
    raise typer.Exit(1 if found else 0)


def register(app: typer.Typer) -> None:
    for command in (get, describe, events, stuck):
        app.command()(command)
