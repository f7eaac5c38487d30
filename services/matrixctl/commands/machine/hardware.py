"""domain, supernode, node and npu: what of the machine takes work, and what there is of it. `get` reads them, and the
versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from matrixcommon.api.client import at
from matrixcommon.model.errors import Conflict, NotFound
from matrixcommon.model.quantities import counted
from services.matrixctl.clients.input_files import mapping_in
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import of
from services.matrixctl.commands.options import OnStack
from services.matrixctl.output.screen import say

group("domain", "Close a cabinet or a supernode for newcomers, or open it again. What runs there continues.")
group("supernode", "Add a supernode to the machine, or take one out.")
group("node", "Have nodes verified, serviced, quarantined or retired, and back again; keep newcomers off them.")
group("npu", "Revoke what faults have done to an NPU.")

Domain = Annotated[str, typer.Argument(help="A cabinet (sn0-c03) or a supernode (sn0).", autocompletion=of("domains"))]
Reason = Annotated[str, typer.Option(help="Why; it is shown with the domain.")]
SupernodeWord = Annotated[str, typer.Argument(help="sn0, sn1 and so on.")]


@command("domain close")
def domain_close(
    stack: OnStack,
    name: Domain,
    drain: Annotated[bool, typer.Option("--drain", help="Whoever lies there is to leave; nobody is moved.")] = False,
    reason: Reason = "",
) -> None:
    """Take nothing new there, and say who still lies there."""
    params = {"drain": "true"} if drain else None
    view = stack.client.call("resource", "POST", at("domains", name, ":close"), body={"reason": reason}, params=params)
    current = view.get("allocations", [])
    lying = f"there still lie {', '.join(current)}" if current else "nothing lies there"
    say(f"{name} is {view['state']}; {lying}")


@command("domain open")
def domain_open(stack: OnStack, name: Domain, reason: Reason = "") -> None:
    """Take newcomers there again."""
    view = stack.client.call("resource", "POST", at("domains", name, ":open"), body={"reason": reason})
    say(f"{name} is {view['state']}")


@command("supernode add")
def supernode_add(
    stack: OnStack,
    name: SupernodeWord,
    spec: Annotated[
        Path | None, typer.Option("--filename", "-f", help="Its numbers, as cloudmatrix384.yaml has them.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="How it is wired: node-link JSON or GraphML, as it was drawn.")
    ] = None,
    hardware: Annotated[
        bool, typer.Option(help="Put up the emulated cabinets too; without, the inventory waits for them.")
    ] = True,
) -> None:
    """Have a supernode in the inventory and put its emulated cabinets up; its agents make themselves known.

    Emulated cabinets have the shape that the agents' process was started with: one with numbers of its own (-f) is
    taken into the inventory alone. With --file it is wired as that graph says; a supernode that exists is drawn anew.

        matrixctl topology export sn0 > drawn.json      a graph to begin with
        matrixctl supernode add sn1 --file drawn.json   one more, wired so
        matrixctl supernode add sn0 --file drawn.json   the same cabinets, other cables: one version on
    """
    body: dict[str, Any] = {"spec": mapping_in(spec)} if spec else {}
    if file is not None:
        from matrixresource.topology.graph_document import packed, read_file

        body["graph"] = packed(read_file(file))
    view = stack.client.call("resource", "PUT", at("supernodes", name), body=body)
    up = hardware and spec is None
    if up:
        stack.client.call("agents", "PUT", at("supernodes", name))
    waits = "they come up one after another" if up else "they wait for their hardware"
    say(f"{name} has {counted(view['nodes'], 'node')} and {counted(view['npus'], 'NPU')}; {waits}")


@command("supernode remove")
def supernode_remove(stack: OnStack, name: SupernodeWord) -> None:
    """Take a supernode out of the inventory, refused while anything is held there, and its emulated cabinets down."""
    stack.client.call("resource", "DELETE", at("supernodes", name))
    try:
        stack.client.call("agents", "DELETE", at("supernodes", name))
        left = "its cabinets are down"
    except (Conflict, NotFound) as kept:
        left = f"no cabinets were taken down: {kept.message}"
    say(f"{name} is out of the inventory; {left}")


NodeWord = Annotated[str, typer.Argument(help="A node (sn0-c03-n2).", autocompletion=of("nodes"))]
Force = Annotated[bool, typer.Option("--force", help="Also where somebody has it, who then loses it.")]


@command("node cordon")
def node_cordon(stack: OnStack, name: NodeWord) -> None:
    """Keep newcomers off it; what runs there continues. Cordons of others, such as `kubectl cordon`, stay beside it."""
    _cordon(stack, name, "cordon")


@command("node uncordon")
def node_uncordon(stack: OnStack, name: NodeWord) -> None:
    """Take this cordon away again; those of others stay."""
    _cordon(stack, name, "uncordon")


def _cordon(stack: OnStack, name: str, verb: str) -> None:
    view = stack.client.call("resource", "POST", at("nodes", name, f":{verb}"))
    by = view.get("cordonedBy", [])
    say(f"{name} is {'cordoned by ' + ', '.join(by) if by else 'not cordoned'}")


@command("node enrol")
def node_enrol(stack: OnStack, name: NodeWord, reason: Reason = "") -> None:
    """Have a retired node again; it is verified, and Available when that has passed."""
    _node_verb(stack, name, "enrol", reason)


@command("node verify")
def node_verify(stack: OnStack, name: NodeWord, reason: Reason = "") -> None:
    """Take it out and have its agent prove that it works; then it is Manageable. `node clean` has it back."""
    _node_verb(stack, name, "verify", reason)


@command("node inspect")
def node_inspect(stack: OnStack, name: NodeWord, reason: Reason = "") -> None:
    """Take it out and have its agent report what it finds anew; then it is Manageable."""
    _node_verb(stack, name, "inspect", reason)


@command("node clean")
def node_clean(stack: OnStack, name: NodeWord, reason: Reason = "") -> None:
    """Wipe a node that is Manageable; then it is Available."""
    _node_verb(stack, name, "clean", reason)


@command("node service")
def node_service(stack: OnStack, name: NodeWord, reason: Reason = "") -> None:
    """Keep it out for work on it. Whoever has it moves away first: until then it is Draining."""
    _node_verb(stack, name, "service", reason)


@command("node update")
def node_update(
    stack: OnStack,
    name: NodeWord,
    firmware: Annotated[str, typer.Option(help="The version to write, such as emulated-2.")],
    reason: Reason = "",
) -> None:
    """Have its agent write a firmware while it is Servicing. `node recover` has it checked and back."""
    _node_verb(stack, name, "update", reason, firmware=firmware)


@command("node quarantine")
def node_quarantine(stack: OnStack, name: NodeWord, reason: Reason = "", force: Force = False) -> None:
    """Keep it out at once, until `node recover` has it checked.

    Refused while somebody has it. With --force whoever has it loses it, with what is only there: an instance replaces
    it as a lost node.
    """
    _node_verb(stack, name, "quarantine", reason, force)


@command("node recover")
def node_recover(stack: OnStack, name: NodeWord, reason: Reason = "") -> None:
    """Have a node back that is Quarantined, Servicing or Manageable: Available, when its agent's check has passed."""
    _node_verb(stack, name, "recover", reason)


@command("node retire")
def node_retire(stack: OnStack, name: NodeWord, reason: Reason = "", force: Force = False) -> None:
    """Take it out of the capacity for good; its record is kept.

    Refused while somebody has it. With --force whoever has it loses it, with what is only there: an instance replaces
    it as a lost node.
    """
    _node_verb(stack, name, "retire", reason, force)


def _node_verb(
    stack: OnStack, name: str, verb: str, reason: str, force: bool = False, firmware: str | None = None
) -> None:
    body = {"reason": reason, "force": force} | ({"firmware": firmware} if firmware else {})
    view = stack.client.call("resource", "POST", at("nodes", name, f":{verb}"), body=body)
    why = view.get("stateMessage")
    say(f"{name} is {view['state']}{f': {why}' if why else ''}")


@command("npu release")
def npu_release(stack: OnStack, name: Annotated[str, typer.Argument(help="An NPU (sn0-c03-n2-npu5).")]) -> None:
    """Revoke that frequent faults separated an NPU; a fault that is there still keeps it out."""
    view = stack.client.call("resource", "POST", at("npus", name, ":release"))
    left = ", ".join(fault["code"] for fault in view.get("faults", []))
    say(f"{name} is {view['health']}{f'; it still has {left}' if left else ''}")
