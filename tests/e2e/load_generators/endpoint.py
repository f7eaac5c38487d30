"""The endpoint as processes of its own: CloudMatrix-Infer, and a MatrixLink that says that the fabric is healthy.

What a load generator needs of the rest of the stack is a fabric and nothing else, so a few lines stand for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from infer_workload.experiments.experiment import healthy_fabric
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric_view import FabricView, NodePorts, PlaneView
from services.matrixctl.supervisor.probe import free_port
from tests.e2e.service_process import ServiceProcess

TIMEOUT_WALL_S = 180.0


def healthy_view(instance: str, nodes: int) -> FabricView:
    """What MatrixLink says of an instance that has a whole fabric for itself."""
    fabric = healthy_fabric(nodes)
    planes = {}
    for plane in Plane:
        ports = {
            node: NodePorts(uplink_gbps=list(port.uplink_gbps), endpoint_gbps=list(port.endpoint_gbps))
            for node, port in fabric.ports[plane.value].items()
        }
        planes[plane] = PlaneView(nodes=ports, latency_us=fabric.latency_us[plane.value])
    return FabricView(slice="s", instance=instance, generation=1, planes=planes)


@contextmanager
def link_process(nodes: int) -> Iterator[str]:
    """Stands for MatrixLink; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            views = self.path.startswith("/v1/fabric-views/")
            body = healthy_view("i", nodes).text() if views else json.dumps({"reason": "NotFound", "detail": "no"})
            self.send_response(200 if views else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def until(what: Any, message: str) -> Any:
    """The first truthy answer of `what`."""
    end = time.monotonic() + TIMEOUT_WALL_S
    while time.monotonic() < end:
        try:
            if found := what():
                return found
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{message}: not within {TIMEOUT_WALL_S:g} s")


class Endpoint:
    """The process with the engines, and front ends before it."""

    def __init__(self, folder: Path, link: str, scale: float) -> None:
        arguments = [
            "--link-url",
            link,
            "--agents-url",
            "",
            "--resource-url",
            "",
            "--time-scale",
            f"{scale:g}",
            "--seed",
            "1",
        ]
        self.engine = ServiceProcess("infer", folder, arguments)
        self.front_ends: list[subprocess.Popen[bytes]] = []
        until(self.engine.ready, "CloudMatrix-Infer is ready")

    @property
    def url(self) -> str:
        return self.engine.url

    def serve(self, name: str = "r1", **spec: Any) -> None:
        """Have this deployment, serving."""
        answer = self.engine.http.put(f"/v1/deployments/{name}", json={"instance": "i", **spec})
        assert answer.is_success, answer.text
        until(lambda: self.serves(name), f"{name} serves")

    def serves(self, name: str = "r1") -> bool:
        return bool(self.engine.http.get(f"/v1/deployments/{name}").json()["state"] == "Serving")

    def front_end(self) -> str:
        """One more door; its URL."""
        port = free_port("127.0.0.1")
        command = [sys.executable, "-m", "services.infer.front_end", "--port", str(port), "--engine-url", self.url]
        self.front_ends.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        url = f"http://127.0.0.1:{port}"
        until(lambda: httpx.get(f"{url}/healthz", trust_env=False).is_success, "the front end listens")
        return url

    def usage(self, **params: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.engine.http.get("/v1/usage", params=params).json()["items"]
        return found

    def end(self) -> None:
        for process in [*self.front_ends, self.engine.process]:
            process.kill()
            process.wait()


@contextmanager
def endpoint(folder: Path, nodes: int = 8, scale: float = 60.0) -> Iterator[Endpoint]:
    """Both processes, ended afterwards."""
    with link_process(nodes) as link:
        running = Endpoint(folder, link, scale)
        try:
            yield running
        finally:
            running.end()
