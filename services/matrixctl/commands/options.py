"""Options that several commands share, each declared once."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
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


def lasting_s(text: str) -> float:
    """The seconds that --for says: a duration, or a number of them. Raises InvalidField."""
    try:
        seconds = float(text)
    except ValueError:
        return duration_s(text, "--for")
    if not isfinite(seconds):
        raise InvalidField("must be a finite number", field="--for")
    if seconds <= 0:
        raise InvalidField("must be over 0", field="--for")
    return seconds


def printed(answer: Any, form: Form) -> bool:
    """Whether that was it: programs get the answer as it is."""
    if form not in FOR_PROGRAMS:
        return False
    document(answer, form)
    return True
