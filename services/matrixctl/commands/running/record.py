"""record and replay: record the requests to a stack, and repeat them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import format_duration, pluralized
from matrixcommon.model.resource_model import build_deferred
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import StackOptions
from services.matrixctl.output.screen import EXIT_REFUSED, echo, escape_markup, progress

if TYPE_CHECKING:
    from services.recordings.comparison import Difference
    from services.recordings.recording import Recording

group("record", "Record what users request from a running stack, for `replay`.")


@command("record start")
def record_start(stack: StackOptions) -> None:
    """Start recording: take a snapshot, then record every user request to a service or to Kubernetes."""
    from services.matrixctl.snapshots.recorder import start_recording

    result = start_recording(stack.folder)
    echo(
        f"recording (the stack was stopped for {result.stopped_wall_s:.2f} s); end it with `matrixctl record stop FILE`"
    )


@command("record stop")
def record_stop(
    stack: StackOptions, file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write the recording to.")]
) -> None:
    """Stop recording, and write the snapshot, the requests and the events to a file that only its owner may read."""
    from services.matrixctl.snapshots.recorder import stop_recording

    target = file.expanduser().absolute()
    if not target.parent.is_dir():
        raise InvalidField(f"there is no directory {target.parent}", field="FILE")
    recording = stop_recording(stack.folder, target)
    echo(
        f"{file}: {pluralized(len(recording.actions), 'request')} and {pluralized(len(recording.events), 'event')} in "
        f"{format_duration(recording.about.length_s)} of emulated time"
    )


@command("replay")
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The recording to replay.")],
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", help="Replay on real processes, in this state folder: a new one, or that of an empty stack."
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="With --state: leave the stack running.")] = False,
) -> None:
    """Repeat recorded requests, in this process and in virtual time, and compare what happens.

    Exit code 0 if the same happened, else 1 with the first difference. A recording of a test in virtual time is
    compared event by event; one of a running stack by the states of each instance, allocation, slice and deployment.

    With --state the requests go to a stack of real processes, which starts from the recording's snapshot; this takes as
    long as the recording did. The comparison is always by states; it ends at the first difference or when a process
    dies.
    """
    from services.recordings.recording import read_recording

    if keep and state is None:
        raise InvalidField("a replay in this process leaves no stack to keep; add --state", field="--keep")
    recording = read_recording(file)
    if state is None:
        build_deferred()  # the replay builds the services in this process
        from services.testing.replaying import replay_synchronously

        difference, when = replay_synchronously(file), ""
    else:
        difference, when = _replay_on_processes(file, state, recording, keep)
    if difference is not None:
        echo(f"[red]the replay differs{when}[/]\n{escape_markup(difference)}")
        raise typer.Exit(EXIT_REFUSED)
    exact = recording.about.exact and state is None
    kind = "the same events, each at the same time" if exact else "each object went through the same states"
    echo(
        f"{kind}: {pluralized(len(recording.actions), 'request')}, {pluralized(len(recording.events), 'event')}, "
        f"{format_duration(recording.about.length_s)} of emulated time"
    )


def _replay_on_processes(file: Path, state: Path, recording: Recording, keep: bool) -> tuple[Difference | None, str]:
    """The first difference, and when it was observed."""
    from services.matrixctl.replays.process_replay import replay
    from services.matrixctl.supervisor.state_folder import StateFolder

    length_s = recording.about.length_s
    with progress() as bar:

        def report_progress(at_s: float, asked: str) -> None:
            if bar is not None:
                bar(round(min(at_s, length_s)), round(length_s), asked or "emulated seconds")
            elif asked:
                echo(f"  {format_duration(at_s):>8}  {escape_markup(asked)}")

        outcome = replay(file, StateFolder(state), report_progress, keep)
    if keep:
        echo(f"the stack keeps running; stop it with `matrixctl down --state {state}`")
    return outcome.difference, f", observed after {format_duration(outcome.at_s)}"
