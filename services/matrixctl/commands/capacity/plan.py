"""plan: where a manifest's instances or a number of nodes would be placed, or what is in the way; allocates nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField, NotFound
from matrixcommon.model.quantities import pluralized
from services.matrixctl.clients.input_files import read_manifests
from services.matrixctl.commands.capacity.allocation_options import AllocationOptions
from services.matrixctl.commands.command import command
from services.matrixctl.commands.options import Output, ProjectOptions, parse_seconds, print_for_programs
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.screen import EXIT_REFUSED, OutputFormat, echo

KIND = "CloudMatrixInstance"


@command("plan")
def plan(
    stack: ProjectOptions,
    wanted: AllocationOptions,
    file: Annotated[
        Path | None, typer.Option("--filename", "-f", help="Manifest with one or more CloudMatrixInstances.")
    ] = None,
    preempt: Annotated[
        bool, typer.Option("--preempt", help="Allow it to preempt allocations of lower priority.")
    ] = False,
    lease: Annotated[
        str | None,
        typer.Option(help="Lease to plan with, emulated: 90s, 20m, 4h, 2d; a plain number is seconds."),
    ] = None,
    topology_version: Annotated[
        str, typer.Option(help="Plan on this topology version; refused if it is not current.")
    ] = "",
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show where a manifest's instances, or a number of nodes, would be placed, without allocating anything.

    With --nodes, --npus, --cpus or --memory-gib: whether they fit, and what losing a cabinet would cost; if they do
    not, what is in the way in each cabinet and what would help, with exit code 1. With --preempt: whom they would
    preempt.
    """
    if (file is None) != wanted.sized:
        flags = "--filename, --nodes, --npus, --cpus, --memory-gib"
        raise InvalidField("give either a manifest or a number of nodes or NPUs", field=flags)
    requests = _requests(file) if file is not None else []
    client = stack.client
    if file is None:
        lease_s = None if lease is None else parse_seconds(lease, "--lease")
        preemption = "LowerPriority" if preempt else ""
        body = wanted.request(preemption=preemption, leaseS=lease_s, topologyVersion=topology_version)
        answer = client.call("resource", "POST", "/v1/plans", body=body)
        if not print_for_programs(answer, output):
            show_answer(answer)
        if not answer["fits"]:
            raise typer.Exit(EXIT_REFUSED)
        return
    plans = [_planned(client, each["metadata"]["name"], dict(each.get("spec") or {})) for each in requests]
    if print_for_programs({"items": plans}, output):
        return
    for each in plans:
        cabinets = len({place["cabinet"] for place in each["places"]})
        nodes = pluralized(len(each["places"]), "node")
        echo(f"{each['name']}: {nodes} in {pluralized(cabinets, 'cabinet')}, {each['moves']} of them move")
        if each["preempts"]:
            echo(f"[red]preempts[/] {', '.join(each['preempts'])}")
        print_table("rank, role, node, cabinet, now", each["places"])


def _requests(file: Path) -> list[dict[str, Any]]:
    requests = [each for each in read_manifests(file) if each["kind"] == KIND]
    if not requests:
        raise InvalidField(f"there is no {KIND} in {file}", field="--filename")
    return requests


def show_answer(answer: dict[str, Any]) -> None:
    """Print where the nodes would be placed, or what is in the way and what would help."""
    if answer["fits"] and answer["preempts"]:
        echo(f"[green]fits[/], and [red]preempts[/] {', '.join(answer['preempts'])}")
        return
    if answer["fits"]:
        places = answer["members"] or answer["poolNodes"]
        cabinets = sorted({name.rpartition("-")[0] for name in places})
        spares = f", spares {', '.join(answer['spareNodes'])}" if answer["spareNodes"] else ""
        part = answer["npus"] / answer["nodes"] if answer["nodes"] else 0
        each = "" if part in (0, 8) else f" ({pluralized(part, 'NPU')} of each)"
        echo(f"[green]fits[/]: {pluralized(len(places), 'node')}{each} in {', '.join(cabinets)}{spares}")
        losses = [loss | {"ubShare": f"{loss['ubShare']:.1%}"} for loss in answer["blastRadius"]]
        print_table("loss of one:over, members lost:members, UB bandwidth lost:ubShare", losses)
        return
    echo(f"[red]does not fit[/]: {answer['message'].partition(' not fit: ')[2] or answer['message']}")
    reasons = [one | {"reasons": [f"{n} {why}" for why, n in one["reasons"].items()]} for one in answer["blocking"]]
    print_table("domain, room, short, in the way:reasons", reasons)
    for change in answer["changes"]:
        echo(f"- {change['message']}")
    if not answer["changes"]:
        echo("no single change to the request or to current holders makes room")
    if answer.get("earliestStart"):
        echo(f"it fits from {answer['earliestStart']} on, if all holders leave when their leases end")


def _planned(client: Any, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    spec.pop("dryRun", None)
    path = resource_path("instances", name)
    planned = client.call("compute", "PUT", path, body=spec, params={"validateOnly": "true"})
    try:
        current = client.call("compute", "GET", path)
    except NotFound:
        current = {}
    now = {member["rank"]: member["node"] for member in current.get("members", []) if member["role"] == "member"}
    places = [
        {
            "rank": member.get("rank", ""),
            "role": member["role"],
            "node": member["node"],
            "cabinet": member["cabinet"],
            "now": now.get(member.get("rank"), "") if member["role"] == "member" else "",
        }
        for member in planned["members"]
    ]
    moves = sum(bool(place["now"]) and place["now"] != place["node"] for place in places)
    return {"name": name, "places": places, "moves": moves, "preempts": planned.get("preempts", [])}
