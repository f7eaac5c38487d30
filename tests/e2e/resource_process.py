"""MatrixResource as a real process, with agents that do at once what is requested of their nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx

DONE = {"Clean": "Clean", "Spare": "Spare", "Member": "Active"}


class ResourceProcess:
    """`python -m services.resource` over a state folder; may be killed and started again."""

    service = "resource"

    def __init__(self, state: Path, *flags: str) -> None:
        self.state, self.flags = state, flags
        self.log = state / f"{self.service}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.sequence = 0

    def start(self) -> ResourceProcess:
        self.state.mkdir(parents=True, exist_ok=True)
        read = self.log.stat().st_size if self.log.exists() else 0
        command = [
            sys.executable,
            "-m",
            f"services.{self.service}",
            "--state",
            str(self.state),
            "--port",
            "0",
            *self.flags,
        ]
        self.process = subprocess.Popen(command, stderr=self.log.open("ab"), stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not self._listening(read):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"resource did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)
        return self

    def _listening(self, read: int) -> bool:
        for text in self.log.read_bytes()[read:].decode().splitlines():
            if '"event": "listening"' in text and text.endswith("}"):
                self.url = json.loads(text)["url"]
                return True
        return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=30.0, trust_env=False)

    def report_fulfilled(self, client: httpx.Client) -> None:
        """Every agent reports that its spec is fulfilled. The number of reports grows with the wall clock, so that
        several reporters and lives need not know of one another."""
        requests = client.get("/v1/assignments", params={"pageSize": 1000}).json()["items"]
        reports = [
            {
                "node": request["name"],
                "epoch": 1,
                "sequence": time.time_ns() // 1000,
                "leaseS": 86_400,
                "status": DONE[request["desiredRole"]],
                "generation": request["generation"],
                "allocation": request.get("allocation"),
                "parts": [{"allocation": part["allocation"], "status": "Active"} for part in request["parts"]],
            }
            for request in requests
        ]
        client.post("/v1/node-reports", json={"reports": reports}).raise_for_status()
