"""clock: show and control the emulated time of a running stack. Its speed can change; it never jumps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.quantities import TIMESTAMP_MAX_S, timestamp
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import (
    Output,
    StackOptions,
    parse_duration_s,
    parse_instant_s,
    print_for_programs,
)
from services.matrixctl.output.screen import OutputFormat, echo, progress

if TYPE_CHECKING:
    from matrixcommon.model.timeline import Timeline

group("clock", "Show and control the emulated time of a running stack. Its speed can change; it never jumps.")

FAST = 600.0
POLL_PERIOD_WALL_S = 0.1

Speed = Annotated[float, typer.Option("--speed", help="Emulated seconds per second until then.")]
Then = Annotated[float | None, typer.Option("--then", help="Speed afterwards; 0 pauses (default: the present speed).")]


@command("clock show")
def clock_show(stack: StackOptions, output: Output = OutputFormat.TABLE) -> None:
    """Show the emulated time, its speed, and scheduled changes."""
    _show(_timeline(stack), output)


@command("clock pause")
def clock_pause(stack: StackOptions, output: Output = OutputFormat.TABLE) -> None:
    """Pause emulated time, in all processes at the same instant; `clock resume` continues it.

    Requests are still accepted, and processed as far as that takes no emulated time.
    """
    _change_speed(stack, lambda _, __: 0.0, output)


@command("clock resume")
def clock_resume(stack: StackOptions, output: Output = OutputFormat.TABLE) -> None:
    """Resume emulated time at the speed it had before the pause; no effect if it is running."""
    timeline = _timeline(stack)
    if timeline.speed(time.time()) > 0:
        return _show(timeline, output)
    _change_speed(stack, lambda timeline, at: timeline.running_speed(at), output)


@command("clock speed")
def clock_speed(
    stack: StackOptions,
    speed: Annotated[
        float, typer.Argument(help="Emulated seconds per second: 1 is real time, 60 is an hour per minute.")
    ],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Change the speed of emulated time from now on; drops changes scheduled by `until` or `for`.

    No agent is lost by it, since leases and probes have minimum lengths in wall time. The speed survives restarts.
    """
    asked = _check_speed(speed, "SPEED")
    _change_speed(stack, lambda _, __: asked, output)


@command("clock until")
def clock_until(
    stack: StackOptions,
    when: Annotated[
        str, typer.Argument(help="Emulated time: 2026-01-31T08:00:00Z, 14:00 (its next occurrence) or +2h.")
    ],
    speed: Speed = FAST,
    then: Then = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Fast-forward to an emulated time, and return when it is reached.

    The change back is scheduled from the start, so it happens on the instant, even if this command is killed. If
    interrupted, the command resets the speed at once.
    """
    _run_until(stack, parse_instant_s(when, stack.emulated_now_s, "WHEN"), "WHEN", speed, then, output)


@command("clock for")
def clock_for(
    stack: StackOptions,
    duration: Annotated[str, typer.Argument(help="Emulated duration: 90s, 20m, 1h30m, 2d.")],
    speed: Speed = FAST,
    then: Then = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Fast-forward by an emulated duration, and return when it is over; see `clock until`."""
    seconds = parse_duration_s(duration, "DURATION")
    _run_until(stack, stack.emulated_now_s() + seconds, "DURATION", speed, then, output)


def _file(stack: StackOptions) -> Path:
    """The clock file of the running stack. Raises NotRunning."""
    return stack.client.folder.clock_file


def _timeline(stack: StackOptions) -> Timeline:
    from matrixcommon.emulation.stack_clock import read_timeline

    return read_timeline(_file(stack))


def _change_speed(stack: StackOptions, speed_of: Callable[[Timeline, float], float], output: Output) -> None:
    """Change the speed from now on to `speed_of(timeline, wall time)`, and show the result."""
    from matrixcommon.emulation.stack_clock import change_timeline

    made = change_timeline(_file(stack), lambda timeline, at: timeline.changed(at, speed_of(timeline, at)))
    _wait_until(made.changes[-1].wall_s)
    _show(made, output)


def _run_until(
    stack: StackOptions, until_s: float, field: str, speed: float, then: float | None, output: Output
) -> None:
    from matrixcommon.emulation.stack_clock import change_timeline

    if not _check_speed(speed, "--speed"):
        raise InvalidField("must be over 0; paused time never gets there", field="--speed")
    if then is not None:
        _check_speed(then, "--then")
    file, now_s = _file(stack), stack.emulated_now_s()
    if until_s <= now_s:
        raise InvalidField(f"{timestamp(until_s)} has passed; it is {timestamp(now_s)}", field=field)
    if until_s > TIMESTAMP_MAX_S:
        raise InvalidField(f"emulated time ends at {timestamp(TIMESTAMP_MAX_S)}; it is {timestamp(now_s)}", field=field)
    before: list[float] = []

    def planned(timeline: Timeline, at_s: float) -> Timeline:
        before[:] = [timeline.speed(at_s)]
        return timeline.run_until(at_s, speed, until_s, before[0] if then is None else then)

    change_timeline(file, planned)
    try:
        made = _show_progress(file, now_s, until_s)
    except KeyboardInterrupt:
        change_timeline(file, lambda timeline, at: timeline.changed(at, before[0]))
        raise
    _show(made, output)


def _show_progress(file: Path, since_s: float, until_s: float) -> Timeline:
    """Wait until the time is reached, following changes of the clock, with a progress bar on a terminal. Raises
    Conflict if somebody pauses the clock before."""
    from matrixcommon.emulation.stack_clock import read_timeline

    with progress() as bar:
        while True:
            timeline, now = read_timeline(file), time.time()
            end_wall_s = timeline.wall(until_s, now)
            if end_wall_s <= now:
                return timeline
            at_s = timeline.emulated(now)
            if end_wall_s == math.inf:
                raise Conflict(f"the clock was changed meanwhile and will not reach {timestamp(until_s)}")
            if bar is not None:
                bar(int(at_s - since_s), int(until_s - since_s), f"{timestamp(at_s)[:19]}Z x{timeline.speed(now):g}")
            time.sleep(min(POLL_PERIOD_WALL_S, end_wall_s - now))


def _wait_until(wall_s: float) -> None:
    """Wait until the change is in effect, so that this command's output and the next command come after it."""
    while (left_s := wall_s - time.time()) > 0:
        time.sleep(left_s)


def _show(timeline: Timeline, output: Output) -> None:
    now = time.time()
    planned = [each for each in timeline.changes if each.wall_s > now]
    document: dict[str, Any] = {
        "emulatedTime": timestamp(timeline.emulated(now)),
        "speed": timeline.speed(now),
        "paused": timeline.speed(now) == 0,
        "planned": [{"at": timestamp(each.emulated_s), "speed": each.speed} for each in planned],
    }
    if print_for_programs(document, output):
        return
    speed = "paused" if document["paused"] else f"speed {document['speed']:g}"
    echo(f"{document['emulatedTime']}, {speed}")
    for each in document["planned"]:
        echo(f"from {each['at']} speed {each['speed']:g}")


def _check_speed(speed: float, field: str) -> float:
    from matrixcommon.model.timeline import SPEED_MAX

    if not 0 <= speed <= SPEED_MAX:
        raise InvalidField(f"must be at least 0 (paused) and at most {SPEED_MAX:g}", field=field)
    return speed
