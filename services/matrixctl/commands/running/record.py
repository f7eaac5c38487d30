"""record and replay: what was asked of a stack, asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import duration_text
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import OnStack
from services.matrixctl.output.screen import EXIT_REFUSED, say

group("record", "Write down what users ask of a running stack, to replay it.")


@command("record start")
def record_start(stack: OnStack) -> None:
    """Begin to record: a snapshot now, and from it on every request of users to a service or to Kubernetes."""
    from services.matrixctl.snapshots.recorder import start

    taken = start(stack.folder)
    say(f"recording, after {taken.stopped_wall_s:.2f} s at a standstill; `matrixctl record stop FILE` ends it")


@command("record stop")
def record_stop(
    stack: OnStack, file: Annotated[Path, typer.Argument(metavar="FILE", help="The recording to write.")]
) -> None:
    """Write the recording: its beginning, what was asked and what happened. Only its owner may read it."""
    from services.matrixctl.snapshots.recorder import stop

    target = file.expanduser().absolute()
    if not target.parent.is_dir():
        raise InvalidField(f"there is no folder {target.parent}", field="FILE")
    recording = stop(stack.folder, target)
    say(
        f"{file}: {len(recording.actions)} requests and {len(recording.events)} events in "
        f"{duration_text(recording.about.length_s)} of emulated time"
    )


@command("replay")
def replay(file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording.")]) -> None:
    """Ask again what was recorded, in this process and in virtual time, and compare what happens.

    Exit code 0 where the same happened; 1 with the first difference. A recording of a test in virtual time is compared
    event by event; one of a running stack by the states of each instance, allocation, slice and deployment.
    """
    from services.recordings.recording import read
    from services.testing.replaying import replayed

    recording = read(file)
    difference = replayed(file)
    if difference is not None:
        say(f"[red]another course of events[/]\n{difference}")
        raise typer.Exit(EXIT_REFUSED)
    kind = "the same events, each at the same moment" if recording.about.exact else "each object in the same states"
    say(
        f"{kind}: {len(recording.actions)} requests, {len(recording.events)} events, "
        f"{duration_text(recording.about.length_s)} of emulated time"
    )
