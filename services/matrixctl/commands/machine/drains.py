"""what-if and drain: predict what a fabric failure would break, and take links or switches out of service."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import names_of
from services.matrixctl.commands.options import Output, ProjectOptions, StackOptions, print_for_programs
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.screen import EXIT_REFUSED, OutputFormat, echo

group("drain", "Take links or switches out of service for maintenance, make before break, or put them back.")

Parts = list[str] | None
Name = Annotated[str, typer.Argument(help="The drain's name.", autocompletion=names_of("drains"))]


@command("what-if")
def what_if(
    stack: ProjectOptions,
    fail: Annotated[
        Parts, typer.Option(help="Link, switch, node, cabinet, sub-plane or plane to assume failed.")
    ] = None,
    drain: Annotated[Parts, typer.Option(help="One to assume drained.")] = None,
    repair: Annotated[Parts, typer.Option(help="One to assume repaired and in use.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show which floors and routes a failure, a drain or a repair would change, without changing anything. Exit code 1
    if a floor would break.
    """
    body = {"fail": fail or [], "drain": drain or [], "repair": repair or []}
    answer = stack.client.call("link", "POST", "/v1/what-ifs", body=body)
    if not print_for_programs(answer, output):
        show(answer)
    if not answer["floorsHold"]:
        raise typer.Exit(EXIT_REFUSED)


def show(answer: dict[str, Any]) -> None:
    """Print the answer of a what-if."""
    echo("[green]every floor holds[/]" if answer["floorsHold"] else "[red]floors would break[/]")
    print_table(
        "plane, ports:portsChanged, rerouted:slicesRerouted, broken:floorsBroken, floors before:floorsBeforeGbps, "
        "after:floorsAfterGbps, pairs cut:pairsCut, overfull:linksOverfull, unprotected:protectionsLost",
        answer["planes"],
    )
    if answer["slices"]:
        print_table(
            "slice, plane, class:qosClass, GB/s per NPU:keptBeforeGbpsPerNpu, after:keptAfterGbpsPerNpu, rerouted, "
            "pairs cut:pairsCut, protection lost:protectionLost",
            answer["slices"],
        )
    else:
        echo("no slice is affected")


@command("drain put")
def put(
    stack: StackOptions,
    name: Name,
    elements: Annotated[list[str], typer.Argument(help="Links, switches, a node's uplinks (sn0-c03-n2.ub-p3), ...")],
    reason: Annotated[str, typer.Option(help="Reason; shown with the drain.")] = "",
    even_if_floors_break: Annotated[
        bool, typer.Option("--even-if-floors-break", help="Drain even if slices lose guaranteed bandwidth.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would happen to the slices.")] = False,
) -> None:
    """Take elements out of service: routes are moved off them first. Refused if a floor would break."""
    body = {"elements": elements, "reason": reason, "evenIfFloorsBreak": even_if_floors_break}
    params = {"validateOnly": "true"} if dry_run else None
    view = stack.client.call("link", "PUT", resource_path("drains", name), body=body, params=params)
    if view.get("whatIf"):
        show(view["whatIf"])
        return
    echo(f"{name} is {view['state']}: {view['ports']} ports; {view['message']}")


@command("drain delete")
def delete(stack: StackOptions, name: Name) -> None:
    """Delete a drain, which puts its elements back in service."""
    stack.client.call("link", "DELETE", resource_path("drains", name))
    echo(f"{name} is gone; its elements are in service again")
