"""A stack of real processes for tests: real ports, a kubeconfig, and emulated time many times faster than wall time.

For operators in other languages and any test that needs sockets. It is the stack that `matrixctl up` starts, in its own
folder; a test that needs a clean one resets it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matrixcommon.api.client import resource_path
from matrixcommon.model.errors import InvalidField
from services.catalogue import BY_NAME
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.kubernetes import Cluster, stack_cluster
from services.matrixctl.snapshots import snapshot as snapshots
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import StateFolder
from services.matrixctl.supervisor.up import start_supervisor, stop_stack, watch_until_ready
from services.snapshots.archive import Manifest

TIME_SCALE = 600.0
READY_TIMEOUT_WALL_S = 120.0
TIMEOUT_WALL_S = 10.0


class LiveStack:
    """`with LiveStack(folder) as stack`."""

    def __init__(self, folder: Path, *, time_scale: float = TIME_SCALE, seed: int | None = None) -> None:
        self.folder = StateFolder(folder)
        self._request = StackRequest(scale=time_scale, seed=seed)

    def start(self) -> None:
        """Start the stack and wait for it. Raises InternalError naming the processes that are not ready in time."""
        supervisor = start_supervisor(self.folder, self._request.to_json())
        for _ in watch_until_ready(self.folder, supervisor, READY_TIMEOUT_WALL_S):
            pass

    def stop(self) -> None:
        stop_stack(self.folder)

    def snapshot(self, file: str | Path) -> Manifest:
        """Write the stack's current state to a file."""
        return snapshots.take_snapshot(self.folder, Path(file)).manifest

    def reset(self, snapshot: str | Path | None = None) -> None:
        """Start over, empty or from a snapshot; the stack is ready on return. Raises InvalidField, UnknownSnapshot."""
        if snapshot is None:
            self._request = snapshots.reset(self.folder)
        else:
            _, self._request = snapshots.restore(self.folder, Path(snapshot), keep=False)
        self.start()

    def __enter__(self) -> LiveStack:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def kubeconfig(self) -> Path:
        return self.folder.kubeconfig

    def url(self, service: str) -> str:
        """Return the URL of a process, such as `compute` or `kube`. Raises InvalidField."""
        stack = self.folder.read()
        if service not in BY_NAME or stack is None or service not in stack.children:
            raise InvalidField(f"unknown process {service!r}; processes: {', '.join(BY_NAME)}", field="service")
        return stack.children[service].url

    @property
    def token(self) -> str:
        """An administrator's bearer token."""
        return self.folder.admin_token()

    @property
    def client(self) -> ApiClient:
        """A client of the services, which retries a service that is briefly unavailable."""
        found = ApiClient.of(self.folder)
        found.timeout_wall_s = TIMEOUT_WALL_S
        return found

    @property
    def cluster(self) -> Cluster:
        """A client of the Kubernetes API, to read and apply objects."""
        found = stack_cluster(self.folder)
        found.timeout_wall_s = TIMEOUT_WALL_S
        return found

    def apply(self, *objects: dict[str, Any]) -> None:
        """Server-side apply objects, given as dicts. Raises the API's error."""
        cluster = self.cluster
        for each in objects:
            cluster.apply_object(each)

    def inject(self, kind: str, target: str, name: str = "", **parameters: Any) -> str:
        """Break emulated hardware and return the fault's name. Raises the service's error."""
        chosen = name or f"{kind}-{target}".lower()
        body = {"kind": kind, "target": target, "parameters": parameters}
        self.client.call("agents", "PUT", resource_path("faults", chosen), body=body)
        return chosen

    def repair(self, name: str) -> None:
        """Remove a fault. Raises NotFound."""
        self.client.call("agents", "DELETE", resource_path("faults", name))
