"""top: utilisation of the machine, and traffic on the fabric."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import Output, StackOptions, print_for_programs
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.screen import OutputFormat, console, echo, table
from services.matrixctl.output.waiting import TIMEOUT_WALL_S

group("top", "Show utilisation of the machine and traffic on the fabric.")

DRAWN_WIDTH_MAX = 200
"""Width in columns if standard output is no terminal."""

Once = Annotated[bool, typer.Option("--once", "-1", help="Print once and exit, also on a terminal.")]

Ascii = Annotated[bool, typer.Option("--ascii", help="Use only ASCII (default: if the terminal needs it).")]
Light = Annotated[bool, typer.Option("--light", help="Colours for a light background (default: by COLORFGBG).")]


@command("top")
def top(
    stack: StackOptions,
    once: Once = False,
    ascii: Ascii = False,
    light: Light = False,
) -> None:
    """Show the machine on one screen: every NPU and its holder, instances, busiest links, events.

    Read-only, refreshed every two seconds; `?` shows the keys. If standard output is no terminal, it is printed once.
    `top capacity`, `top links`, `top slices` and `top fabric` print tables of figures.
    """
    from services.matrixctl.top.drawing import ascii_only, is_light
    from services.matrixctl.top.drawing import render_once as drawn
    from services.matrixctl.top.source import StackSource

    source = StackSource(stack.client)
    ascii = ascii or ascii_only()
    if once or not sys.stdout.isatty():
        screen = console()
        for line in drawn(source.read(), min(screen.width, DRAWN_WIDTH_MAX), ascii):
            screen.print(line, no_wrap=True, overflow="crop")
        return
    from services.matrixctl.top.screen import TopApp  # only here: Textual takes a while to import

    TopApp(source, ascii, light or is_light()).run()


@command("top capacity")
def top_capacity(stack: StackOptions, output: Output = OutputFormat.TABLE) -> None:
    """Show what is free and held in each cabinet, and the largest free blocks."""
    view = stack.client.call("resource", "GET", "/v1/capacity")
    if print_for_programs(view, output):
        return
    largest, scattered = view["largestBlock"], view["fragmentation"]
    echo(
        f"{view['nodesFree']} of {view['nodes']} nodes free ({view['npusFree']:g} NPUs), "
        f"{view['utilisation']:.0%} of the NPUs in use, {view['spares']} spares"
    )
    echo(
        f"largest block: {largest['cabinet']} nodes in a cabinet, {largest['supernode']} in a supernode; "
        f"fragmentation {scattered['cabinet']:.0%} and {scattered['supernode']:.0%}"
    )
    domains = [*view["cabinets"], *(view["supernodes"] if output is OutputFormat.WIDE else [])]
    print_table(
        "domain, state, nodes, up, free, allocated, spares, kept, used, largest block:largestBlock",
        [domain | {"used": f"{domain['utilisation']:.0%}"} for domain in domains],
    )


WATCH_PERIOD_WALL_S = 1.0
RATES = ("sentGbps", "receivedGbps", "droppedGbps", "capacityGbps", "headroomGbps")


@dataclass
class TopOptions(StackOptions):
    """Selection, order and format of the busiest."""

    number: Annotated[
        int, typer.Option("--number", "-n", min=1, max=1000, help="Number of rows, the busiest first.")
    ] = 20
    order_by: Annotated[str | None, typer.Option(help="e.g. 'droppedGbps desc' (default: the busiest first).")] = None
    filter: Annotated[str | None, typer.Option(help="e.g. 'plane=rdma'")] = None
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep running and print again on changes.")] = False
    output: Output = OutputFormat.TABLE


@command("top links")
def top_links(top: TopOptions) -> None:
    """Show the busiest links: GB/s each way, drops, bandwidth that could still be guaranteed, and latency from
    probes."""
    _top("link", top)


@command("top slices")
def top_slices(top: TopOptions) -> None:
    """Show the busiest slices: what their members send in total, and how much they may use."""
    _top("slice", top)


@command("top fabric")
def top_fabric(
    top: TopOptions, by: Annotated[str, typer.Argument(help="plane, switch, node or project")] = "plane"
) -> None:
    """Show traffic totals by plane, switch, node or project."""
    _top(by, top)


def _top(by: str, top: TopOptions) -> None:
    params: dict[str, Any] = {"by": by, "top": top.number}
    params |= {key: value for key, value in (("orderBy", top.order_by), ("filter", top.filter)) if value}
    seen = None
    if top.watch:
        top.client.timeout_wall_s = TIMEOUT_WALL_S  # a restarted service must not end the watch
    while True:
        view = top.client.call("link", "GET", "/v1/telemetry", params=params)
        if view["resourceVersion"] != seen:
            seen = view["resourceVersion"]
            _print(view, top.output)
        if not top.watch:
            return
        time.sleep(WATCH_PERIOD_WALL_S)


def _print(view: dict[str, Any], form: OutputFormat) -> None:
    if print_for_programs(view, form):
        return
    if not view["items"]:
        echo("there is no traffic; `matrixctl traffic put` offers a load")
        return
    rows = [
        [
            item["name"],
            item.get("plane", "-"),
            *(f"{item[each]:,.2f}" for each in RATES),
            "-" if "utilisation" not in item else f"{item['utilisation']:.0%}",
            "-" if "latencyUs" not in item else f"{item['latencyUs']:g}",
        ]
        for item in view["items"]
    ]
    table([view["by"], "plane", "sent GB/s", "received", "dropped", "capacity", "headroom", "used", "latency us"], rows)
