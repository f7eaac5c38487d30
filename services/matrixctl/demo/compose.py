"""`make demo-compose`: both stories, or one, on containers and PostgreSQL, through the published ports.

    python -m services.matrixctl.demo.compose [failover|autoscale] [--keep]

Each is reported on containers of its own, at its own pace.

CLOUDMATRIX_BASE and CLOUDMATRIX_POSTGRES_IMAGE choose other images than the public ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from matrixcommon.model.errors import MatrixError
from services.catalogue import PROCESSES
from services.matrixctl.demo.run import STORIES, conclude, tell_on
from services.matrixctl.demo.story import Outcome, StepFailed, until
from services.matrixctl.demo.telling import Story
from services.matrixctl.output.screen import EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE, one_line, say
from services.matrixctl.supervisor.probe import readiness
from services.matrixctl.supervisor.state_folder import Folder

ROOT = Path(__file__).resolve().parents[3]
STATE = ROOT / ".state" / "compose"
BUILD_PATIENCE_WALL_S = 1200.0
READY_PATIENCE_WALL_S = 180.0
LEFT_OUT = {"failover": ("cut", "scale", "plan", "priority", "close")}
"""Steps that containers tell nothing new about."""


def compose_command() -> list[str] | None:
    """Compose v2 as Docker's plugin, else docker-compose; None without either or without an engine."""
    docker = shutil.which("docker")
    if docker is None or _fails(docker, "info"):
        return None
    if not _fails(docker, "compose", "version"):
        return [docker, "compose"]
    old = shutil.which("docker-compose")
    return [old] if old else None


def _fails(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode != 0


class Containers:
    """The stack of docker-compose.yml."""

    def __init__(self, command: list[str], state: Path, time_scale: float) -> None:
        self._command = command
        self.folder = Folder(state)
        self._environment = os.environ | {
            "CLOUDMATRIX_STATE": str(self.folder.path),
            "CLOUDMATRIX_TIME_SCALE": f"{time_scale:g}",
            "CLOUDMATRIX_USER": f"{os.getuid()}:{os.getgid()}",
        }

    def compose(self, *words: str, patience_wall_s: float = 120.0) -> str:
        """What Compose printed. Raises StepFailed with its last lines."""
        done = subprocess.run(
            [*self._command, *words],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=patience_wall_s,
            check=False,
        )
        if done.returncode != 0:
            raise StepFailed(f"{' '.join([*self._command, *words])}: " + "\n".join(done.stderr.splitlines()[-15:]))
        return done.stdout

    def up(self) -> None:
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self.compose("build", patience_wall_s=BUILD_PATIENCE_WALL_S)
        self.compose("up", "-d", patience_wall_s=BUILD_PATIENCE_WALL_S)
        waiting = {process.name for process in PROCESSES}

        def all_ready() -> bool:
            for process in PROCESSES:
                url = f"{process.scheme}://127.0.0.1:{process.port}"
                if process.name in waiting and readiness(url, 2.0).ready:
                    waiting.discard(process.name)
            return not waiting

        until("containers become ready", all_ready, READY_PATIENCE_WALL_S, progress=lambda: ", ".join(sorted(waiting)))

    def down(self) -> None:
        self.compose("down", "-v", "--remove-orphans")

    def logs(self) -> str:
        return self.compose("logs", "--tail", "40")


def run_demo(command: list[str], story: Story, state: Path = STATE, keep: bool = False) -> int:
    """Build, start, tell the story, stop. Returns 0 only when every step held."""
    steps = tuple(step for step in story.steps if step.name not in LEFT_OUT.get(story.name, ()))
    containers = Containers(command, state, story.time_scale)
    began = time.monotonic()
    try:
        say(f"[bold]{story.title}[/]")
        say("[bold cyan]0 Build the image and start the containers[/]")
        containers.down()
        containers.up()
        say(f"   [dim]{time.monotonic() - began:.1f} s[/]")
        outcome = tell_on(containers.folder, replace(story, steps=steps))
        if not outcome.ok:
            print(containers.logs(), file=sys.stderr)
    except StepFailed as failure:
        outcome = Outcome(failed="start", seen=str(failure))
    except MatrixError as refused:
        outcome = Outcome(failed="start", seen=one_line(refused))
    finally:
        if not keep:
            containers.down()
    if not outcome.ok:
        say(f"\n[bold red]failed at step `{outcome.failed}`[/]: {outcome.seen}")
        return EXIT_REFUSED
    return conclude(outcome, containers.folder, False, time.monotonic() - began)


def main(arguments: list[str]) -> int:
    named = [word for word in arguments if not word.startswith("-")]
    for name in named:
        if name not in STORIES:
            print(f"there is no story {name!r}; there are {', '.join(STORIES)}", file=sys.stderr)
            return EXIT_USAGE
    keep = "--keep" in arguments
    if keep and len(named) != 1:
        print("--keep goes with one story: they are reported on the same ports", file=sys.stderr)
        return EXIT_USAGE
    command = compose_command()
    if command is None:
        print("no Docker engine with Compose answers here; `docker info` tells why", file=sys.stderr)
        return EXIT_UNREACHABLE
    codes = (run_demo(command, STORIES[name], keep=keep) for name in named or STORIES)
    return next((code for code in codes if code != 0), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
