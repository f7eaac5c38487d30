"""defrag: make room by moving allocations, as a plan that is reviewed first."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.help.completion import names_of
from services.matrixctl.commands.options import Output, StackOptions, print_for_programs
from services.matrixctl.commands.reading.get import show
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.resource_kinds import find_kind
from services.matrixctl.output.screen import EXIT_REFUSED, OutputFormat, echo
from services.matrixctl.output.waiting import Progress, wait_for_state

FINAL_STATES = ("Done", "Cancelled", "Failed", "Stale")
COLLECTION = "defragmentations"

group(
    "defrag",
    "Make room for a block by moving allocations, member by member. Nothing moves before the plan is approved.",
)

Name = Annotated[str, typer.Argument(help="The plan's name.", autocompletion=names_of("defragmentations"))]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is over; exit code 1 unless it ended as requested.")]


@command("defrag plan")
def plan(
    stack: StackOptions,
    nodes: Annotated[int, typer.Option(min=1, help="Size of the block in whole nodes, eight NPUs each.")],
    level: Annotated[str, typer.Option(help="Domain that the block must fit into: cabinet or supernode.")] = "cabinet",
    name: Annotated[str | None, typer.Option(help="Name of the plan (default: generated).")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Plan which members would have to move, and show the largest block before and after."""
    body = {"nodes": nodes, "level": level} | ({"name": name} if name else {})
    _show(stack.client.call("resource", "POST", f"/v1/{COLLECTION}", body=body), output)


@command("defrag approve")
def approve(stack: StackOptions, name: Name, wait: Wait = False, output: Output = OutputFormat.TABLE) -> None:
    """Approve a plan, which starts it."""
    _post_verb(stack.client, name, "approve", "Done" if wait else "", output)


@command("defrag cancel")
def cancel(stack: StackOptions, name: Name, wait: Wait = False, output: Output = OutputFormat.TABLE) -> None:
    """Stop after the current move; members already moved stay where they are."""
    _post_verb(stack.client, name, "cancel", "Cancelled" if wait else "", output)


@command("defrag get")
def get(
    stack: StackOptions,
    name: Annotated[str | None, typer.Argument(help="Show only this plan, with its moves.")] = None,
    wait: Wait = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show plans, their progress, and what they wait for."""
    client = stack.client
    if name is not None:
        view = (
            _wait_until_done(client, name) if wait else client.call("resource", "GET", resource_path(COLLECTION, name))
        )
        _show(view, output)
        if wait and view["state"] != "Done":
            raise typer.Exit(EXIT_REFUSED)
        return
    if wait:
        raise InvalidField("name the plan to wait for", field="--wait")
    show(find_kind("defragmentations"), client.list("resource", f"/v1/{COLLECTION}"), output, single=False)


def _post_verb(client: Any, name: str, verb: str, wanted: str, output: OutputFormat) -> None:
    view = client.call("resource", "POST", resource_path(COLLECTION, name, f":{verb}"))
    if wanted:
        view = _wait_until_done(client, name)
    _show(view, output)
    if wanted and view["state"] != wanted:
        raise typer.Exit(EXIT_REFUSED)


def _wait_until_done(client: Any, name: str) -> dict[str, Any]:
    """Wait until the plan is over."""
    return wait_for_state(client, "resource", resource_path(COLLECTION, name), FINAL_STATES, _progress)


def _progress(view: dict[str, Any]) -> Progress:
    moved, moves = view["movesDone"], len(view["moves"])
    return Progress(moved, moves, view["message"], f"{moved} of {moves} moved; {view['message']}")


def _show(view: dict[str, Any], output: OutputFormat) -> None:
    if print_for_programs(view, output):
        return
    domain = f"in one {view['level']}" if view["level"] else "in all"
    echo(
        f"{view['name']} is {view['state']}: {view['movesDone']} of {len(view['moves'])} members moved, "
        f"{view['npusMoved']:g} of {view['npus']:g} NPUs; "
        f"the largest block {domain} goes from {view['blockBefore']} to {view['blockAfter']} nodes"
    )
    echo(f"room: {', '.join(view['room'])}")
    print_table("allocation, rank, from, to, npus, by, state", view["moves"])
    stops = "it was cancelled, and stops after this move" if view["cancelling"] else ""
    if texts := [text for text in (view["message"], stops) if text]:
        echo("; ".join(texts))
