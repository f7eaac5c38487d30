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
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixcommon.model.errors import InvalidField
from services.matrixctl.output.screen import FOR_PROGRAMS, Form, document

if TYPE_CHECKING:
    from services.matrixctl.clients.api_client import ApiClient
    from services.matrixctl.supervisor.state_folder import Folder

DEFAULT_STATE = Path(os.environ.get("CLOUDMATRIX_STATE") or "~/.cloudmatrix")

State = Annotated[
    Path, typer.Option("--state", help="Folder that holds everything of one stack (or CLOUDMATRIX_STATE).")
]
Output = Annotated[Form, typer.Option("--output", "-o", help="How to print the answer.")]
Project = Annotated[
    str | None, typer.Option("--project", help="Whose it is (default: the project `default`; for lists, all).")
]


@dataclass
class OnStack:
    """Of a command about one stack: its state folder."""

    state: State = DEFAULT_STATE

    @cached_property
    def folder(self) -> Folder:
        from services.matrixctl.supervisor.state_folder import Folder

        return Folder(self.state)

    @cached_property
    def client(self) -> ApiClient:
        """The running stack. Raises NotRunning."""
        from services.matrixctl.clients.api_client import ApiClient

        return ApiClient.of(self.folder, getattr(self, "project", None))

    def emulated_now_s(self) -> float:
        """Seconds since the epoch by the clock of the running stack. Raises NotRunning."""
        from matrixcommon.emulation.stack_clock import read_timeline

        return read_timeline(self.client.folder.clock_file).emulated(time.time())


@dataclass
class OfProject(OnStack):
    """The same about one project's things."""

    project: Project = None


UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(text: str, field: str) -> float:
    """The seconds of an emulated duration as people write it. Raises InvalidField."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidField(f"{text[:40]!r} is no duration such as 90s, 20m, 1h30m or 2d", field=field)
    seconds = sum(float(number) * UNITS_S[unit] for number, unit in parts)
    if seconds <= 0:
        raise InvalidField("must be over 0", field=field)
    return seconds


def lasting_s(text: str, field: str = "--for") -> float:
    """The seconds that an option says: a duration, or a number of them. Raises InvalidField."""
    try:
        seconds = float(text)
    except ValueError:
        return duration_s(text, field)
    if not isfinite(seconds):
        raise InvalidField("must be a finite number", field=field)
    if seconds <= 0:
        raise InvalidField("must be over 0", field=field)
    return seconds


Lease = Annotated[
    str, typer.Option("--lease", help="How long it is held then, emulated: 90s, 20m, 4h, 2d; a number is seconds.")
]


def instant_s(text: str, now_s: Callable[[], float], field: str) -> float:
    """An instant in emulated seconds since the epoch: a time with its date, the next such time of day, or so long from
    now (`+2h`), which only these two ask for. UTC. Raises InvalidField."""
    if text.startswith("+"):
        return duration_s(text[1:], field) + now_s()
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
        text = f"{text[:40]!r} is no time such as 2026-01-31T08:00:00Z, 14:00 or +2h"
        raise InvalidField(text, field=field) from None
    return seconds


def printed(answer: Any, form: Form) -> bool:
    """Whether that was it: programs get the answer as it is."""
    if form not in FOR_PROGRAMS:
        return False
    document(answer, form)
    return True
