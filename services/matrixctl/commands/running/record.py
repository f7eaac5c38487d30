"""record and replay: what was asked of a stack, asked again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import counted, duration_text
from matrixcommon.model.resource_model import build_all
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import OnStack
from services.matrixctl.output.screen import EXIT_REFUSED, progress, say, text

if TYPE_CHECKING:
    from services.recordings.comparison import Difference
    from services.recordings.recording import Recording

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
        f"{file}: {counted(len(recording.actions), 'request')} and {counted(len(recording.events), 'event')} in "
        f"{duration_text(recording.about.length_s)} of emulated time"
    )


@command("replay")
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording.")],
    state: Annotated[
        Path | None,
        typer.Option("--state", help="Replay on real processes, in this folder: a new one, or an empty stack's."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="With --state: leave the stack running.")] = False,
) -> None:
    """Ask again what was recorded, in this process and in virtual time, and compare what happens.

    Exit code 0 where the same happened; 1 with the first difference. A recording of a test in virtual time is compared
    event by event; one of a running stack by the states of each instance, allocation, slice and deployment.

    With --state it is asked of a stack of real processes, which begins as the recording did, and takes as long as the
    recording. Always compared by states; ends with the first difference, or where a process ends.
    """
    from services.recordings.recording import read

    if keep and state is None:
        raise InvalidField("what runs in this process ends with it: add --state", field="--keep")
    recording = read(file)
    if state is None:
        build_all()  # the services of the replay are built in this process
        from services.testing.replaying import replayed

        difference, when = replayed(file), ""
    else:
        difference, when = _on_processes(file, state, recording, keep)
    if difference is not None:
        say(f"[red]another course of events{when}[/]\n{text(difference)}")
        raise typer.Exit(EXIT_REFUSED)
    exact = recording.about.exact and state is None
    kind = "the same events, each at the same moment" if exact else "each object in the same states"
    say(
        f"{kind}: {counted(len(recording.actions), 'request')}, {counted(len(recording.events), 'event')}, "
        f"{duration_text(recording.about.length_s)} of emulated time"
    )


def _on_processes(file: Path, state: Path, recording: Recording, keep: bool) -> tuple[Difference | None, str]:
    """The first difference, and when it was seen."""
    from services.matrixctl.replays.on_processes import replay
    from services.matrixctl.supervisor.state_folder import Folder

    length_s = recording.about.length_s
    with progress() as bar:

        def tell(at_s: float, asked: str) -> None:
            if bar is not None:
                bar(round(min(at_s, length_s)), round(length_s), asked or "emulated seconds")
            elif asked:
                say(f"  {duration_text(at_s):>8}  {text(asked)}")

        outcome = replay(file, Folder(state), tell, keep)
    if keep:
        say(f"the stack runs on; `matrixctl down --state {state}` ends it")
    return outcome.difference, f", seen after {duration_text(outcome.at_s)}"
