"""Options that several commands share, each declared once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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


def printed(answer: Any, form: Form) -> bool:
    """Whether that was it: programs get the answer as it is."""
    if form not in FOR_PROGRAMS:
        return False
    document(answer, form)
    return True
