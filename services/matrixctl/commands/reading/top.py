"""top: how full the machine is, and what moves over the fabric."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import OnStack, Output, printed
from services.matrixctl.output.columns import listing
from services.matrixctl.output.screen import Form, console, say, table
from services.matrixctl.output.waiting import PATIENCE_WALL_S

group("top", "How full the machine is, and what moves over the fabric.")

DRAWN_WIDTH_MAX = 200
"""Columns of the machine on one screen, where no terminal says how wide that is."""

Once = Annotated[bool, typer.Option("--once", "-1", help="Print it once and end, also on a terminal.")]

Ascii = Annotated[bool, typer.Option("--ascii", help="Nothing but ASCII (default: where the terminal needs it).")]
Light = Annotated[bool, typer.Option("--light", help="For a light background (default: as COLORFGBG says).")]


@command("top")
def top(
    stack: OnStack,
    once: Once = False,
    ascii: Ascii = False,
    light: Light = False,
) -> None:
    """The machine on one screen: every NPU and who holds it, instances, busiest links, events.

    Read-only, read again every two seconds; `?` shows the keys. Where standard output is no terminal it is printed
    once. `top capacity`, `top links`, `top slices` and `top fabric` print tables of figures.
    """
    from services.matrixctl.top.drawing import ascii_only, is_light
    from services.matrixctl.top.drawing import once as drawn
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
def top_capacity(stack: OnStack, output: Output = Form.TABLE) -> None:
    """What is free and held in each cabinet, and the largest blocks there are."""
    view = stack.client.call("resource", "GET", "/v1/capacity")
    if printed(view, output):
        return
    largest, scattered = view["largestBlock"], view["fragmentation"]
    say(
        f"{view['nodesFree']} of {view['nodes']} nodes free ({view['npusFree']:g} NPUs), "
        f"{view['utilisation']:.0%} of the NPUs in use, {view['spares']} spares"
    )
    say(
        f"largest block: {largest['cabinet']} nodes in a cabinet, {largest['supernode']} in a supernode; "
        f"fragmentation {scattered['cabinet']:.0%} and {scattered['supernode']:.0%}"
    )
    domains = [*view["cabinets"], *(view["supernodes"] if output is Form.WIDE else [])]
    listing(
        "domain, state, nodes, up, free, allocated, spares, kept, used, largest block:largestBlock",
        [domain | {"used": f"{domain['utilisation']:.0%}"} for domain in domains],
    )


WATCH_PERIOD_WALL_S = 1.0
RATES = ("sentGbps", "receivedGbps", "droppedGbps", "capacityGbps", "headroomGbps")


@dataclass
class TopOptions(OnStack):
    """Which of the busiest, and how they are shown."""

    number: Annotated[int, typer.Option("--number", "-n", min=1, max=1000, help="How many, the busiest first.")] = 20
    order_by: Annotated[str | None, typer.Option(help="e.g. 'droppedGbps desc'; by default the busiest.")] = None
    filter: Annotated[str | None, typer.Option(help="e.g. 'plane=rdma'")] = None
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on and print it anew when it changes.")] = False
    output: Output = Form.TABLE


@command("top links")
def top_links(top: TopOptions) -> None:
    """The busiest links: GB/s each way, what is dropped, what could still be promised, and latency from probes."""
    _top("link", top)


@command("top slices")
def top_slices(top: TopOptions) -> None:
    """The busiest slices: what their members send together, of what they may use."""
    _top("slice", top)


@command("top fabric")
def top_fabric(
    top: TopOptions, by: Annotated[str, typer.Argument(help="plane, switch, node or project")] = "plane"
) -> None:
    """The same added up by plane, switch, node or project."""
    _top(by, top)


def _top(by: str, top: TopOptions) -> None:
    params: dict[str, Any] = {"by": by, "top": top.number}
    params |= {key: value for key, value in (("orderBy", top.order_by), ("filter", top.filter)) if value}
    seen = None
    if top.watch:
        top.client.patience_wall_s = PATIENCE_WALL_S  # a service that is started again ends no watch
    while True:
        view = top.client.call("link", "GET", "/v1/telemetry", params=params)
        if view["resourceVersion"] != seen:
            seen = view["resourceVersion"]
            _print(view, top.output)
        if not top.watch:
            return
        time.sleep(WATCH_PERIOD_WALL_S)


def _print(view: dict[str, Any], form: Form) -> None:
    if printed(view, form):
        return
    if not view["items"]:
        say("nothing moves; `matrixctl traffic put` offers a load")
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
