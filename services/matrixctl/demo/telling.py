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
from matrixcommon.model.quantities import counted
from matrixcontainer.client.client import INFER, INSTANCE
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.kubernetes import Cluster
from services.matrixctl.demo.gauge import Gauge
from services.matrixctl.demo.story import Step, check, until
from services.matrixctl.output.columns import dig
from services.matrixctl.output.screen import say, table

PATIENCE_WALL_S = 120.0
"""How long a step waits for its outcome on a busy machine; most take seconds."""
INPUT_TOKENS_MAX = 8192
PASSING = ("NodesReady", "LinksReady", "QosSatisfied", "Ready")


@dataclass
class Telling:
    """One run of a demo: its stack and its instance."""

    reach: ApiClient
    cluster: Cluster
    manifest: Path
    name: str

    def __post_init__(self) -> None:
        self.gauge = Gauge(self.reach, self.cluster, self.name)

    def instance(self) -> dict[str, Any]:
        """The instance as Kubernetes shows it; {} if there is none."""
        return self.cluster.instance(self.name) or {}

    def state(self) -> str:
        return str(dig(self.instance(), "status.state") or "")

    def members(self) -> list[dict[str, Any]]:
        return dig(self.instance(), "status.members") or []

    def progress(self) -> str:
        """The instance's progress, in one line."""
        view = self.instance()
        ready, desired = dig(view, "status.readyNodes") or 0, dig(view, "spec.nodes") or 0
        return f"{dig(view, 'status.state') or 'not seen yet'}, {ready}/{desired} nodes ready"

    def active(self, nodes: int) -> bool:
        """Whether the instance is Active at that size, for its latest spec."""
        view = self.instance()
        return (
            dig(view, "status.state") == "Active"
            and dig(view, "status.readyNodes") == nodes
            and (dig(view, "status.observedGeneration") or 0) >= dig(view, "metadata.generation")
        )

    def slices(self) -> list[dict[str, Any]]:
        return [view for view in self.reach.list("link", "/v1/slices") if view.get("allocation") == self.name]

    def serving(self) -> bool:
        return self.serving_text() == "Serving"

    def serving_text(self) -> str:
        return str(dig(self.cluster.serving(self.name) or {}, "status.state") or "no state yet")

    def run_and_say(self, lines: list[str]) -> None:
        say(f"   [bold]$ {self.cluster.last_command}[/]")
        for line in lines:
            say(f"   {line}")

    def statistics(self) -> dict[str, Any]:
        """Serving statistics: latencies and the outcomes of requests."""
        found: dict[str, Any] = self.reach.call("infer", "GET", f"/v1/deployments/{self.name}/statistics")
        return found

    def break_hardware(self, fault: str, kind: str, target: str, **parameters: Any) -> None:
        """Inject a fault into the emulated hardware. The control plane is not told."""
        body = {"kind": kind, "target": target, "parameters": parameters}
        self.reach.call("agents", "PUT", f"/v1/faults/{fault}", body=body)

    def repair_hardware(self, *faults: str) -> None:
        """Clear these faults, as far as they exist."""
        for fault in faults:
            with suppress(NotFound):
                self.reach.call("agents", "DELETE", f"/v1/faults/{fault}")

    def put_load(self, requests_per_second: float) -> float:
        """Offer this load from now on, open loop; returns the time."""
        body = {"requestsPerSecond": requests_per_second, "seed": 7, "inputTokensMax": INPUT_TOKENS_MAX}
        self.reach.call("infer", "PUT", f"/v1/deployments/{self.name}/load", body=body)
        return self.gauge.mark("l", f"load {requests_per_second:g} requests per second")

    def stop_load(self) -> None:
        """Send no more requests; running ones finish."""
        with suppress(NotFound):
            self.reach.call("infer", "DELETE", f"/v1/deployments/{self.name}/load")

    def end(self) -> None:
        """Release what the run holds, however it ended."""
        self.gauge.end()


def conditions(view: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in dig(view, "status.conditions") or []}


# --- the steps


def apply(telling: Telling) -> None:
    there = telling.cluster.instance(telling.name)
    check(there is None, f"{telling.name} already exists; remove it with `kubectl delete cmi {telling.name}`")
    telling.run_and_say(telling.cluster.apply(telling.manifest))
    view = until("the spec is stored", lambda: telling.instance().get("spec"), PATIENCE_WALL_S)
    spares = f" and {view['spares']} spare" if view.get("spares") else ""
    say(f"   requested {counted(view['nodes'], 'node')}{spares}")


def become_active(telling: Telling) -> None:
    desired = dig(telling.instance(), "spec.nodes")
    until("becoming Active", lambda: telling.active(desired), PATIENCE_WALL_S, progress=telling.progress)
    view = conditions(telling.instance())
    check(all(view.get(kind) == "True" for kind in PASSING), f"Active, but its conditions are {view}")
    for kind in (INSTANCE, INFER):
        table(*telling.cluster.table(kind))
    say("   conditions that are True: " + ", ".join(kind for kind, status in view.items() if status == "True"))
    planes = {view["plane"]: view["state"] for view in telling.slices()}
    check(sorted(planes) == ["rdma", "ub", "vpc"], f"expected a slice on each of three planes, found {planes}")
    say("   slices: " + ", ".join(f"{plane} {state}" for plane, state in sorted(planes.items())))


def serve(telling: Telling) -> None:
    until("serving", telling.serving, PATIENCE_WALL_S, progress=telling.serving_text)


def delete(telling: Telling) -> None:
    telling.stop_load()
    telling.run_and_say(telling.cluster.delete(telling.manifest))

    def gone() -> bool:
        return telling.cluster.instance(telling.name) is None and telling.cluster.serving(telling.name) is None

    until("releasing everything, step by step", gone, PATIENCE_WALL_S, progress=telling.progress)


def nothing_left(telling: Telling) -> None:
    """Ask every service and the Kubernetes API."""
    left: dict[str, Callable[[], list[Any]]] = {
        "instances": lambda: telling.reach.list("compute", "/v1/instances"),
        "allocations": lambda: telling.reach.list("resource", "/v1/allocations"),
        "slices": lambda: telling.reach.list("link", "/v1/slices"),
        "deployments": lambda: telling.reach.list("infer", "/v1/deployments"),
        "pods": lambda: telling.cluster.items("/api/v1/namespaces/default/pods"),
        "autoscalers": lambda: telling.cluster.items(
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
        ),
        "NPUs in use": lambda: [npu for npu in telling.reach.list("resource", "/v1/npus") if npu.get("allocation")],
        "nodes not Available": lambda: [
            node for node in telling.reach.list("resource", "/v1/nodes") if node["state"] != "Available"
        ],
    }
    for what, question in left.items():
        _none(what, question)


def _none(what: str, question: Callable[[], list[Any]]) -> None:
    """Wait until none is left (agents take a while to clean nodes), and print so."""
    seen: list[Any] = []

    def none_left() -> bool:
        seen[:] = question()
        return not seen

    until(f"no {what}", none_left, PATIENCE_WALL_S, progress=lambda: f"{len(seen)} left")
    say(f"   {what}: 0")


@dataclass(frozen=True)
class Story:
    """A demo: its steps, its manifest in the examples folder, and its time scale.

    `begin(reach, cluster, manifest)` creates the run that the steps share.
    """

    name: str
    title: str
    manifest: str
    steps: tuple[Step, ...]
    begin: Callable[[ApiClient, Cluster, Path], Telling]
    time_scale: float
