"""demo: failover and autoscaling, each as a scripted demo."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from services.matrixctl.commands.command import command
from services.matrixctl.commands.options import DEFAULT_STATE, State


@command("demo")
def demo(
    story: Annotated[Literal["failover", "autoscale"], typer.Argument(help="Which demo to run.")] = "failover",
    state: State = DEFAULT_STATE / "demo",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running.")] = False,
) -> None:
    """Run a scripted demo on a stack of its own; exit code 0 only if every step succeeded.

    failover: apply, serve, lose a node, heal, cut cables, scale, delete, leave nothing behind. autoscale: the load
    triples and falls, nodes follow, no request is lost.
    """
    from services.matrixctl.demo.run import DEMOS, run_demo

    raise typer.Exit(run_demo(DEMOS[story], state, keep))
