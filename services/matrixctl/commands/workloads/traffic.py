"""traffic: offer load on the emulated ports, like a workload."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from matrixcommon.api.client import resource_path
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import Output, ProjectOptions, print_for_programs
from services.matrixctl.output.columns import print_table
from services.matrixctl.output.screen import OutputFormat, echo

group("traffic", "Load on the emulated ports, as workloads send it.")


@command("traffic put")
def traffic_put(
    stack: ProjectOptions,
    name: Annotated[str, typer.Argument(help="Name of the load.")],
    gbps: Annotated[float, typer.Option(help="GB/s offered by every NPU of every member.")],
    slice: Annotated[str | None, typer.Option(help="Slice to send on.")] = None,
    instance: Annotated[str | None, typer.Option(help="Or an instance, with --plane.")] = None,
    plane: Annotated[str, typer.Option(help="ub, rdma or vpc, with --instance.")] = "ub",
    pattern: Annotated[str, typer.Option(help="all-to-all, permutation, ring, incast or pull.")] = "all-to-all",
    target: Annotated[str | None, typer.Option(help="Destination node of an incast.")] = None,
    targets: Annotated[list[str] | None, typer.Option("--to", help="Destination node of a pull; repeatable.")] = None,
) -> None:
    """Offer a load on the members of a slice, or change it."""
    body: dict[str, Any] = {"gbpsPerNpu": gbps, "pattern": pattern, "plane": plane}
    body |= {key: value for key, value in (("slice", slice), ("instance", instance), ("target", target)) if value}
    body |= {"targets": targets} if targets else {}
    view = stack.client.call("agents", "PUT", resource_path("traffic", name), body=body)
    if not view["members"]:
        of = f"instance {instance!r} on {plane}" if instance else f"slice {slice!r}"
        return echo(f"no member of {of} can send yet; the load starts when one can (`matrixctl get slices`)")
    echo(
        f"{view['members']} members offer {view['offeredGbps']:,.0f} GB/s; {view['sentGbps']:,.0f} get through"
        + (f", {view['droppedGbps']:,.1f} are dropped" if view["droppedGbps"] else "")
    )


@command("traffic list")
def traffic_list(stack: ProjectOptions, output: Output = OutputFormat.TABLE) -> None:
    """List the loads, and how much of each gets through."""
    items = stack.client.list("agents", "/v1/traffic")
    if print_for_programs({"items": items}, output):
        return
    print_table(
        "name, pattern:load.pattern, slices, members, offered GB/s:offeredGbps, sent:sentGbps, dropped:droppedGbps",
        items,
    )


@command("traffic remove")
def traffic_remove(stack: ProjectOptions, name: Annotated[str, typer.Argument(help="Name of the load.")]) -> None:
    """Remove a load."""
    stack.client.call("agents", "DELETE", resource_path("traffic", name))
    echo(f"load {name} removed")
