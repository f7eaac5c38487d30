"""what-if and drain: what a failure of the fabric would break, and links or switches taken out of use."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from services.matrixctl.commands.options import DEFAULT_STATE, Output, Project, State, printed, reach
from services.matrixctl.output.screen import EXIT_REFUSED, Form, say, table

drain_app = typer.Typer(
    help="Take links or switches out of use for maintenance, make before break, or put them back.",
    no_args_is_help=True,
)

Parts = list[str] | None
Name = Annotated[str, typer.Argument(help="The drain's name.")]


def what_if(
    fail: Annotated[Parts, typer.Option(help="A link, switch, node, cabinet, sub-plane or plane that fails.")] = None,
    drain: Annotated[Parts, typer.Option(help="One that is drained.")] = None,
    repair: Annotated[Parts, typer.Option(help="One that is whole and in use again.")] = None,
    project: Project = None,
    output: Output = Form.TABLE,
    state: State = DEFAULT_STATE,
) -> None:
    """Say which floors and routes a failure, a drain or a repair would change; nothing changes. Exit code 1 where a
    floor would break.

        --fail sn0-l2p3-k11                     an L2 chip
        --fail sn0-c03 --drain sn0-c05-n1.ub-p2 a cabinet lost while a node's uplinks are drained
        --repair sn0-c00-n0-l1p4                what an L1 chip would give back
    """
    body = {"fail": fail or [], "drain": drain or [], "repair": repair or []}
    answer = reach(state, project).call("link", "POST", "/v1/what-ifs", body=body)
    if not printed(answer, output):
        show(answer)
    if not answer["floorsHold"]:
        raise typer.Exit(EXIT_REFUSED)


def show(answer: dict[str, Any]) -> None:
    """A what-if for people."""
    say("[green]every floor holds[/]" if answer["floorsHold"] else "[red]floors would break[/]")
    keys = ["plane", "portsChanged", "slicesRerouted", "floorsBroken", "floorsBeforeGbps", "floorsAfterGbps"]
    keys += ["pairsCut", "linksOverfull", "protectionsLost"]
    titles = ["plane", "ports", "rerouted", "broken", "floors before", "after", "pairs cut", "overfull", "unprotected"]
    table(titles, [[plane[key] for key in keys] for plane in answer["planes"]])
    rows = [
        [
            each["slice"], each["plane"], each["qosClass"], f"{each['keptBeforeGbpsPerNpu']:g}",
            f"{each['keptAfterGbpsPerNpu']:g}", "yes" if each["rerouted"] else "-", each["pairsCut"],
            each["protectionLost"] or "-",
        ]
        for each in answer["slices"]
    ]  # fmt: skip
    if rows:
        table(["slice", "plane", "class", "GB/s per NPU", "after", "rerouted", "pairs cut", "protection lost"], rows)
    else:
        say("no slice is concerned")


@drain_app.command("put")
def put(
    name: Name,
    elements: Annotated[list[str], typer.Argument(help="Links, switches, a node's uplinks (sn0-c03-n2.ub-p3) ...")],
    reason: Annotated[str, typer.Option(help="Why; it is shown with the drain.")] = "",
    even_if_floors_break: Annotated[
        bool, typer.Option("--even-if-floors-break", help="Also where slices get less than they were promised.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would become of the slices.")] = False,
    state: State = DEFAULT_STATE,
) -> None:
    """Take elements out of use: routes leave them first. Refused where a floor would break."""
    body = {"elements": elements, "reason": reason, "evenIfFloorsBreak": even_if_floors_break}
    params = {"validateOnly": "true"} if dry_run else None
    view = reach(state).call("link", "PUT", f"/v1/drains/{name}", body=body, params=params)
    if view.get("whatIf"):
        show(view["whatIf"])
        return
    say(f"{name} is {view['state']}: {view['ports']} ports; {view['message']}")


@drain_app.command("delete")
def delete(name: Name, state: State = DEFAULT_STATE) -> None:
    """Put a drain's elements back in service."""
    reach(state).call("link", "DELETE", f"/v1/drains/{name}")
    say(f"{name} is gone; its elements are in service again")


def register(app: typer.Typer) -> None:
    app.command("what-if")(what_if)
    app.add_typer(drain_app, name="drain")
