"""plan: where a manifest's instances or so many nodes would lie, or what stands in the way; nothing is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.api.client import at
from matrixcommon.model.errors import InvalidField, NotFound
from services.matrixctl.commands import allocation_options
from services.matrixctl.commands.options import DEFAULT_STATE, Output, Project, State, printed, reach
from services.matrixctl.output.screen import EXIT_REFUSED, Form, say, table

KIND = "CloudMatrixInstance"


def plan(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--filename", "-f", help="Manifest with one CloudMatrixInstance or several.")
    ] = None,
    nodes: allocation_options.Nodes = None,
    npus: allocation_options.Npus = None,
    npus_per_node: allocation_options.NpusPerNode = None,
    cpus: allocation_options.Cpus = 0,
    memory_gib: allocation_options.MemoryGib = 0,
    spares: allocation_options.Spares = 0,
    policy: allocation_options.Policy = "pack",
    level: allocation_options.Level = "cabinet",
    required: allocation_options.Required = False,
    max_per_domain: allocation_options.MaxPerDomain = None,
    block: allocation_options.Blocks = None,
    affinity: allocation_options.AffinityOption = None,
    anti_affinity: allocation_options.AntiAffinityOption = None,
    priority: allocation_options.Priority = 0,
    preempt: allocation_options.Preempt = False,
    lease_s: allocation_options.LeaseS = None,
    exclude: allocation_options.Exclude = None,
    topology_version: Annotated[str, typer.Option(help="Answer on this topology version, or be refused.")] = "",
    project: Project = None,
    output: Output = Form.TABLE,
    state: State = DEFAULT_STATE,
) -> None:
    """Say where a manifest's instances, or so many nodes, would lie, without asking for it.

    With --nodes, --npus, --cpus or --memory-gib: whether they fit, and what the loss of a cabinet would take; if not,
    what stands in the way in each cabinet and what would help; the exit code is then 1. With --preempt it says whom it
    would preempt.

        --nodes 4 --required                 four nodes of one cabinet
        --npus 2                             a quarter of a node
        --nodes 24 --block 8                 three logical supernodes
        --nodes 4 --affinity db --anti-affinity web      where db lies, not web
        --nodes 40 --priority 9 --preempt    whoever that preempts
    """
    if (file is None) != allocation_options.sized(nodes, npus, cpus, memory_gib):
        flags = "--filename, --nodes, --npus, --cpus, --memory-gib"
        raise InvalidField("give either a manifest or a number of nodes or NPUs", field=flags)
    requests = _requests(file) if file is not None else []
    client = reach(state, project)
    if file is None:
        body = allocation_options.request(context.params)
        body |= {"topologyVersion": topology_version} if topology_version else {}
        answer = client.call("resource", "POST", "/v1/plans", body=body)
        if not printed(answer, output):
            _tell(answer)
        if not answer["fits"]:
            raise typer.Exit(EXIT_REFUSED)
        return
    plans = [_planned(client, each["metadata"]["name"], dict(each.get("spec") or {})) for each in requests]
    if printed({"items": plans}, output):
        return
    for each in plans:
        cabinets = len({place["cabinet"] for place in each["places"]})
        say(f"{each['name']}: {len(each['places'])} nodes in {cabinets} cabinets, {each['moves']} of them move")
        if each["preempts"]:
            say(f"[red]preempts[/] {', '.join(each['preempts'])}")
        table(
            ["rank", "role", "node", "cabinet", "now"],
            [[place[key] for key in ("rank", "role", "node", "cabinet", "now")] for place in each["places"]],
        )


def _requests(file: Path) -> list[dict[str, Any]]:
    import yaml

    if not file.exists():
        raise InvalidField(f"there is no file {file}", field="--filename")
    requests = [each for each in yaml.safe_load_all(file.read_text()) if each and each.get("kind") == KIND]
    if not requests:
        raise InvalidField(f"there is no {KIND} in {file}", field="--filename")
    return requests


def _tell(answer: dict[str, Any]) -> None:
    if answer["fits"] and answer["preempts"]:
        say(f"[green]fits[/], and [red]preempts[/] {', '.join(answer['preempts'])}")
        return
    if answer["fits"]:
        places = answer["members"] or answer["poolNodes"]
        cabinets = sorted({name.rpartition("-")[0] for name in places})
        spares = f", spares {', '.join(answer['spareNodes'])}" if answer["spareNodes"] else ""
        part = answer["npus"] / answer["nodes"] if answer["nodes"] else 0
        each = "" if part in (0, 8) else f" ({part:g} NPUs of each)"
        say(f"[green]fits[/]: {len(places)} nodes{each} in {', '.join(cabinets)}{spares}")
        table(
            ("loss of one", "members lost", "UB bandwidth lost"),
            [(loss["over"], loss["members"], f"{loss['ubShare']:.1%}") for loss in answer["blastRadius"]],
        )
        return
    say(f"[red]does not fit[/]: {answer['message']}")
    rows = [
        (one["domain"], one["room"], one["short"], ", ".join(f"{n} {why}" for why, n in one["reasons"].items()))
        for one in answer["blocking"]
    ]
    table(("domain", "room", "short", "in the way"), rows)
    for change in answer["changes"]:
        say(f"- {change['message']}")
    if not answer["changes"]:
        say("no single thing would help: there are not so many working nodes")
    if answer.get("earliestStart"):
        say(f"it fits from {answer['earliestStart']} on, if everybody leaves when they reported")


def _planned(client: Any, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    spec.pop("dryRun", None)
    path = at("instances", name)
    there = client.call("compute", "PUT", path, body=spec, params={"validateOnly": "true"})
    try:
        here = client.call("compute", "GET", path)
    except NotFound:
        here = {}
    now = {member["rank"]: member["node"] for member in here.get("members", []) if member["role"] == "member"}
    places = [
        {
            "rank": member.get("rank", ""),
            "role": member["role"],
            "node": member["node"],
            "cabinet": member["cabinet"],
            "now": now.get(member.get("rank"), "") if member["role"] == "member" else "",
        }
        for member in there["members"]
    ]
    moves = sum(bool(place["now"]) and place["now"] != place["node"] for place in places)
    return {"name": name, "places": places, "moves": moves, "preempts": there.get("preempts", [])}


def register(app: typer.Typer) -> None:
    app.command()(plan)
