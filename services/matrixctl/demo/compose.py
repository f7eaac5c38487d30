"""The demos on containers and PostgreSQL: `make demo-compose`, both or one, each on its own containers.

    python -m services.matrixctl.demo.compose [failover|autoscale] [--keep]

builds the image, starts the containers, waits until they answer on their published ports, and runs the demo as another
container, a profile of docker-compose.yml; by hand that is

    docker compose build && docker compose run --rm failover; docker compose down -v

CLOUDMATRIX_BASE and CLOUDMATRIX_POSTGRES_IMAGE choose other images than the public ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from services.catalogue import PROCESSES
from services.matrixctl.demo.in_container import wait_until_ready
from services.matrixctl.demo.run import DEMOS
from services.matrixctl.demo.shared_steps import Demo
from services.matrixctl.demo.step_runner import StepFailed
from services.matrixctl.output.screen import EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE, echo
from services.matrixctl.supervisor.state_folder import StateFolder

ROOT = Path(__file__).resolve().parents[3]
STATE = ROOT / ".state" / "compose"
BUILD_TIMEOUT_WALL_S = 1200.0


def compose_command() -> list[str] | None:
    """The command for Compose v2 as Docker's plugin, or docker-compose; None without either or without an engine."""
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
    """The containers of docker-compose.yml."""

    def __init__(self, command: list[str], state: Path, time_scale: float) -> None:
        self._command = command
        self.folder = StateFolder(state)
        self._environment = os.environ | {
            "CLOUDMATRIX_STATE": str(self.folder.path),
            "CLOUDMATRIX_TIME_SCALE": f"{time_scale:g}",
            "CLOUDMATRIX_USER": f"{os.getuid()}:{os.getgid()}",
        }

    def compose(self, *words: str, timeout_wall_s: float = 120.0) -> str:
        """Run Compose and return its output. Raises StepFailed with its last lines."""
        done = subprocess.run(
            [*self._command, *words],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_wall_s,
            check=False,
        )
        if done.returncode != 0:
            raise StepFailed(f"{' '.join([*self._command, *words])}: " + "\n".join(done.stderr.splitlines()[-15:]))
        return done.stdout

    def up(self) -> None:
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self.compose("build", timeout_wall_s=BUILD_TIMEOUT_WALL_S)
        began = time.monotonic()
        self.compose("up", "-d", timeout_wall_s=BUILD_TIMEOUT_WALL_S)
        wait_until_ready({process.name: f"{process.scheme}://127.0.0.1:{process.port}" for process in PROCESSES})
        echo(f"   [dim]the image is built; up and ready in {time.monotonic() - began:.1f} s[/]")

    def run_demo_container(self, demo: Demo) -> int:
        """Run the demo's container, passing its output on; returns its exit code."""
        terminal = [] if sys.stdout.isatty() else ["-T"]
        command = [*self._command, "run", "--rm", "--no-deps", *terminal, demo.name]
        sys.stdout.flush()
        return subprocess.run(command, cwd=ROOT, env=self._environment, check=False).returncode

    def down(self) -> None:
        self.compose("down", "-v", "--remove-orphans")

    def logs(self) -> str:
        return self.compose("logs", "--tail", "40")


def run_demo(command: list[str], demo: Demo, state: Path = STATE, keep: bool = False) -> int:
    """Build, start, run the demo, stop. Returns 0 only if every step succeeded."""
    containers = Containers(command, state, demo.time_scale)
    try:
        echo("[bold cyan]0 Build the image and start the containers[/]")
        containers.down()
        containers.up()
        code = containers.run_demo_container(demo)
        if code != 0:
            print(containers.logs(), file=sys.stderr)
    except StepFailed as failure:
        echo(f"\n[bold red]the containers do not start[/]: {failure}")
        code = EXIT_REFUSED
    finally:
        if not keep:
            containers.down()
    if keep:
        flag = f"--state {containers.folder.path}"
        echo(f"the containers keep running: matrixctl status {flag}; docker compose down -v stops them")
    return code


def main(arguments: list[str]) -> int:
    named = [word for word in arguments if not word.startswith("-")]
    for name in named:
        if name not in DEMOS:
            print(f"there is no demo {name!r}; choose from {', '.join(DEMOS)}", file=sys.stderr)
            return EXIT_USAGE
    keep = "--keep" in arguments
    if keep and len(named) != 1:
        print("--keep needs a single demo: both use the same ports", file=sys.stderr)
        return EXIT_USAGE
    command = compose_command()
    if command is None:
        print("no Docker engine with Compose is available; see `docker info`", file=sys.stderr)
        return EXIT_UNREACHABLE
    codes = (run_demo(command, DEMOS[name], keep=keep) for name in named or DEMOS)
    return next((code for code in codes if code != 0), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
