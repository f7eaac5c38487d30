"""Steps that all demos share: request an instance, see it Active and serving, delete it, prove that nothing is left.

All requests go through REST and the Kubernetes API, as a user's would.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import NotFound
from matrixcommon.model.quantities import pluralized
from matrixcontainer.client.client import INFER, INSTANCE
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.kubernetes import Cluster
from services.matrixctl.demo.gauge import Gauge
from services.matrixctl.demo.step_runner import Step, check, wait_until
from services.matrixctl.output.columns import value_at
from services.matrixctl.output.screen import echo, table

TIMEOUT_WALL_S = 120.0
"""How long a step waits for its outcome on a busy machine; most take seconds."""
INPUT_TOKENS_MAX = 8192
EXPECTED_CONDITIONS = ("NodesReady", "LinksReady", "QosSatisfied", "Ready")


@dataclass
class DemoRun:
    """One run of a demo: its stack and its instance."""

    client: ApiClient
    cluster: Cluster
    manifest: Path
    name: str

    def __post_init__(self) -> None:
        self.gauge = Gauge(self.client, self.cluster, self.name)

    def instance(self) -> dict[str, Any]:
        """The instance as Kubernetes shows it; {} if there is none."""
        return self.cluster.instance(self.name) or {}

    def state(self) -> str:
        return str(value_at(self.instance(), "status.state") or "")

    def members(self) -> list[dict[str, Any]]:
        return value_at(self.instance(), "status.members") or []

    def progress(self) -> str:
        """The instance's progress, in one line."""
        view = self.instance()
        ready, desired = value_at(view, "status.readyNodes") or 0, value_at(view, "spec.nodes") or 0
        return f"{value_at(view, 'status.state') or 'not seen yet'}, {ready}/{desired} nodes ready"

    def active(self, nodes: int) -> bool:
        """Whether the instance is Active at that size, for its latest spec."""
        view = self.instance()
        return (
            value_at(view, "status.state") == "Active"
            and value_at(view, "status.readyNodes") == nodes
            and (value_at(view, "status.observedGeneration") or 0) >= value_at(view, "metadata.generation")
        )

    def slices(self) -> list[dict[str, Any]]:
        return [view for view in self.client.list("link", "/v1/slices") if view.get("allocation") == self.name]

    def serving(self) -> bool:
        return self.serving_state() == "Serving"

    def serving_state(self) -> str:
        return str(value_at(self.cluster.serving(self.name) or {}, "status.state") or "no state yet")

    def run_command(self, lines: list[str]) -> None:
        echo(f"   [bold]$ {self.cluster.last_command}[/]")
        for line in lines:
            echo(f"   {line}")

    def statistics(self) -> dict[str, Any]:
        """Serving statistics: latencies and the outcomes of requests."""
        found: dict[str, Any] = self.client.call("infer", "GET", f"/v1/deployments/{self.name}/statistics")
        return found

    def break_hardware(self, fault: str, kind: str, target: str, **parameters: Any) -> None:
        """Inject a fault into the emulated hardware. The control plane is not told."""
        body = {"kind": kind, "target": target, "parameters": parameters}
        self.client.call("agents", "PUT", f"/v1/faults/{fault}", body=body)

    def repair_hardware(self, *faults: str) -> None:
        """Clear these faults, as far as they exist."""
        for fault in faults:
            with suppress(NotFound):
                self.client.call("agents", "DELETE", f"/v1/faults/{fault}")

    def put_load(self, requests_per_second: float) -> float:
        """Offer this load from now on, open loop; returns the time."""
        body = {"requestsPerSecond": requests_per_second, "seed": 7, "inputTokensMax": INPUT_TOKENS_MAX}
        self.client.call("infer", "PUT", f"/v1/deployments/{self.name}/load", body=body)
        return self.gauge.mark("l", f"load {requests_per_second:g} requests per second")

    def stop_load(self) -> None:
        """Send no more requests; running ones finish."""
        with suppress(NotFound):
            self.client.call("infer", "DELETE", f"/v1/deployments/{self.name}/load")

    def close(self) -> None:
        """Release what the run holds, however it ended."""
        self.gauge.close()


def conditions(view: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in value_at(view, "status.conditions") or []}


# --- the steps


def apply(run: DemoRun) -> None:
    there = run.cluster.instance(run.name)
    check(there is None, f"{run.name} already exists; remove it with `kubectl delete cmi {run.name}`")
    run.run_command(run.cluster.apply(run.manifest))
    view = wait_until("the spec is stored", lambda: run.instance().get("spec"), TIMEOUT_WALL_S)
    spares = f" and {view['spares']} spare" if view.get("spares") else ""
    echo(f"   requested {pluralized(view['nodes'], 'node')}{spares}")


def become_active(run: DemoRun) -> None:
    desired = value_at(run.instance(), "spec.nodes")
    wait_until("becoming Active", lambda: run.active(desired), TIMEOUT_WALL_S, progress=run.progress)
    view = conditions(run.instance())
    check(all(view.get(kind) == "True" for kind in EXPECTED_CONDITIONS), f"Active, but its conditions are {view}")
    for kind in (INSTANCE, INFER):
        table(*run.cluster.table(kind))
    echo("   conditions that are True: " + ", ".join(kind for kind, status in view.items() if status == "True"))
    planes = {view["plane"]: view["state"] for view in run.slices()}
    check(sorted(planes) == ["rdma", "ub", "vpc"], f"expected a slice on each of three planes, found {planes}")
    echo("   slices: " + ", ".join(f"{plane} {state}" for plane, state in sorted(planes.items())))


def serve(run: DemoRun) -> None:
    wait_until("serving", run.serving, TIMEOUT_WALL_S, progress=run.serving_state)


def delete(run: DemoRun) -> None:
    run.stop_load()
    run.run_command(run.cluster.delete(run.manifest))

    def gone() -> bool:
        return run.cluster.instance(run.name) is None and run.cluster.serving(run.name) is None

    wait_until("releasing everything, step by step", gone, TIMEOUT_WALL_S, progress=run.progress)


def check_nothing_left(run: DemoRun) -> None:
    """Ask every service and the Kubernetes API."""
    left: dict[str, Callable[[], list[Any]]] = {
        "instances": lambda: run.client.list("compute", "/v1/instances"),
        "allocations": lambda: run.client.list("resource", "/v1/allocations"),
        "slices": lambda: run.client.list("link", "/v1/slices"),
        "deployments": lambda: run.client.list("infer", "/v1/deployments"),
        "pods": lambda: run.cluster.items("/api/v1/namespaces/default/pods"),
        "autoscalers": lambda: run.cluster.items("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"),
        "NPUs in use": lambda: [npu for npu in run.client.list("resource", "/v1/npus") if npu.get("allocation")],
        "nodes not Available": lambda: [
            node for node in run.client.list("resource", "/v1/nodes") if node["state"] != "Available"
        ],
    }
    for what, question in left.items():
        _wait_until_none(what, question)


def _wait_until_none(what: str, question: Callable[[], list[Any]]) -> None:
    """Wait until none is left (agents take a while to clean nodes), and print so."""
    seen: list[Any] = []

    def none_left() -> bool:
        seen[:] = question()
        return not seen

    wait_until(f"no {what}", none_left, TIMEOUT_WALL_S, progress=lambda: f"{len(seen)} left")
    echo(f"   {what}: 0")


@dataclass(frozen=True)
class Demo:
    """A demo: its steps, its manifest in the examples folder, and its time scale.

    `begin(reach, cluster, manifest)` creates the run that the steps share.
    """

    name: str
    title: str
    manifest: str
    steps: tuple[Step, ...]
    begin: Callable[[ApiClient, Cluster, Path], DemoRun]
    time_scale: float
