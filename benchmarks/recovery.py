"""Recovery in wall time: real processes at time scale 1, with the fastest settings and stages that take no time.

Runs MatrixResource, MatrixLink, the agents of one supernode and two MatrixComputes on PostgreSQL (one MatrixCompute on
SQLite if PostgreSQL is not available). Agents report every 0.1 s and are lost after two leases of 0.3 s. Faults are
injected through the agents' own API, and their effects are read as by any client: a node is detected when a watch of
MatrixResource's nodes shows it as lost; the parts of a repair come from the operation.
"""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

import matrixlink.agent
import matrixresource.agent
from benchmarks import Figure
from tests.e2e.service_process import ServiceProcess
from tests.matrixcontainer.kubeapi.postgres import a_postgres, has_postgres

FAST = {
    "resource": ["--lease-watch", "0.1"],
    "node_agent": ["--heartbeat", "0.1", "--lease", "0.3"],
    "compute": ["--leader-lease", "0.5"],
}
STAGES = {
    "--stages": Path(matrixresource.agent.__file__).parent / "node_stages.yaml",
    "--link-stages": Path(matrixlink.agent.__file__).parent / "link_stages.yaml",
}
TIMEOUT_WALL_S = 60.0
POLL_INTERVAL_S = 0.02
"""Polling interval while waiting for a repair: with a much shorter one, the services would be busy with the polling."""
ROUNDS = 12
"""Rounds for each kind of loss."""


def measure() -> Iterator[Figure]:
    with contextlib.ExitStack() as after:
        folder = Path(after.enter_context(tempfile.TemporaryDirectory(prefix="cm-bench-")))
        stack = Processes(folder)
        after.callback(stack.kill)
        database = after.enter_context(a_postgres()) if has_postgres() else ""
        stack.begin(database)
        yield from measure_losses(stack)
        yield from measure_growth(stack)
        yield from measure_crashes(stack)


class Processes:
    """The running services, and requests to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services: dict[str, ServiceProcess] = {}

    def begin(self, database: str) -> None:
        """Start all services and return when every node is available."""
        own_stages: list[str] = []
        for flag, builtin in STAGES.items():
            file = self.folder / builtin.name
            file.write_text(yaml.safe_dump(remove_delays(builtin)))
            own_stages += [flag, str(file)]
        began = ["--time-scale", "1", "--time-anchor-wall", str(time.time())]
        began += ["--time-anchor-emulated", str(time.time())]
        self.services["resource"] = ServiceProcess("resource", self.folder, [*began, *FAST["resource"]])
        self.services["link"] = ServiceProcess(
            "link", self.folder, [*began, "--resource-url", self.services["resource"].url]
        )
        near = ["--resource-url", self.services["resource"].url, "--link-url", self.services["link"].url]
        self.services["agents"] = ServiceProcess(
            "node_agent", self.folder, [*began, *near, *FAST["node_agent"], *own_stages]
        )
        # Nothing serves on these instances; without this, a service at the default address would be asked.
        own = [*began, *near, "--infer-url", "", *FAST["compute"], *(["--database", database] if database else [])]
        for name in ("one", "two") if database else ("one",):
            self.services[name] = ServiceProcess("compute", self.folder, own)
        for process in self.services.values():
            wait_until(process.ready)
        wait_until(lambda: {node["state"] for node in self.services["resource"].items("nodes")} == {"Available"})
        wait_until(lambda: any(each.leads() for each in self.compute_processes))

    def kill(self) -> None:
        for process in self.services.values():
            process.kill()

    @property
    def compute_processes(self) -> list[ServiceProcess]:
        return [self.services[name] for name in ("one", "two") if name in self.services]

    def inject_fault(self, name: str, kind: str, target: str) -> None:
        answer = self.services["agents"].http.put(f"/v1/faults/{name}", json={"kind": kind, "target": target})
        assert answer.is_success, answer.text

    def clear_fault(self, name: str) -> None:
        self.services["agents"].http.delete(f"/v1/faults/{name}")

    def members(self, name: str) -> list[dict[str, Any]]:
        answer = self.services["resource"].http.get(f"/v1/allocations/{name}")
        return list(answer.json()["members"]) if answer.is_success else []

    def serving(self) -> list[str]:
        """Return the members of the instance that receives the faults."""
        return [str(member["node"]) for member in self.members("served") if member["role"] == "member"]

    def is_active(self, name: str, nodes: int) -> bool:
        shown = self.services["one"].http.get(f"/v1/instances/{name}").json()
        return shown["state"] == "Active" and shown["readyNodes"] == nodes


def remove_delays(builtin: Path) -> dict[str, Any]:
    """Return the built-in stages with durations of zero."""
    stages: dict[str, list[dict[str, Any]]] = yaml.safe_load(builtin.read_text())
    for work in stages.values():
        for stage in work:
            stage.update(delay_s=0, jitter_s=0)
    return stages


def wait_until(condition: Callable[[], bool], every_s: float = 0.005) -> float:
    """Poll until it holds, and return the time at which it did (monotonic clock)."""
    gives_up = time.monotonic() + TIMEOUT_WALL_S
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if condition():
                return time.monotonic()
        if time.monotonic() > gives_up:
            raise SystemExit("the benchmark timed out: see the services' logs")
        time.sleep(every_s)


class LossWatch:
    """Records when each node was first shown as lost, with a watch of MatrixResource's nodes."""

    def __init__(self, url: str) -> None:
        self.lost: dict[str, float] = {}
        self._url = url
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        version = httpx.get(f"{self._url}/v1/nodes?pageSize=1", trust_env=False).json()["resourceVersion"]
        asked = {"watch": "true", "resourceVersion": version}
        stream = httpx.stream("GET", f"{self._url}/v1/nodes", params=asked, timeout=None, trust_env=False)
        with contextlib.suppress(httpx.HTTPError), stream as answer:  # it ends with the service
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    self._take(json.loads(line[5:]))

    def _take(self, node: dict[str, Any]) -> None:
        if node.get("agent") == "Lost":
            self.lost.setdefault(node["name"], time.monotonic())
        else:
            self.lost.pop(node.get("name", ""), None)


def measure_losses(stack: Processes) -> Iterator[Figure]:
    """Lose a node, an agent and a cabinet of an instance of four nodes with four spares."""
    watch = LossWatch(stack.services["resource"].url)
    stack.services["one"].http.put("/v1/instances/served", json={"nodes": 4, "spares": 4, "placement": CABINET})
    wait_until(lambda: stack.is_active("served", 4))
    # Not counted: services that have just started ask for longer leases.
    inject_loss(stack, watch, "node-down", stack.serving()[:1])
    whole: list[float] = []
    for kind in ("node-down", "agent-hang"):
        each = [inject_loss(stack, watch, kind, stack.serving()[:1]) for _ in range(ROUNDS)]
        whole += [loss.whole_s for loss in each]
        found = [loss.found_s for loss in each]
        yield Figure(f"{kind}: until it was found, P50", median(found), "s", "from the fault to a watch of nodes")
        yield Figure(f"{kind}: until it was found, worst", max(found), "s", f"{ROUNDS} times", 1)
    yield Figure("member replaced from spares, P50", median(whole), "s", f"from found to Active, {len(whole)} times", 3)
    yield Figure("member replaced from spares, worst", max(whole), "s", "the same", 3)
    dark = [inject_loss(stack, watch, "node-down", stack.serving()) for _ in range(ROUNDS)]
    method = f"the operation's part, four nodes at once, {ROUNDS} times"
    yield Figure("cabinet fenced once it was found, worst", max(loss.fenced_s for loss in dark), "s", method, 0.2)
    method = "from found to Active, four nodes at once"
    yield Figure("cabinet replaced from spares, worst", max(loss.whole_s for loss in dark), "s", method)


CABINET = {"blocks": [{"nodes": 4, "level": "cabinet"}]}


@dataclass(frozen=True)
class Loss:
    """Seconds from the fault until its last node was detected, from then until all were fenced, and until the instance
    was Active again."""

    found_s: float
    fenced_s: float
    whole_s: float


def inject_loss(stack: Processes, watch: LossWatch, kind: str, nodes: list[str]) -> Loss:
    """Inject faults into these members, wait for the repair, and restore everything."""
    began = time.monotonic()
    for node in nodes:
        stack.inject_fault(f"on-{node}", kind, node)
    wait_until(lambda: watch.lost.keys() >= set(nodes))
    found = max(watch.lost[node] for node in nodes)
    wait_until(lambda: not {*nodes} & {*stack.serving()}, POLL_INTERVAL_S)
    whole = wait_until(lambda: stack.is_active("served", 4), POLL_INTERVAL_S)
    repairs = [each for each in stack.services["one"].items("operations") if each["verb"] == "replace-node"]
    for node in nodes:
        stack.clear_fault(f"on-{node}")
    wait_until(lambda: all_recovered(stack), 0.05)
    return Loss(found - began, float(max(repairs, key=started_at)["recovery"]["fenceS"]), whole - found)


def started_at(operation: dict[str, Any]) -> str:
    return str(operation["startedAt"])


def all_recovered(stack: Processes) -> bool:
    """Whether every node works and the instance has its spares."""
    nodes = stack.services["resource"].items("nodes")
    for node in nodes:
        if node["state"] == "Quarantined" and node["agent"] == "Connected":
            # It has failed too often to return to service by itself, or is about to.
            stack.services["resource"].http.post(f"/v1/nodes/{node['name']}:recover", json={})
    spares = sum(member["role"] == "spare" for member in stack.members("served"))
    return spares == 4 and all(node["state"] in ("Available", "Active", "Spare") for node in nodes)


def measure_growth(stack: Processes) -> Iterator[Figure]:
    """Raise the minimum of a scaling policy, and time from the request until the members are allocated."""
    stack.services["one"].http.put("/v1/instances/scaled", json={"nodes": 1})
    wait_until(lambda: stack.is_active("scaled", 1))
    took = [grow(stack, least) for least in range(2, 2 + ROUNDS)]
    yield Figure(
        "autoscaling: floor raised to members allocated, P50", median(took), "s", f"{ROUNDS} steps of a node", 1
    )
    yield Figure("autoscaling: floor raised to members allocated, worst", max(took), "s", "the same", 1)


def grow(stack: Processes, least: int) -> float:
    body = {"scaleTargetRef": {"name": "scaled"}, "minReplicas": least, "maxReplicas": 20}
    began = time.monotonic()
    answer = stack.services["one"].http.put("/v1/scaling-policies/floor", json=body)
    assert answer.is_success, answer.text
    allocated = wait_until(lambda: len(stack.members("scaled")) >= least)
    wait_until(lambda: stack.is_active("scaled", least))
    return allocated - began


def measure_crashes(stack: Processes) -> Iterator[Figure]:
    """Time from kill -9 of the leader until a write is acknowledged and another replica leads."""
    if len(stack.compute_processes) == 2:
        took = [measure_handover(stack, number) for number in range(ROUNDS)]
        yield Figure("MatrixCompute killed, a replica writes and leads, worst", max(took), "s", f"{ROUNDS} times", 1)
        stack.services.pop("two").kill()
        wait_until(stack.services["one"].leads)
    alone = [measure_restart(stack, ROUNDS + number) for number in range(ROUNDS // 3)]
    method = f"{len(alone)} times, the start of the process included"
    yield Figure("MatrixCompute killed alone, until it writes, worst", max(alone), "s", method, 5)


def measure_handover(stack: Processes, number: int) -> float:
    leader = next(each for each in stack.compute_processes if each.leads())
    other = next(each for each in stack.compute_processes if each is not leader)
    began = time.monotonic()
    leader.kill()
    took = wait_until(lambda: has_written(other, number) and other.leads()) - began
    leader.start()
    wait_until(leader.ready)
    return took


def measure_restart(stack: Processes, number: int) -> float:
    began = time.monotonic()
    stack.services["one"].kill()
    stack.services["one"].start()
    return wait_until(lambda: has_written(stack.services["one"], number) and stack.services["one"].leads()) - began


def has_written(compute: ServiceProcess, number: int) -> bool:
    return compute.http.put(f"/v1/instances/w{number}", json={"nodes": 1}).is_success


def median(values: list[float]) -> float:
    return sorted(values)[math.ceil(len(values) / 2) - 1]
