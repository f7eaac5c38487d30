"""Wait for long-running work, showing progress: a bar on a terminal, else a line per change."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from services.matrixctl.output.screen import progress

POLL_PERIOD_WALL_S = 0.5
TIMEOUT_WALL_S = 30.0


@dataclass(frozen=True)
class Progress:
    """Progress of work: parts done of a total, the text beside the bar, and the line printed without a bar."""

    done: int
    total: int
    text: str
    line: str


def wait_for_state(
    client: Any,
    service: str,
    path: str,
    final_states: Collection[str],
    progress_of: Callable[[dict[str, Any]], Progress],
) -> dict[str, Any]:
    """Wait until the resource's state is one of `final_states`, reporting progress, and return it."""
    client.timeout_wall_s = TIMEOUT_WALL_S
    reported: list[str] = []
    with progress() as bar:
        while True:
            view: dict[str, Any] = client.call(service, "GET", path)
            at = progress_of(view)
            if bar is not None:
                bar(at.done, at.total, at.text)
            elif view["state"] not in final_states and reported[-1:] != [at.line]:
                reported.append(at.line)
                print(at.line, file=sys.stderr)
            if view["state"] in final_states:
                return view
            time.sleep(POLL_PERIOD_WALL_S)
