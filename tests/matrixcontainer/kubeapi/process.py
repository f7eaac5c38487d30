"""The embedded Kubernetes API as a real process, and the real kubectl against it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

KUBECTL = shutil.which("kubectl")

needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH: nothing of it was tested")


class KubeProcess:
    """`python -m services.kube` over a state folder; may be killed and started again on the same port."""

    def __init__(self, state: Path, *flags: str) -> None:
        self.state, self.flags = state, flags
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.log = state / "kube.log"

    def start(self) -> KubeProcess:
        self.state.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "services.kube", "--state", str(self.state), "--port", str(self.port)]
        command += self.flags
        self.process = subprocess.Popen(command, stderr=self.log.open("ab"), stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self._listening():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"kube did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)
        return self

    def _listening(self) -> bool:
        for text in self.log.read_text().splitlines():
            if '"event": "listening"' in text:
                self.port = int(json.loads(text)["url"].rpartition(":")[2])
        started = self.log.read_text().count('"event": "listening"')
        return started > self._stopped_count

    _stopped_count = 0

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._stopped_count += 1

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self._stopped_count += 1
        return self.process.wait(timeout=15)

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    def environment(self) -> dict[str, str]:
        return os.environ | {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.state)}

    def kubectl(self, *arguments: str, stdin: Any = None, fails: bool = False, **more: str) -> str:
        """The output (both kinds) of a kubectl command; asserts whether it succeeds."""
        text = stdin if isinstance(stdin, str) else json.dumps(stdin) if stdin is not None else None
        done = subprocess.run(
            [str(KUBECTL), *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment() | more,
            check=False,
        )
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, (
            f"kubectl {' '.join(arguments)}: {output}\n{self.log.read_text()[-1500:]}"
        )
        return output
