"""The embedded Kubernetes API alone, on a real port, like Go's envtest.

It runs as a separate process, so a test's operator, in any language, shares only the kubeconfig with it. It keeps its
state in an in-memory folder, runs Deployments, Jobs and pods as a cluster would, and ends with the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from matrixcommon.model.errors import InternalError
from services.matrixctl.clients.kubernetes import Cluster

READY_TIMEOUT_WALL_S = 30.0
STOP_TIMEOUT_WALL_S = 5.0
POLL_PERIOD_WALL_S = 0.01


class KubernetesApi:
    """`with KubernetesApi() as kubernetes`: `kubeconfig` is a file, `url` the server's URL; `client` reads and applies
    objects."""

    def __init__(self, folder: Path | None = None) -> None:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self._own = None if folder else tempfile.TemporaryDirectory(prefix="kubernetes-", dir=memory)
        self.folder = folder or Path(self._own.name if self._own else "")
        self.kubeconfig = self.folder / "kubeconfig"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server. Raises InternalError, with the last line of its log, if it is not ready in time."""
        self.kubeconfig.unlink(missing_ok=True)
        log = self.folder / "kube.log"
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        command = [sys.executable, "-m", "services.kube", "--state", str(self.folder), "--port", "0"]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, "--synchronous", "NORMAL"],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        until = time.monotonic() + READY_TIMEOUT_WALL_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                lines = log.read_text(errors="replace").strip().splitlines()
                self.stop()
                raise InternalError(f"the Kubernetes API did not start: {lines[-1] if lines else 'its log is empty'}")
            time.sleep(POLL_PERIOD_WALL_S)

    def _answers(self) -> bool:
        """Whether the server is ready. It writes the whole kubeconfig when it can accept its first connection."""
        try:
            return bool(self.kubeconfig.exists() and self.url and self.client.http.get("/readyz").is_success)
        except (httpx.HTTPError, KeyError, TypeError, yaml.YAMLError):
            return False

    def stop(self) -> None:
        """Terminate the server, and kill it if it does not exit in time. Further calls do nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_WALL_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> KubernetesApi:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._own is not None:
            self._own.cleanup()

    @property
    def process_id(self) -> int | None:
        """The server's process id, None if it is not running."""
        return None if self._process is None else self._process.pid

    @property
    def url(self) -> str:
        return str(yaml.safe_load(self.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])

    @property
    def client(self) -> Cluster:
        return Cluster(self.kubeconfig)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Server-side apply objects, given as dicts. Raises the API's error."""
        for each in objects:
            self.client.apply_object(each)
