"""domain, supernode, node and npu: change the inventory and which parts accept work. `get` reads them, and the topology
versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import Conflict, NotFound
from matrixcommon.model.quantities import pluralized
from services.matrixctl.clients.input_files import read_mapping
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import names_of
from services.matrixctl.commands.options import StackOptions
from services.matrixctl.output.screen import echo

group("domain", "Close a cabinet or a supernode to new allocations, or open it again. Running work continues.")
group("supernode", "Add a supernode to the machine, or remove one.")
group("node", "Verify, service, quarantine, retire or recover nodes; cordon and uncordon them.")
group("npu", "Bring back an NPU that was separated because of faults.")

Domain = Annotated[
    str, typer.Argument(help="A cabinet (sn0-c03) or a supernode (sn0).", autocompletion=names_of("domains"))
]
Reason = Annotated[str, typer.Option(help="Reason; shown with the domain or node.")]
SupernodeWord = Annotated[str, typer.Argument(help="sn0, sn1 and so on.")]


@command("domain close")
def domain_close(
    stack: StackOptions,
    name: Domain,
    drain: Annotated[
        bool, typer.Option("--drain", help="Mark it as draining: holders should leave, but are not moved.")
    ] = False,
    reason: Reason = "",
) -> None:
    """Close a domain to new allocations, and list the allocations still placed there."""
    params = {"drain": "true"} if drain else None
    view = stack.client.call(
        "resource", "POST", resource_path("domains", name, ":close"), body={"reason": reason}, params=params
    )
    current = view.get("allocations", [])
    remaining = f"still placed there: {', '.join(current)}" if current else "nothing is placed there"
    echo(f"{name} is {view['state']}; {remaining}")


@command("domain open")
def domain_open(stack: StackOptions, name: Domain, reason: Reason = "") -> None:
    """Open a domain to new allocations again."""
    view = stack.client.call("resource", "POST", resource_path("domains", name, ":open"), body={"reason": reason})
    echo(f"{name} is {view['state']}")


@command("supernode add")
def supernode_add(
    stack: StackOptions,
    name: SupernodeWord,
    spec: Annotated[
        Path | None, typer.Option("--filename", "-f", help="Its machine file, in the format of cloudmatrix384.yaml.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Its wiring: a drawing in node-link JSON or GraphML.")
    ] = None,
    hardware: Annotated[
        bool, typer.Option(help="Also start the emulated cabinets; without, the inventory waits for hardware.")
    ] = True,
) -> None:
    """Add a supernode to the inventory and start its emulated cabinets, whose agents then enrol.

    Emulated cabinets have the shape that the agents' process was started with, so a supernode with its own machine file
    (-f) is only added to the inventory. With --file it is wired as in that drawing; an existing supernode is redrawn.

        matrixctl topology export sn0 > drawn.json      a drawing to start from
        matrixctl supernode add sn1 --file drawn.json   another supernode, wired like that
        matrixctl supernode add sn0 --file drawn.json   the same cabinets, other cables: a new version
    """
    body: dict[str, Any] = {"spec": read_mapping(spec)} if spec else {}
    if file is not None:
        from matrixresource.topology.graph_document import pack, read_drawing_file

        body["graph"] = pack(read_drawing_file(file))
    view = stack.client.call("resource", "PUT", resource_path("supernodes", name), body=body)
    up = hardware and spec is None
    if up:
        stack.client.call("agents", "PUT", resource_path("supernodes", name))
    waits = "its nodes start one after another" if up else "its nodes wait for their hardware"
    echo(f"{name} has {pluralized(view['nodes'], 'node')} and {pluralized(view['npus'], 'NPU')}; {waits}")


@command("supernode remove")
def supernode_remove(stack: StackOptions, name: SupernodeWord) -> None:
    """Remove a supernode from the inventory and stop its emulated cabinets. Refused while anything is allocated
    there."""
    stack.client.call("resource", "DELETE", resource_path("supernodes", name))
    try:
        stack.client.call("agents", "DELETE", resource_path("supernodes", name))
        cabinets = "its cabinets are stopped"
    except NotFound:
        cabinets = "it had no emulated cabinets"
    except Conflict:
        cabinets = f"its cabinets run on, as the stack was started with them: `supernode add {name}` enrols them again"
    echo(f"{name} is removed from the inventory; {cabinets}")


NodeWord = Annotated[str, typer.Argument(help="A node (sn0-c03-n2).", autocompletion=names_of("nodes"))]
Force = Annotated[bool, typer.Option("--force", help="Even if somebody holds it, who then loses it.")]


@command("node cordon")
def node_cordon(stack: StackOptions, name: NodeWord) -> None:
    """Cordon a node against new allocations; running work continues. Cordons by others, such as `kubectl cordon`, are
    kept separately."""
    _cordon(stack, name, "cordon")


@command("node uncordon")
def node_uncordon(stack: StackOptions, name: NodeWord) -> None:
    """Lift this cordon; cordons by others stay."""
    _cordon(stack, name, "uncordon")


def _cordon(stack: StackOptions, name: str, verb: str) -> None:
    view = stack.client.call("resource", "POST", resource_path("nodes", name, f":{verb}"))
    by = view.get("cordonedBy", [])
    echo(f"{name} is {'cordoned by ' + ', '.join(by) if by else 'not cordoned'}")


@command("node enrol")
def node_enrol(stack: StackOptions, name: NodeWord, reason: Reason = "") -> None:
    """Bring a retired node back; it is verified, and becomes Available if it passes."""
    _node_verb(stack, name, "enrol", reason)


@command("node verify")
def node_verify(stack: StackOptions, name: NodeWord, reason: Reason = "") -> None:
    """Take a node out of service and have its agent test it; then it is Manageable. `node clean` returns it."""
    _node_verb(stack, name, "verify", reason)


@command("node inspect")
def node_inspect(stack: StackOptions, name: NodeWord, reason: Reason = "") -> None:
    """Take a node out of service and have its agent report its inventory again; then it is Manageable."""
    _node_verb(stack, name, "inspect", reason)


@command("node clean")
def node_clean(stack: StackOptions, name: NodeWord, reason: Reason = "") -> None:
    """Clean a node that is Manageable; then it is Available."""
    _node_verb(stack, name, "clean", reason)


@command("node service")
def node_service(stack: StackOptions, name: NodeWord, reason: Reason = "") -> None:
    """Take a node out for servicing. Its holder moves away first; until then it is Draining."""
    _node_verb(stack, name, "service", reason)


@command("node update")
def node_update(
    stack: StackOptions,
    name: NodeWord,
    firmware: Annotated[str, typer.Option(help="Firmware version to write, such as emulated-2.")],
    reason: Reason = "",
) -> None:
    """Have the agent of a node that is Servicing write a firmware. `node recover` checks and returns the node."""
    _node_verb(stack, name, "update", reason, firmware=firmware)


@command("node quarantine")
def node_quarantine(stack: StackOptions, name: NodeWord, reason: Reason = "", force: Force = False) -> None:
    """Quarantine a node at once, until `node recover` checks it.

    Refused while it is held. With --force the holder loses it and any data that exists only there; an instance replaces
    it like a lost node.
    """
    _node_verb(stack, name, "quarantine", reason, force)


@command("node recover")
def node_recover(stack: StackOptions, name: NodeWord, reason: Reason = "") -> None:
    """Return a node that is Quarantined, Servicing or Manageable: Available once its agent's check has passed."""
    _node_verb(stack, name, "recover", reason)


@command("node retire")
def node_retire(stack: StackOptions, name: NodeWord, reason: Reason = "", force: Force = False) -> None:
    """Retire a node from the capacity for good; its record is kept.

    Refused while it is held. With --force the holder loses it and any data that exists only there; an instance replaces
    it like a lost node.
    """
    _node_verb(stack, name, "retire", reason, force)


def _node_verb(
    stack: StackOptions, name: str, verb: str, reason: str, force: bool = False, firmware: str | None = None
) -> None:
    body = {"reason": reason, "force": force} | ({"firmware": firmware} if firmware else {})
    view = stack.client.call("resource", "POST", resource_path("nodes", name, f":{verb}"), body=body)
    why = view.get("stateMessage")
    echo(f"{name} is {view['state']}{f': {why}' if why else ''}")


@command("npu release")
def npu_release(stack: StackOptions, name: Annotated[str, typer.Argument(help="An NPU (sn0-c03-n2-npu5).")]) -> None:
    """Bring back an NPU that was separated because of frequent faults; a fault it still has keeps it out."""
    view = stack.client.call("resource", "POST", resource_path("npus", name, ":release"))
    left = ", ".join(fault["code"] for fault in view.get("faults", []))
    echo(f"{name} is {view['health']}{f'; it still has {left}' if left else ''}")
