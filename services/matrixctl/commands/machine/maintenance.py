"""maintenance: service a node, cabinet, switch or supernode while instances run, with progress, pause and abort."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import pluralized, timestamp
from services.matrixctl.clients.input_files import read_mapping
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import names_of
from services.matrixctl.commands.options import Output, StackOptions, parse_instant_s, parse_seconds, print_for_programs
from services.matrixctl.commands.reading.get import show
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.resource_kinds import find_kind
from services.matrixctl.output.screen import EXIT_REFUSED, OutputFormat, echo
from services.matrixctl.output.waiting import Progress, wait_for_state

FINAL_STATES = ("Completed", "Failed", "Aborted", "Expired")
COLLECTION = "maintenances"
FEW_UNITS = 8
"""Maximum number of units that every answer lists."""

group("maintenance", "Service a node, cabinet, switch or supernode while instances run. Holders move away first.")

group("budget", "Limit how many nodes maintenances may take out at once, for which actions and when.")

Name = Annotated[str, typer.Argument(help="The maintenance's name.", autocompletion=names_of("maintenances"))]
BudgetName = Annotated[str, typer.Argument(help="The budget's name.", autocompletion=names_of("disruption-budgets"))]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Wait until it is over, with progress; exit code 1 unless it completed.")
]
Part = str | None


@command("maintenance create")
def create(
    stack: StackOptions,
    name: Name,
    file: Annotated[Path | None, typer.Option("--filename", "-f", help="The maintenance, as YAML.")] = None,
    node: Annotated[Part, typer.Option(help="A node (sn0-c03-n2).")] = None,
    cabinet: Annotated[Part, typer.Option(help="The nodes of a cabinet (sn0-c03).")] = None,
    switch: Annotated[Part, typer.Option(help="A switch (sn0-l2p4-k11).")] = None,
    supernode: Annotated[Part, typer.Option(help="All nodes of a supernode (sn0).")] = None,
    firmware: Annotated[Part, typer.Option(help="Have the agents write this firmware (default: service only).")] = None,
    service_s: Annotated[
        float | None, typer.Option("--service-s", help="Emulated seconds in service (default: until `node recover`).")
    ] = None,
    not_before: Annotated[
        Part, typer.Option(help="Start no earlier than this, in emulated time: 2026-01-31T08:00:00Z, 14:00 or +2h.")
    ] = None,
    deadline: Annotated[
        Part,
        typer.Option(help="Start nothing after this, and roll back work in progress: a time as for --not-before."),
    ] = None,
    max_unavailable: Annotated[
        int | None, typer.Option(help="Maximum number of nodes out at once (default 1).")
    ] = None,
    max_per_cabinet: Annotated[int | None, typer.Option(help="The same, per cabinet.")] = None,
    no_move: Annotated[bool, typer.Option("--no-move", help="Do not move holders; wait until they leave.")] = False,
    reason: Annotated[str, typer.Option(help="Reason; shown in notices and on the nodes.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be serviced.")] = False,
    watch: Watch = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Announce a maintenance, and carry it out when its time comes.

    maintenance create fan --node sn0-c03-n2 --service-s 600 --reason "a fan"
    maintenance create racks --cabinet sn0-c03 --max-unavailable 4     all four until `node recover`
    maintenance create optics --switch sn0-l2p4-k11 --service-s 300
    maintenance create fw --supernode sn0 --firmware emulated-2 --max-unavailable 4 --watch
    maintenance create fw -f examples/maintenance-firmware.yaml        the same from a file
    """
    body = {} if file is None else read_mapping(file)
    parts = {"node": node, "cabinet": cabinet, "switch": switch, "supernode": supernode}
    target = {kind: part for kind, part in parts.items() if part is not None}
    if not target and "target" not in body:
        raise InvalidField("name the target", field="--node, --cabinet, --switch, --supernode")
    limits = {"maxUnavailable": max_unavailable, "maxUnavailablePerCabinet": max_per_cabinet}
    budget = {key: value for key, value in limits.items() if value is not None}
    given = {
        "target": target,
        "action": "Firmware" if firmware is not None else None,
        "firmware": firmware,
        "serviceS": service_s,
        "notBefore": _instant(stack, not_before, "--not-before"),
        "deadline": _instant(stack, deadline, "--deadline"),
        "movable": False if no_move else None,
        "budget": (body.get("budget") or {}) | budget,
        "reason": reason,
    }
    empty = {"reason": "", "target": {}, "budget": {}}  # an empty --firmware is refused, not a service instead
    body = body | {key: value for key, value in given.items() if value is not None and value != empty.get(key)}
    params = {"validateOnly": "true"} if dry_run else None
    view = stack.client.call("compute", "PUT", resource_path(COLLECTION, name), body=body, params=params)
    _show_or_wait(stack.client, view, watch and not dry_run, output, whole=dry_run)


def _instant(stack: StackOptions, text: str | None, option: str) -> str | None:
    return None if text is None else timestamp(parse_instant_s(text, stack.emulated_now_s, option))


@command("budget set")
def budget_set(
    stack: StackOptions,
    name: BudgetName,
    nodes: Annotated[str, typer.Option(help="Nodes that may be out: 3, or 10% of the supernode's; 0 allows none.")],
    supernode: Annotated[Part, typer.Option(help="Supernode it applies to (default: each).")] = None,
    reason: Annotated[list[str] | None, typer.Option(help="Service or Firmware; repeatable (default: both).")] = None,
    schedule: Annotated[Part, typer.Option(help='When it starts to apply, as cron in UTC: "0 9 * * mon-fri".')] = None,
    lasts: Annotated[
        str | None,
        typer.Option("--for", help="How long it then applies, emulated: 90s, 20m, 4h, 2d; a plain number is seconds."),
    ] = None,
) -> None:
    """Set a disruption budget that limits all maintenances together, always or at certain times.

    budget set nights --nodes 25% --reason Firmware
    budget set office-hours --nodes 0 --schedule "0 9 * * mon-fri" --for 8h
    """
    given = {
        "nodes": nodes,
        "supernode": supernode,
        "reasons": reason or None,
        "schedule": schedule,
        "durationS": None if lasts is None else parse_seconds(lasts),
    }
    body = {key: value for key, value in given.items() if value is not None}
    view = stack.client.call("compute", "PUT", resource_path("disruption-budgets", name), body=body)
    when = f"from {view['schedule']} for {view['durationS']:g} s" if view.get("schedule") else "always"
    share = str(view["nodes"]).endswith("%")
    nodes = f"{view['nodes']} of the nodes" if share else pluralized(view["nodes"], "node")
    where = view.get("supernode") or "each supernode"
    echo(f"{', '.join(view['reasons'])}: at most {nodes} of {where} may be out, {when}")
    if view["message"]:
        echo(f"{name} is {view['state']}: {view['message']}")


@command("budget delete")
def budget_delete(stack: StackOptions, name: BudgetName) -> None:
    """Delete a disruption budget."""
    stack.client.call("compute", "DELETE", resource_path("disruption-budgets", name))
    echo(f"disruption budget {name} is gone")


@command("maintenance list")
def list_all(stack: StackOptions, output: Output = OutputFormat.TABLE) -> None:
    """List all maintenances and their progress."""
    show(find_kind("maintenances"), stack.client.list("compute", f"/v1/{COLLECTION}"), output, single=False)


@command("maintenance show")
def show_one(stack: StackOptions, name: Name, watch: Watch = False, output: Output = OutputFormat.TABLE) -> None:
    """Show a maintenance with each of its nodes and what it waits for."""
    _show_or_wait(
        stack.client, stack.client.call("compute", "GET", resource_path(COLLECTION, name)), watch, output, whole=True
    )


@command("maintenance pause")
def pause(stack: StackOptions, name: Name, output: Output = OutputFormat.TABLE) -> None:
    """Start nothing more; work in progress is finished."""
    _post_verb(stack.client, name, "pause", False, output)


@command("maintenance resume")
def resume(stack: StackOptions, name: Name, watch: Watch = False, output: Output = OutputFormat.TABLE) -> None:
    """Resume a paused maintenance."""
    _post_verb(stack.client, name, "resume", watch, output)


@command("maintenance abort")
def abort(
    stack: StackOptions,
    name: Name,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until work in progress is rolled back.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Roll back work in progress, lift the maintenance's cordons, and end it. Finished work stays in place."""
    view = stack.client.call("compute", "POST", resource_path(COLLECTION, name, ":abort"))
    _show(_wait_until_done(stack.client, name) if wait else view, output)


def _post_verb(client: Any, name: str, verb: str, watch: bool, output: OutputFormat) -> None:
    _show_or_wait(client, client.call("compute", "POST", resource_path(COLLECTION, name, f":{verb}")), watch, output)


def _show_or_wait(client: Any, view: dict[str, Any], watch: bool, output: OutputFormat, whole: bool = False) -> None:
    """Show the maintenance; with `watch`, once it is over, and exit with 1 unless it completed."""
    if watch:
        view = _wait_until_done(client, view["name"])
    _show(view, output, whole)
    if watch and view["state"] != "Completed":
        raise typer.Exit(EXIT_REFUSED)


def _wait_until_done(client: Any, name: str) -> dict[str, Any]:
    """Wait until the maintenance is over."""
    return wait_for_state(client, "compute", resource_path(COLLECTION, name), FINAL_STATES, _progress)


def _progress(view: dict[str, Any]) -> Progress:
    counts, text = view["counts"], f"{view['state']}: {view['message']}"
    return Progress(counts["done"] + counts["failed"] + counts["skipped"], counts["total"], text, text)


def _show(view: dict[str, Any], output: OutputFormat, whole: bool = False) -> None:
    """Print the maintenance. If it has many units, they are listed only with `whole`."""
    if print_for_programs(view, output):
        return
    target = " ".join(next((kind, str(part)) for kind, part in view["target"].items() if part))
    what = f"firmware {view['firmware']}" if view.get("firmware") else "service"
    echo(f"{view['name']} is {view['state']}: {what} of {target}; {view.get('message') or 'it is announced'}")
    if view.get("instances"):
        echo(f"affected: {', '.join(view['instances'])}")
    if whole or len(view["units"]) <= FEW_UNITS:
        print_table("name, state, instances, firmware, before:firmwareBefore, reason, message", view["units"])
    else:
        echo(f"see each of the {len(view['units'])} with `matrixctl maintenance show {view['name']}`")
