"""top: how full the machine is, and what moves over the fabric."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from services.matrixctl.commands.options import DEFAULT_STATE, Output, State, printed, reach
from services.matrixctl.output.screen import Form, say, table

top_app = typer.Typer(help="How full the machine is.", no_args_is_help=True)


@top_app.command("capacity")
def top_capacity(output: Output = Form.TABLE, state: State = DEFAULT_STATE) -> None:
    """What is free and held in each cabinet, and the largest blocks there are."""
    view = reach(state).call("resource", "GET", "/v1/capacity")
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
    columns = ["nodes", "up", "free", "allocated", "spares", "kept"]
    rows = [
        [
            domain["domain"],
            domain["state"],
            *(domain[each] for each in columns),
            f"{domain['utilisation']:.0%}",
            domain["largestBlock"],
        ]
        for domain in [*view["cabinets"], *(view["supernodes"] if output is Form.WIDE else [])]
    ]
    table(["domain", "state", *columns, "used", "largest block"], rows)


Number = Annotated[int, typer.Option("--number", "-n", min=1, max=1000, help="How many, the busiest first.")]
Order = Annotated[str | None, typer.Option("--order-by", help="e.g. 'droppedGbps desc'; by default the busiest.")]
Filter = Annotated[str | None, typer.Option(help="e.g. 'plane=rdma'")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on and print it anew when it changes.")]
WATCH_PERIOD_WALL_S = 1.0
RATES = ("sentGbps", "receivedGbps", "droppedGbps", "capacityGbps", "headroomGbps")


@top_app.command("links")
def top_links(
    number: Number = 20, order_by: Order = None, filter: Filter = None, watch: Watch = False,
    output: Output = Form.TABLE, state: State = DEFAULT_STATE,
) -> None:  # fmt: skip
    """The busiest links: GB/s each way, what is dropped, what could still be promised, and latency from probes."""
    _top("link", number, order_by, filter, watch, output, state)


@top_app.command("slices")
def top_slices(
    number: Number = 20, order_by: Order = None, filter: Filter = None, watch: Watch = False,
    output: Output = Form.TABLE, state: State = DEFAULT_STATE,
) -> None:  # fmt: skip
    """The busiest slices: what their members send together, of what they may use."""
    _top("slice", number, order_by, filter, watch, output, state)


@top_app.command("fabric")
def top_fabric(
    by: Annotated[str, typer.Argument(help="plane, switch, node or project")] = "plane",
    number: Number = 20, order_by: Order = None, filter: Filter = None, watch: Watch = False,
    output: Output = Form.TABLE, state: State = DEFAULT_STATE,
) -> None:  # fmt: skip
    """The same added up by plane, switch, node or project."""
    _top(by, number, order_by, filter, watch, output, state)


def _top(by: str, number: int, order: str | None, filter: str | None, watch: bool, form: Form, state: Path) -> None:
    client = reach(state)
    params: dict[str, Any] = {"by": by, "top": number}
    params |= {key: value for key, value in (("orderBy", order), ("filter", filter)) if value}
    seen = None
    while True:
        view = client.call("link", "GET", "/v1/telemetry", params=params)
        if view["resourceVersion"] != seen:
            seen = view["resourceVersion"]
            _print(view, form)
        if not watch:
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


def register(app: typer.Typer) -> None:
    app.add_typer(top_app, name="top")
