"""Options that several commands share, each reported once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from services.matrixctl.output.screen import Form

DEFAULT_STATE = Path(os.environ.get("CLOUDMATRIX_STATE") or "~/.cloudmatrix")

State = Annotated[
    Path, typer.Option("--state", help="Folder that holds everything of one stack (or CLOUDMATRIX_STATE).")
]
Output = Annotated[Form, typer.Option("--output", "-o", help="How to print the answer.")]
