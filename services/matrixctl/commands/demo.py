"""demo: the main job, told as a story."""

from __future__ import annotations

from typing import Annotated

import typer

from services.matrixctl.commands.options import DEFAULT_STATE, State


def demo(
    state: State = DEFAULT_STATE / "demo",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running at the end.")] = False,
) -> None:
    """The whole chain in a minute: apply, serve, lose a node, heal, cut cables, scale, delete, nothing left."""
    from services.matrixctl.demo.run import run_demo

    raise typer.Exit(run_demo(state, keep))


def register(app: typer.Typer) -> None:
    app.command()(demo)
