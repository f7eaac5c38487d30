"""A demo run by one container against the others.

    python -m services.matrixctl.demo.in_container failover|autoscale

The folder CLOUDMATRIX_STATE looks like a stack's own, with the addresses inside the container network; `prepare` of
`supervisor.container_entrypoint` creates it. Exit code 0 only if every step succeeded.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from matrixcommon.model.errors import MatrixError
from services.matrixctl.demo.run import DEMOS, run_on_stack
from services.matrixctl.demo.shared_steps import Demo
from services.matrixctl.demo.step_runner import Outcome, StepFailed, wait_until
from services.matrixctl.output.screen import EXIT_REFUSED, EXIT_USAGE, echo, one_line
from services.matrixctl.supervisor.probe import probe_readiness
from services.matrixctl.supervisor.state_folder import StateFolder

READY_TIMEOUT_WALL_S = 180.0
SKIPPED_STEPS = {"failover": ("cut", "scale", "plan", "priority", "close")}
"""Steps that show nothing new on containers."""


def without_skipped_steps(demo: Demo) -> Demo:
    """The demo without the steps left out on containers."""
    return replace(demo, steps=tuple(step for step in demo.steps if step.name not in SKIPPED_STEPS.get(demo.name, ())))


def run_inside(folder: StateFolder, demo: Demo) -> int:
    """Run the demo against the other containers; 0 only if every step succeeded."""
    began = time.monotonic()
    stack = folder.read()
    if stack is None:
        echo(f"[bold red]{folder.path} describes no stack[/]: start one with `docker compose run --rm {demo.name}`")
        return EXIT_USAGE
    if stack.time.scale != demo.time_scale:
        echo(
            f"[bold red]this demo needs time scale {demo.time_scale:g}, but the stack runs at "
            f"{stack.time.scale:g}[/]: `docker compose down -v`, then again with "
            f"CLOUDMATRIX_TIME_SCALE={demo.time_scale:g}"
        )
        return EXIT_USAGE
    echo(f"[bold]{demo.title}[/]")
    try:
        wait_until_ready({name: child.url for name, child in stack.children.items()})
        outcome = run_on_stack(folder, without_skipped_steps(demo))
    except StepFailed as failure:
        outcome = Outcome(failed="start", seen=str(failure))
    except MatrixError as refused:
        outcome = Outcome(failed="start", seen=one_line(refused))
    if outcome.ok:
        echo(f"\n[bold green]every step succeeded[/], in {time.monotonic() - began:.0f} s.")
        return 0
    echo(f"\n[bold red]failed at step `{outcome.failed}`[/]: {outcome.seen}")
    return EXIT_REFUSED


def wait_until_ready(urls: Mapping[str, str]) -> None:
    """Wait until all are ready; raises StepFailed with those that are not in time."""
    waiting = dict(urls)

    def all_ready() -> bool:
        for name, url in urls.items():
            if name in waiting and probe_readiness(url, 2.0).ready:
                del waiting[name]
        return not waiting

    wait_until("containers become ready", all_ready, READY_TIMEOUT_WALL_S, progress=lambda: ", ".join(sorted(waiting)))


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else ""
    if name not in DEMOS:
        print(f"there is no demo {name!r}; choose from {', '.join(DEMOS)}", file=sys.stderr)
        return EXIT_USAGE
    return run_inside(StateFolder(Path(os.environ.get("CLOUDMATRIX_STATE", "/state"))), DEMOS[name])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
