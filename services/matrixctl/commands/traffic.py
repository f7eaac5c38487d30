"""traffic: load on the emulated ports, as a workload would put it there."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from matrixcommon.api.client import at
from services.matrixctl.commands.options import DEFAULT_STATE, Output, Project, State, printed, reach
from services.matrixctl.output.screen import Form, say, table

traffic_app = typer.Typer(help="Load on the emulated ports: what workloads send.", no_args_is_help=True)


@traffic_app.command("put")
def traffic_put(
    name: Annotated[str, typer.Argument(help="A name for this load.")],
    gbps: Annotated[float, typer.Option(help="GB/s that every NPU of every member offers.")],
    slice: Annotated[str | None, typer.Option(help="The slice it goes over.")] = None,
    instance: Annotated[str | None, typer.Option(help="Or the instance, on a plane.")] = None,
    plane: Annotated[str, typer.Option(help="ub, rdma or vpc, with --instance.")] = "ub",
    pattern: Annotated[str, typer.Option(help="all-to-all, permutation, ring or incast.")] = "all-to-all",
    target: Annotated[str | None, typer.Option(help="The node that an incast goes to.")] = None,
    project: Project = None,
    state: State = DEFAULT_STATE,
) -> None:
    """Put a load on the members of a slice, or change it."""
    body: dict[str, Any] = {"gbpsPerNpu": gbps, "pattern": pattern, "plane": plane}
    body |= {key: value for key, value in (("slice", slice), ("instance", instance), ("target", target)) if value}
    view = reach(state, project).call("agents", "PUT", at("traffic", name), body=body)
    say(
        f"{view['members']} members offer {view['offeredGbps']:,.0f} GB/s; {view['sentGbps']:,.0f} get through"
        + (f", {view['droppedGbps']:,.1f} are dropped" if view["droppedGbps"] else "")
    )


@traffic_app.command("list")
def traffic_list(project: Project = None, output: Output = Form.TABLE, state: State = DEFAULT_STATE) -> None:
    """The loads there are, and what of each gets through."""
    items = reach(state, project).list("agents", "/v1/traffic")
    if printed({"items": items}, output):
        return
    rows = [
        [
            item["name"], item["load"]["pattern"], ",".join(item["slices"]) or "-", item["members"],
            f"{item['offeredGbps']:,.1f}", f"{item['sentGbps']:,.1f}", f"{item['droppedGbps']:,.1f}",
        ]
        for item in items
    ]  # fmt: skip
    table(["name", "pattern", "slices", "members", "offered GB/s", "sent", "dropped"], rows)


@traffic_app.command("remove")
def traffic_remove(
    name: Annotated[str, typer.Argument(help="Which one.")],
    project: Project = None,
    state: State = DEFAULT_STATE,
) -> None:
    """Take a load away."""
    reach(state, project).call("agents", "DELETE", at("traffic", name))
    say(f"load {name} removed")


def register(app: typer.Typer) -> None:
    app.add_typer(traffic_app, name="traffic")
