"""demo: the main job and autoscaling, each reported as a story."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from services.matrixctl.commands.options import DEFAULT_STATE, State


class StoryName(StrEnum):
    """Which story."""

    FAILOVER = "failover"
    AUTOSCALE = "autoscale"


def demo(
    story: Annotated[StoryName, typer.Argument(help="Which story to tell.")] = StoryName.FAILOVER,
    state: State = DEFAULT_STATE / "demo",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running at the end.")] = False,
) -> None:
    """A story on a stack of its own, ended with exit code 0 only when every step held.

    failover: apply, serve, lose a node, heal, cut cables, scale, delete, nothing left. autoscale: load triples and
    falls, nodes follow, no request is lost.
    """
    from services.matrixctl.demo.run import run_demo
    from services.matrixctl.demo.stories import STORIES

    raise typer.Exit(run_demo(STORIES[story], state, keep))


def register(app: typer.Typer) -> None:
    app.command()(demo)
