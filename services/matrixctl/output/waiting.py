"""Waiting for long work to be over, with its progress: a bar on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from services.matrixctl.output.screen import progress

ASK_AGAIN_WALL_S = 0.5
PATIENCE_WALL_S = 30.0


@dataclass(frozen=True)
class Progress:
    """How far work is: parts done of a total, what stands beside the bar, and the line where there is no bar."""

    done: int
    total: int
    text: str
    line: str


def awaited(
    client: Any, service: str, path: str, over: Collection[str], progress_of: Callable[[dict[str, Any]], Progress]
) -> dict[str, Any]:
    """The resource once its state is one of `over`; how far it is is reported meanwhile."""
    client.patience_wall_s = PATIENCE_WALL_S
    reported: list[str] = []
    with progress() as bar:
        while True:
            view: dict[str, Any] = client.call(service, "GET", path)
            at = progress_of(view)
            if bar is not None:
                bar(at.done, at.total, at.text)
            elif view["state"] not in over and reported[-1:] != [at.line]:
                reported.append(at.line)
                print(at.line, file=sys.stderr)
            if view["state"] in over:
                return view
            time.sleep(ASK_AGAIN_WALL_S)
