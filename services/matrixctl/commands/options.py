"""Options that several commands share, each declared once."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from matrixcommon.model.errors import InvalidField
from services.matrixctl.output.screen import MACHINE_FORMATS, OutputFormat, print_document

if TYPE_CHECKING:
    from services.matrixctl.clients.api_client import ApiClient
    from services.matrixctl.supervisor.state_folder import StateFolder

DEFAULT_STATE = Path(os.environ.get("CLOUDMATRIX_STATE") or "~/.cloudmatrix")

State = Annotated[Path, typer.Option("--state", help="State folder of the stack (or CLOUDMATRIX_STATE).")]
FiguresFormat = Literal["table", "wide", "json", "yaml"]
FiguresOutput = Annotated[FiguresFormat, typer.Option("--output", "-o", help="Output format.")]
"""The output format of figures, which have no names."""
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")]
Project = Annotated[
    str | None, typer.Option("--project", help="Project (default: `default`; for lists, all projects).")
]


@dataclass
class StackOptions:
    """Options of a command about one stack: its state folder."""

    state: State = DEFAULT_STATE

    @cached_property
    def folder(self) -> StateFolder:
        from services.matrixctl.supervisor.state_folder import StateFolder

        return StateFolder(self.state)

    @cached_property
    def client(self) -> ApiClient:
        """A client of the running stack. Raises NotRunning."""
        from services.matrixctl.clients.api_client import ApiClient

        return ApiClient.of(self.folder, getattr(self, "project", None))

    def emulated_now_s(self) -> float:
        """Seconds since the epoch by the clock of the running stack. Raises NotRunning."""
        from matrixcommon.emulation.stack_clock import read_timeline

        return read_timeline(self.client.folder.clock_file).emulated(time.time())


@dataclass
class ProjectOptions(StackOptions):
    """The same, with a project."""

    project: Project = None


UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration_s(text: str, field: str) -> float:
    """Seconds of an emulated duration such as 1h30m. Raises InvalidField."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidField(f"{text[:40]!r} is not a duration such as 90s, 20m, 1h30m or 2d", field=field)
    seconds = sum(float(number) * UNITS_S[unit] for number, unit in parts)
    if seconds <= 0:
        raise InvalidField("must be over 0", field=field)
    return seconds


def parse_seconds(text: str, field: str = "--for") -> float:
    """Seconds of an option that is a duration or a number of seconds. Raises InvalidField."""
    try:
        seconds = float(text)
    except ValueError:
        return parse_duration_s(text, field)
    if not isfinite(seconds):
        raise InvalidField("must be a finite number", field=field)
    if seconds <= 0:
        raise InvalidField("must be over 0", field=field)
    return seconds


Lease = Annotated[
    str,
    typer.Option(
        "--lease", help="Length of the lease from now, emulated: 90s, 20m, 4h, 2d; a plain number is seconds."
    ),
]


def parse_instant_s(text: str, now_s: Callable[[], float], field: str) -> float:
    """Parse an instant, UTC, into emulated seconds since the epoch: a date and time, a time of day (its next
    occurrence), or an offset from now (`+2h`); `now_s` is only called for the last two. Raises InvalidField."""
    if text.startswith("+"):
        return parse_duration_s(text[1:], field) + now_s()
    if match := re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", text):
        hour, minute, second = (int(part or 0) for part in match.groups())
        now = datetime.fromtimestamp(now_s(), UTC)
        at = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return (at if at > now else at + timedelta(days=1)).timestamp()
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        seconds = at.replace(tzinfo=at.tzinfo or UTC).timestamp()
    except (ValueError, OverflowError):
        seconds = -1.0
    if seconds < 0:
        text = f"{text[:40]!r} is not a time such as 2026-01-31T08:00:00Z, 14:00 or +2h"
        raise InvalidField(text, field=field) from None
    return seconds


def print_for_programs(answer: Any, form: OutputFormat | FiguresFormat) -> bool:
    """Print the answer if the format is one for programs; return whether it was printed."""
    if form not in MACHINE_FORMATS:
        return False
    print_document(answer, OutputFormat(form))
    return True
