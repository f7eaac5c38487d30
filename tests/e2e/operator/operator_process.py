"""The operator as a process on any Kubernetes API, and the services it speaks for as processes beside it.

Emulated time runs sixty times the wall's, so that a node's deployment takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import choose_processes, start_supervisor, stop_stack, watch_until_ready

SERVICES = "resource,link,compute,infer,agents"
STOP_WALL_S = 20.0


@contextlib.contextmanager
def services_up(path: Path) -> Iterator[StateFolder]:
    """Every service but a Kubernetes API and its operator."""
    folder = StateFolder(path)
    for _ in watch_until_ready(
        folder, start_supervisor(folder, StackRequest(choose_processes(SERVICES), scale=60.0).to_json()), 90.0
    ):
        pass
    try:
        yield folder
    finally:
        stop_stack(folder)


class OperatorProcess:
    """`python -m services.operator`; may be killed and started again under its old identity."""

    def __init__(self, services: StateFolder, kubeconfig: Path, folder: Path, **settings: str) -> None:
        stack = services.read()
        assert stack is not None
        self.log = folder / "operator.log"
        self.settings = {
            **{f"CLOUDMATRIX_{name.upper()}_URL": stack.children[name].url for name in SERVICES.split(",")},
            "CLOUDMATRIX_KUBECONFIG": str(kubeconfig),
            "CLOUDMATRIX_STATE": str(folder),
            "CLOUDMATRIX_PORT": "0",
            "CLOUDMATRIX_TOKEN": services.admin_token(),
            **{f"CLOUDMATRIX_{name.upper()}": value for name, value in settings.items()},
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> OperatorProcess:
        command = [sys.executable, "-m", "services.operator"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=os.environ | self.settings, stdout=log, stderr=subprocess.STDOUT
            )
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(timeout=STOP_WALL_S)

    def reported(self) -> str:
        return self.log.read_text(errors="replace")

    def __enter__(self) -> OperatorProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
