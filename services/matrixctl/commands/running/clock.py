"""clock: how fast the emulated time of a running stack passes. Its speed changes, it does not jump."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.quantities import LATEST_S, timestamp
from services.matrixctl.commands.command import command, group
from services.matrixctl.commands.options import OnStack, Output, duration_s, instant_s, printed
from services.matrixctl.output.screen import Form, progress, say

if TYPE_CHECKING:
    from matrixcommon.model.timeline import Timeline

group("clock", "How fast the emulated time of a running stack passes. Its speed changes, it does not jump.")

FAST = 600.0
LOOK_WALL_S = 0.1

Speed = Annotated[float, typer.Option("--speed", help="Emulated seconds in a second until then.")]
Then = Annotated[
    float | None, typer.Option("--then", help="The speed from then on; 0 stands still (default: as before).")
]


@command("clock show")
def clock_show(stack: OnStack, output: Output = Form.TABLE) -> None:
    """The emulated time, its speed, and what is planned."""
    _show(_timeline(stack), output)


@command("clock pause")
def clock_pause(stack: OnStack, output: Output = Form.TABLE) -> None:
    """Let emulated time stand still, in all processes at the same instant; `clock resume` lets it run again.

    What is asked meanwhile is accepted, and carried out as far as that takes no emulated time.
    """
    _changed(stack, lambda _, __: 0.0, output)


@command("clock resume")
def clock_resume(stack: OnStack, output: Output = Form.TABLE) -> None:
    """Let emulated time run again, as fast as before it stood still; what runs stays as it is."""
    timeline = _timeline(stack)
    if timeline.speed(time.time()) > 0:
        return _show(timeline, output)
    _changed(stack, lambda timeline, at: timeline.running_speed(at), output)


@command("clock speed")
def clock_speed(
    stack: OnStack,
    speed: Annotated[float, typer.Argument(help="Emulated seconds in a second: 1 as the wall, 60 an hour a minute.")],
    output: Output = Form.TABLE,
) -> None:
    """Have emulated time run at another speed from now on; what was planned with `until` or `for` is dropped.

    Leases and probes have floors in wall time, so agents are not lost by it. After a restart it stays as it is.
    """
    asked = _checked(speed, "SPEED")
    _changed(stack, lambda _, __: asked, output)


@command("clock until")
def clock_until(
    stack: OnStack,
    when: Annotated[str, typer.Argument(help="2026-01-31T08:00:00Z, 14:00 (the next one) or +2h, in emulated time.")],
    speed: Speed = FAST,
    then: Then = None,
    output: Output = Form.TABLE,
) -> None:
    """Run fast until an emulated time, and return when it is reached.

    The change back is planned from the start, so it comes to the instant, and also where this command is killed;
    interrupted, it sets the speed back at once.
    """
    _run_until(stack, instant_s(when, stack.emulated_now_s, "WHEN"), "WHEN", speed, then, output)


@command("clock for")
def clock_for(
    stack: OnStack,
    duration: Annotated[str, typer.Argument(help="Emulated: 90s, 20m, 1h30m, 2d.")],
    speed: Speed = FAST,
    then: Then = None,
    output: Output = Form.TABLE,
) -> None:
    """Run fast for an emulated duration, and return when it is over. As `clock until`."""
    seconds = duration_s(duration, "DURATION")
    _run_until(stack, stack.emulated_now_s() + seconds, "DURATION", speed, then, output)


def _file(stack: OnStack) -> Path:
    """The clock of the running stack. Raises NotRunning."""
    return stack.client.folder.clock_file


def _timeline(stack: OnStack) -> Timeline:
    from matrixcommon.emulation.stack_clock import read_timeline

    return read_timeline(_file(stack))


def _changed(stack: OnStack, speed_of: Callable[[Timeline, float], float], output: Output) -> None:
    """`speed_of`: the speed from now on, by how time runs and the instant of the wall."""
    from matrixcommon.emulation.stack_clock import change_timeline

    made = change_timeline(_file(stack), lambda timeline, at: timeline.changed(at, speed_of(timeline, at)))
    _await(made.changes[-1].wall_s)
    _show(made, output)


def _run_until(stack: OnStack, until_s: float, field: str, speed: float, then: float | None, output: Output) -> None:
    from matrixcommon.emulation.stack_clock import change_timeline

    if not _checked(speed, "--speed"):
        raise InvalidField("time that stands still gets nowhere: over 0", field="--speed")
    if then is not None:
        _checked(then, "--then")
    file, now_s = _file(stack), stack.emulated_now_s()
    if until_s <= now_s:
        raise InvalidField(f"{timestamp(until_s)} is over: it is {timestamp(now_s)}", field=field)
    if until_s > LATEST_S:
        raise InvalidField(f"emulated time ends at {timestamp(LATEST_S)}: it is {timestamp(now_s)}", field=field)
    before: list[float] = []

    def planned(timeline: Timeline, at_s: float) -> Timeline:
        before[:] = [timeline.speed(at_s)]
        return timeline.run_until(at_s, speed, until_s, before[0] if then is None else then)

    change_timeline(file, planned)
    try:
        made = _follow(file, now_s, until_s)
    except KeyboardInterrupt:
        change_timeline(file, lambda timeline, at: timeline.changed(at, before[0]))
        raise
    _show(made, output)


def _follow(file: Path, since_s: float, until_s: float) -> Timeline:
    """Until it is reached, by the clock as it is then; a bar on a terminal. Raises Conflict where somebody has it stand
    still before."""
    from matrixcommon.emulation.stack_clock import read_timeline

    with progress() as bar:
        while True:
            timeline, now = read_timeline(file), time.time()
            end_wall_s = timeline.wall(until_s, now)
            if end_wall_s <= now:
                return timeline
            at_s = timeline.emulated(now)
            if end_wall_s == math.inf:
                raise Conflict(f"the clock was changed meanwhile and never comes to {timestamp(until_s)}")
            if bar is not None:
                bar(int(at_s - since_s), int(until_s - since_s), f"{timestamp(at_s)[:19]}Z x{timeline.speed(now):g}")
            time.sleep(min(LOOK_WALL_S, end_wall_s - now))


def _await(wall_s: float) -> None:
    """So that what this command prints, and the next one does, is after the change."""
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
    if printed(document, output):
        return
    speed = "stands still" if document["paused"] else f"speed {document['speed']:g}"
    say(f"{document['emulatedTime']}, {speed}")
    for each in document["planned"]:
        say(f"  from {each['at']} on speed {each['speed']:g}")


def _checked(speed: float, field: str) -> float:
    from matrixcommon.model.timeline import SPEED_MAX

    if not 0 <= speed <= SPEED_MAX:
        raise InvalidField(f"must be at least 0, which stands still, and at most {SPEED_MAX:g}", field=field)
    return speed
