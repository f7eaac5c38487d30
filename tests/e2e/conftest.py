"""A whole stack as processes, for tests that want the real thing: emulated time sixty times the wall's."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.errors import MatrixError
from matrixresource.contract.allocations import DEPLOYMENT_LABEL
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.kubernetes import Cluster, stack_cluster
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import Stack, StateFolder
from services.matrixctl.supervisor.up import stack_report, start_supervisor, stop_stack, watch_until_ready

TIMEOUT_WALL_S = 90.0


def eventually(what: Callable[[], Any], message: str, timeout_wall_s: float = TIMEOUT_WALL_S) -> Any:
    """The first truthy answer, asked again while a service is away; fails with the last thing seen."""
    until = time.monotonic() + timeout_wall_s
    seen: Any = None
    while time.monotonic() < until:
        try:
            seen = what()
            if seen:
                return seen
        except MatrixError as away:
            seen = away
        time.sleep(0.1)
    raise AssertionError(f"{message}: not within {timeout_wall_s:g} s; last seen: {seen!r}")


class RealStack:
    """One stack and the ways to reach it."""

    def __init__(self, path: Path, database: str = "", scale: float = 60.0) -> None:
        self.folder = StateFolder(path)
        self.request = StackRequest(scale=scale, database=database).to_json()
        self._cluster: tuple[str, Cluster] | None = None

    def up(self, timeout_wall_s: float = TIMEOUT_WALL_S) -> None:
        for _ in watch_until_ready(self.folder, start_supervisor(self.folder, self.request), timeout_wall_s):
            pass

    @property
    def client(self) -> ApiClient:
        """As it is now: a process whose port another stack took while it was dead has another since."""
        return ApiClient.of(self.folder)

    @property
    def cluster(self) -> Cluster:
        """The same of the Kubernetes API, by what its kubeconfig says."""
        current = self.folder.kubeconfig.read_text() if self.folder.kubeconfig.exists() else ""
        if self._cluster is None or current not in ("", self._cluster[0]):
            self._cluster = current, stack_cluster(self.folder)
        return self._cluster[1]

    def stack(self) -> Stack:
        stack = self.folder.read()
        assert stack is not None
        return stack

    def all_ready(self) -> bool:
        return stack_report(self.folder).ready

    def instance(self, name: str) -> dict[str, Any]:
        """The CloudMatrixInstance, {} where there is none."""
        return self.cluster.instance(name) or {}

    def state(self, name: str) -> str:
        return str((self.instance(name).get("status") or {}).get("state", ""))

    def active(self, name: str) -> bool:
        """Active for the spec it was last given, every member ready."""
        current = self.instance(name)
        status = current.get("status") or {}
        return (
            status.get("state") == "Active"
            and status.get("readyNodes") == current["spec"]["nodes"]
            and status.get("observedGeneration", 0) >= current["metadata"]["generation"]
        )

    def members(self, name: str) -> list[str]:
        """Nodes of the instance, without its spares."""
        current = self.client.call("resource", "GET", f"/v1/allocations/{name}")
        return [member["node"] for member in current["members"] if member["role"] == "member"]

    def violated_invariants(self, allocated: Collection[str] = ()) -> list[str]:
        """What must never be: an NPU of two owners, a thing without an owner. `allocated`: allocations of somebody's own."""
        listed = {item["name"]: item for item in self.client.list("resource", "/v1/allocations")}
        # The memory of caches is the deployment's, and lies on nodes that its instance has.
        allocations = {name: each for name, each in listed.items() if DEPLOYMENT_LABEL not in each["labels"]}
        instances = {item["name"] for item in self.client.list("compute", "/v1/instances")}
        slices = self.client.list("link", "/v1/slices")
        pods = self.cluster.items("/api/v1/namespaces/default/pods")
        infers = {item["metadata"]["name"] for item in self.cluster.items(CMINF)}
        wrong = []
        holders: dict[str, list[str]] = {}
        workers: dict[str, str] = {}
        for name, allocation in allocations.items():
            for member in allocation["members"]:
                holders.setdefault(member["node"], []).append(name)
                if member["role"] == "member":
                    workers[member["node"]] = name
        wrong += [f"{node} is held by {names}" for node, names in holders.items() if len(names) > 1]
        for npu in self.client.list("resource", "/v1/npus"):
            by = workers.get(npu["node"])
            if npu.get("allocation") != by:
                wrong.append(f"{npu['name']} says {npu.get('allocation')}, its node works for {by}")
        wrong += [f"allocation {name} has no instance" for name in allocations.keys() - instances - set(allocated)]
        wrong += [
            f"slice {current['name']} has no allocation"
            for current in slices
            if current["allocation"] not in allocations
        ]
        for pod in pods:
            owners = [owner["name"] for owner in pod["metadata"].get("ownerReferences", [])]
            if not set(owners) & infers:
                wrong.append(f"pod {pod['metadata']['name']} has no owner, of {owners}")
        return wrong

    def all_nodes_free(self) -> bool:
        """Nodes that came and went too often stay out until somebody has looked at them (decision 481), who does so here."""
        nodes = self.client.list("resource", "/v1/nodes")
        for node in nodes:
            if (node["state"], node.get("stateReason")) == ("Quarantined", "Flapping"):
                self.client.call("resource", "POST", f"/v1/nodes/{node['name']}:recover")
        return all(node["state"] == "Available" for node in nodes)

    def kill(self, name: str) -> None:
        """kill -9 of the process of that name."""
        import os
        import signal

        holder = self.folder.process_lock(name).holder()
        if holder is not None:
            os.kill(holder.pid, signal.SIGKILL)


CMINF = "/apis/cloudmatrix.io/v1alpha1/namespaces/default/cloudmatrixinfers"


@pytest.fixture(scope="module")
def real_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealStack]:
    stack = RealStack(tmp_path_factory.mktemp("stack") / "state")
    stack.up()
    yield stack
    stop_stack(stack.folder)
