"""Options that several commands share, each reported once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.matrixctl.output.screen import Form, document

if TYPE_CHECKING:
    from services.matrixctl.clients.api_client import ApiClient

DEFAULT_STATE = Path(os.environ.get("CLOUDMATRIX_STATE") or "~/.cloudmatrix")

State = Annotated[
    Path, typer.Option("--state", help="Folder that holds everything of one stack (or CLOUDMATRIX_STATE).")
]
Output = Annotated[Form, typer.Option("--output", "-o", help="How to print the answer.")]
Project = Annotated[
    str | None, typer.Option("--project", help="Whose it is (default: the project `default`; for lists, all).")
]


def reach(state: Path, project: str | None = None) -> ApiClient:
    """The running stack of a state folder, asked about one project's things where that is named."""
    from services.matrixctl.clients.api_client import ApiClient
    from services.matrixctl.supervisor.state_folder import Folder

    return ApiClient.of(Folder(state), project)


def printed(answer: Any, form: Form) -> bool:
    """Whether that was it: programs get the answer as it is."""
    if form not in (Form.JSON, Form.YAML):
        return False
    document(answer, form)
    return True
