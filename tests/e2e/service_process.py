"""One service as a real process of its own, for tests and benchmarks that start, pause and kill single ones."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from services.matrixctl.supervisor.probe import free_port


@dataclass
class ServiceProcess:
    """One process of a service, and requests to it."""

    service: str
    folder: Path
    arguments: list[str]
    port: int = field(default_factory=lambda: free_port("127.0.0.1"))

    def __post_init__(self) -> None:
        self.log = self.folder / f"{self.service}-{self.port}.log"
        self.http = httpx.Client(base_url=self.url, timeout=5.0, trust_env=False)
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", f"services.{self.service}", "--port", str(self.port)]
        command += ["--state", str(self.folder), *self.arguments]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ready(self) -> bool:
        try:
            return self.http.get("/readyz").is_success
        except httpx.HTTPError:
            return False

    def leads(self) -> bool:
        try:
            return "\ncloudmatrix_leads 1.0\n" in self.http.get("/metrics").text
        except httpx.HTTPError:
            return False

    def put(self, name: str, nodes: int) -> None:
        answer = self.http.put(f"/v1/instances/{name}", json={"nodes": nodes})
        assert answer.is_success, answer.text

    def state(self, name: str) -> str:
        try:
            answer = self.http.get(f"/v1/instances/{name}")
        except httpx.HTTPError:
            return ""
        return str(answer.json()["state"]) if answer.is_success else "gone" if answer.status_code == 404 else ""

    def items(self, collection: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get(f"/v1/{collection}?pageSize=1000").json()["items"]
        return found
