"""bundle: collect everything that a bug report needs in one file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.quantities import pluralized
from services.matrixctl.commands.command import command
from services.matrixctl.commands.options import StackOptions
from services.matrixctl.output.screen import NotRunning, echo, progress


@command("bundle")
def bundle(
    stack: StackOptions,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="File to write (default: cloudmatrix-DATE.tar.gz in the current folder)."),
    ] = None,
    log_mib: Annotated[
        float, typer.Option("--log-mib", min=0.01, max=1024, help="MiB from the end of each log.")
    ] = 8.0,
) -> None:
    """Collect logs, status, settings, versions, resources and metrics in one tar.gz, without tokens, keys or passwords.

    It also works when the stack or a part of it is down; its manifest lists what is missing.
    """
    from services.matrixctl.bundle.collect import Bundle

    folder = stack.folder
    if not folder.path.is_dir():
        raise NotRunning(f"there is no stack in {folder.path}; create one with `matrixctl up --state {folder.path}`")
    target = file or Path(time.strftime("cloudmatrix-%Y%m%d-%H%M%S.tar.gz"))
    if target.is_dir() or not target.parent.is_dir():
        raise InvalidField(f"{target} cannot be written", field="--file")
    seen: list[str] = []
    with progress() as bar:

        def tell(what: str) -> None:
            seen.append(what)
            if bar is not None:
                bar(len(seen), max(len(seen), 80), what)

        made = Bundle(folder, int(log_mib * (1 << 20)), tell)
        members = made.write(target)
    echo(f"{target}: {pluralized(members, 'file')}, {target.stat().st_size / (1 << 20):.1f} MiB")
    for name, why in made.missing.items():
        echo(f"  without {name}: {why}")
