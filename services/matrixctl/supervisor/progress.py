"""How far a stack is on its way up, for people."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import Any

from services.matrixctl.output.screen import console, say
from services.matrixctl.supervisor.up import until_ready


def show_progress(folder: Any, supervisor: Any, patience_wall_s: float) -> None:
    """One line per process as it becomes ready; on a terminal with a spinner for what is still awaited."""
    began = time.monotonic()
    done: set[str] = set()
    with console().status("starting") if sys.stdout.isatty() else nullcontext() as spinner:
        for stack in until_ready(folder, supervisor, patience_wall_s):
            for child in stack.children.values():
                if child.ready and child.name not in done:
                    done.add(child.name)
                    say(f"  [green]ready[/] {child.name:<9} {time.monotonic() - began:4.1f} s  {child.url}")
            if spinner is not None:
                spinner.update("waiting for " + ", ".join(name for name in stack.children if name not in done))
