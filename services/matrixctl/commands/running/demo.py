"""demo: the main job and autoscaling, each told as a story."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from services.matrixctl.commands.command import command
from services.matrixctl.commands.options import DEFAULT_STATE, State


@command("demo")
def demo(
    story: Annotated[Literal["failover", "autoscale"], typer.Argument(help="Which story to tell.")] = "failover",
    state: State = DEFAULT_STATE / "demo",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running at the end.")] = False,
) -> None:
    """A story on a stack of its own, ended with exit code 0 only when every step held.

    failover: apply, serve, lose a node, heal, cut cables, scale, delete, nothing left. autoscale: load triples and
    falls, nodes follow, no request is lost.
    """
    from services.matrixctl.demo.run import STORIES, run_demo

    raise typer.Exit(run_demo(STORIES[story], state, keep))
