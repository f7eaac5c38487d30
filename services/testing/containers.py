"""CloudMatrixContainer: a whole stack in one container, for Testcontainers.

    with CloudMatrixContainer("cloudmatrix") as stack:
        config = stack.get_kubeconfig()
        compute = stack.get_url("compute")
        stack.inject("node-down", "sn0-c00-n1")

The image is that of the repository's Dockerfile. All processes run in the one container, under their supervisor.
`start` returns when `/readyz` of every process reports ready.
"""

from __future__ import annotations

import time
from typing import Any, Self

import httpx
import yaml
from testcontainers.core.container import DockerContainer

from matrixcommon.api.client import error_from, resource_path
from matrixcommon.model.errors import InvalidField, Unavailable
from services.catalogue import BY_NAME, PROCESSES

TIME_SCALE = 600.0
READY_TIMEOUT_WALL_S = 120.0
POLL_PERIOD_WALL_S = 0.1
STATE = "/state"
LOCAL = ("127.0.0.1", "localhost")


class CloudMatrixContainer(DockerContainer):
    """`with CloudMatrixContainer() as stack`. Raises TimeoutError, naming the processes that are not ready in time."""

    def __init__(self, image: str = "cloudmatrix", *, time_scale: float = TIME_SCALE, seed: int | None = None) -> None:
        words = [
            "matrixctl",
            "up",
            "--foreground",
            "--host",
            "0.0.0.0",
            "--state",
            STATE,
            "--time-scale",
            str(time_scale),
        ]
        words += [] if seed is None else ["--seed", str(seed)]
        super().__init__(image, entrypoint=words)
        self.with_exposed_ports(*(process.port for process in PROCESSES))

    def start(self) -> Self:
        super().start()
        until = time.monotonic() + READY_TIMEOUT_WALL_S
        while waiting := self._unready_processes():
            if time.monotonic() > until:
                self.stop()
                raise TimeoutError(f"not ready after {READY_TIMEOUT_WALL_S:g} s: {', '.join(waiting)}")
            time.sleep(POLL_PERIOD_WALL_S)
        return self

    def _unready_processes(self) -> list[str]:
        """Return the processes that are not ready."""
        found = []
        with httpx.Client(verify=False, timeout=2.0, trust_env=False) as http:  # readiness is not confidential
            for process in PROCESSES:
                try:
                    ready = http.get(f"{self.get_url(process.name)}/readyz").is_success
                except (httpx.HTTPError, ConnectionError):
                    ready = False
                found += [] if ready else [process.name]
        return found

    def get_url(self, service: str) -> str:
        """Return the URL of a process as seen from outside the container. Raises InvalidField."""
        if service not in BY_NAME:
            raise InvalidField(f"unknown process {service!r}; processes: {', '.join(BY_NAME)}", field="service")
        process = BY_NAME[service]
        host = self.get_container_host_ip()
        return f"{process.scheme}://{host}:{self.get_exposed_port(process.port)}"

    def get_kubeconfig(self) -> str:
        """Return the administrator's kubeconfig, with the server's address as seen from outside the container."""
        return with_server_url(self._read("kubeconfig"), self.get_url("kube"))

    def get_token(self) -> str:
        """Return an administrator's bearer token for the services."""
        return self._read("admin-token").strip()

    def inject(self, kind: str, target: str, name: str = "", **parameters: Any) -> str:
        """Break emulated hardware and return the fault's name. Raises the service's error."""
        chosen = name or f"{kind}-{target}".lower()
        body = {"kind": kind, "target": target, "parameters": parameters}
        self._call("PUT", resource_path("faults", chosen), json=body)
        return chosen

    def repair(self, name: str) -> None:
        """Remove a fault. Raises NotFound."""
        self._call("DELETE", resource_path("faults", name))

    def _call(self, method: str, path: str, **more: Any) -> None:
        headers = {"Authorization": f"Bearer {self.get_token()}"}
        answer = httpx.request(method, self.get_url("agents") + path, headers=headers, trust_env=False, **more)
        if answer.status_code >= 400:
            raise error_from(answer)

    def _read(self, name: str) -> str:
        code, output = self.exec(["cat", f"{STATE}/{name}"])
        if code:
            raise Unavailable(f"{STATE}/{name} does not exist yet")
        return output.decode()


def with_server_url(kubeconfig: str, url: str) -> str:
    """Return the kubeconfig with another server URL. If its host is not this one, the certificate is still verified
    against `localhost`."""
    document = yaml.safe_load(kubeconfig)
    for each in document["clusters"]:
        each["cluster"]["server"] = url
        if httpx.URL(url).host not in LOCAL:
            each["cluster"]["tls-server-name"] = "localhost"
    return str(yaml.safe_dump(document))
