"""domain, supernode and npu: what of the machine takes work, and what there is of it. `get` reads them, and the
versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from matrixcommon.model.errors import Conflict, InvalidField, NotFound
from services.matrixctl.commands.options import DEFAULT_STATE, State, reach
from services.matrixctl.output.screen import say

domain_app = typer.Typer(
    help="Close a cabinet or a supernode for newcomers, or open it again. What runs there continues.",
    no_args_is_help=True,
)
supernode_app = typer.Typer(help="Add a supernode to the machine, or take one out.", no_args_is_help=True)
npu_app = typer.Typer(help="Revoke what faults have done to an NPU.", no_args_is_help=True)

Domain = Annotated[str, typer.Argument(help="A cabinet (sn0-c03) or a supernode (sn0).")]
Reason = Annotated[str, typer.Option(help="Why; it is shown with the domain.")]
SupernodeWord = Annotated[str, typer.Argument(help="sn0, sn1 and so on.")]


@domain_app.command("close")
def domain_close(
    name: Domain,
    drain: Annotated[bool, typer.Option("--drain", help="Whoever lies there is to leave; nobody is moved.")] = False,
    reason: Reason = "",
    state: State = DEFAULT_STATE,
) -> None:
    """Take nothing new there, and say who still lies there."""
    params = {"drain": "true"} if drain else None
    view = reach(state).call("resource", "POST", f"/v1/domains/{name}:close", body={"reason": reason}, params=params)
    current = view.get("allocations", [])
    lying = f"there still lie {', '.join(current)}" if current else "nothing lies there"
    say(f"{name} is {view['state']}; {lying}")


@domain_app.command("open")
def domain_open(name: Domain, reason: Reason = "", state: State = DEFAULT_STATE) -> None:
    """Take newcomers there again."""
    view = reach(state).call("resource", "POST", f"/v1/domains/{name}:open", body={"reason": reason})
    say(f"{name} is {view['state']}")


@supernode_app.command("add")
def supernode_add(
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
    state: State = DEFAULT_STATE,
) -> None:
    """Have a supernode in the inventory and put its emulated cabinets up; its agents make themselves known.

    Emulated cabinets have the shape that the agents' process was started with: one with numbers of its own (-f) is
    taken into the inventory alone. With --file it is wired as that graph says; a supernode that exists is drawn anew.

        matrixctl topology export sn0 > drawn.json      a graph to begin with
        matrixctl supernode add sn1 --file drawn.json   one more, wired so
        matrixctl supernode add sn0 --file drawn.json   the same cabinets, other cables: one version on
    """
    import yaml

    if spec is not None and not spec.exists():
        raise InvalidField(f"there is no file {spec}", field="--filename")
    body = {"spec": yaml.safe_load(spec.read_text(encoding="utf-8"))} if spec else {}
    if file is not None:
        from matrixresource.topology.graph_document import packed, read_file

        body["graph"] = packed(read_file(file))
    view = reach(state).call("resource", "PUT", f"/v1/supernodes/{name}", body=body)
    up = hardware and spec is None
    if up:
        reach(state).call("agents", "PUT", f"/v1/supernodes/{name}")
    waits = "they come up one after another" if up else "they wait for their hardware"
    say(f"{name} has {view['nodes']} nodes and {view['npus']} NPUs; {waits}")


@supernode_app.command("remove")
def supernode_remove(name: SupernodeWord, state: State = DEFAULT_STATE) -> None:
    """Take a supernode out of the inventory, refused while anything is held there, and its emulated cabinets down."""
    reach(state).call("resource", "DELETE", f"/v1/supernodes/{name}")
    try:
        reach(state).call("agents", "DELETE", f"/v1/supernodes/{name}")
        left = "its cabinets are down"
    except (Conflict, NotFound) as kept:
        left = f"no cabinets were taken down: {kept.message}"
    say(f"{name} is out of the inventory; {left}")


@npu_app.command("release")
def npu_release(
    name: Annotated[str, typer.Argument(help="An NPU (sn0-c03-n2-npu5).")], state: State = DEFAULT_STATE
) -> None:
    """Revoke that frequent faults separated an NPU; a fault that is there still keeps it out."""
    view = reach(state).call("resource", "POST", f"/v1/npus/{name}:release")
    left = ", ".join(fault["code"] for fault in view.get("faults", []))
    say(f"{name} is {view['health']}{f'; it still has {left}' if left else ''}")


def register(app: typer.Typer) -> None:
    app.add_typer(domain_app, name="domain")
    app.add_typer(supernode_app, name="supernode")
    app.add_typer(npu_app, name="npu")
