"""What users and hardware do to a stack all day, drawn from a seed: one request after the other, over REST and the
Kubernetes API."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from matrixcommon.model.errors import Conflict, InvalidField, MatrixError, NotFound, PreconditionFailed, Unavailable
from tests.e2e.conftest import RealStack

REFUSALS = (Conflict, NotFound, InvalidField, PreconditionFailed)
"""What somebody who asks at random must expect. Everything else is an error."""
SERVED = "served"
NODES_AT_MOST = 34
FAULTS_AT_MOST = 4
RETRY_WALL_S = 60.0
"""How long a completion may be unavailable."""
INSTANCES = "/apis/cloudmatrix.io/v1alpha1/namespaces/default/cloudmatrixinstances"


@dataclass
class Tally:
    """Requests by what came of them; the worst time of one, s of the wall."""

    requests: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    worst_wall_s: float = 0.0
    worst_of: str = ""
    actions: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        refused = ", ".join(f"{name} {count}" for name, count in self.refused.most_common())
        return (
            f"{self.requests} requests sent, {len(self.errors)} errors, refused as expected: {refused or 'none'};"
            f" slowest {self.worst_wall_s:.2f} s ({self.worst_of})"
        )


class Churn:
    """Somebody who does one thing after the other."""

    def __init__(self, stack: RealStack, seed: int) -> None:
        self.stack = stack
        self.random = Random(seed)
        self.tally = Tally()
        self.numbers = itertools.count()
        self.instances: dict[str, int] = {}
        self.custom: dict[str, int] = {}
        """CloudMatrixInstances by their nodes, as `instances` are of REST."""
        self.allocations: dict[str, str] = {}
        self.faults: list[str] = []
        self.cordoned: list[str] = []
        self.nodes = [node["name"] for node in stack.client.list("resource", "/v1/nodes")]
        self.switches = [switch["name"] for switch in stack.client.list("link", "/v1/switches")]

    def step(self) -> None:
        actions: list[tuple[Callable[[], Any], int]] = [
            (self.create, 6), (self.delete, 5), (self.resize, 4), (self.move, 1), (self.renew, 1),
            (self.apply, 2), (self.remove, 2), (self.inject, 2), (self.clear, 3), (self.cordon, 1), (self.uncordon, 2),
            (self.hold, 2), (self.free, 2), (self.plan, 1), (self.look, 4), (self.watch, 1), (self.complete, 3),
            (self.mistake, 2),
        ]  # fmt: skip
        action = self.random.choices([what for what, _ in actions], [weight for _, weight in actions])[0]
        self.tally.actions[action.__name__] += 1
        action()

    def ask(self, what: str, call: Callable[[], Any]) -> Any:
        """The answer, None where it was refused."""
        self.tally.requests += 1
        begun = time.monotonic()
        try:
            return call()
        except REFUSALS as refusal:
            self.tally.refused[refusal.reason] += 1
        except MatrixError as error:
            self.tally.errors.append(f"{what}: {error.reason}: {error.message[:200]}")
        finally:
            if (took := time.monotonic() - begun) > self.tally.worst_wall_s:
                self.tally.worst_wall_s, self.tally.worst_of = took, what
        return None

    def rest(self, service: str, method: str, path: str, body: Any = None, params: dict[str, Any] | None = None) -> Any:
        call = self.stack.client.call
        return self.ask(f"{method} {service}{path}", lambda: call(service, method, path, body=body, params=params))

    def name(self, kind: str) -> str:
        return f"{kind}{next(self.numbers)}"

    def of(self, names: Any) -> str | None:
        known = sorted(names)
        return self.random.choice(known) if known else None

    def in_use(self) -> int:
        return sum(self.instances.values()) + sum(self.custom.values()) + len(self.allocations)

    # --- instances

    def create(self) -> None:
        nodes, spares = self.random.randint(1, 6), self.random.randint(0, 1)
        if self.in_use() + nodes + spares <= NODES_AT_MOST:
            name = self.name("i")
            if self.rest("compute", "PUT", f"/v1/instances/{name}", {"nodes": nodes, "spares": spares}):
                self.instances[name] = nodes + spares

    def delete(self) -> None:
        if name := self.of(self.instances):
            self.rest("compute", "DELETE", f"/v1/instances/{name}")
            del self.instances[name]

    def resize(self) -> None:
        if name := self.of(self.instances):
            nodes = self.random.randint(1, 6)
            if self.in_use() - self.instances[name] + nodes <= NODES_AT_MOST:
                self.rest("compute", "POST", f"/v1/instances/{name}:resize", params={"nodes": str(nodes)})
                self.instances[name] = max(self.instances[name], nodes + 1)

    def move(self) -> None:
        if name := self.of(self.instances):
            policy = self.random.choice(["pack", "spread"])
            self.rest("compute", "POST", f"/v1/instances/{name}:move", {"policy": policy, "level": "cabinet"})

    def renew(self) -> None:
        if name := self.of(self.instances):
            self.rest("compute", "POST", f"/v1/instances/{name}:renew", {"leaseS": 1e7})

    # --- CloudMatrixInstances

    def apply(self) -> None:
        nodes = self.random.randint(1, 3)
        if self.in_use() + nodes <= NODES_AT_MOST:
            name = self.name("c")
            body = {
                "apiVersion": "cloudmatrix.io/v1alpha1", "kind": "CloudMatrixInstance", "metadata": {"name": name},
                "spec": {"nodes": nodes},
            }  # fmt: skip
            if self.ask("create cmi", lambda: self.stack.cluster.send("POST", INSTANCES, json=body)):
                self.custom[name] = nodes

    def remove(self) -> None:
        if name := self.of(self.custom):
            self.ask("delete cmi", lambda: self.stack.cluster.send("DELETE", f"{INSTANCES}/{name}"))
            del self.custom[name]

    # --- hardware

    def inject(self) -> None:
        if len(self.faults) >= FAULTS_AT_MOST:
            return self.clear()
        kind, target, parameters = self.random.choice(
            [
                ("node-down", self.of(self.nodes), {}),
                ("agent-hang", self.of(self.nodes), {}),
                ("npu-fault", self.of(self.nodes), {"npu": self.random.randrange(8), "die": self.random.randrange(2)}),
                ("link-down", self.of(self.nodes), {"port": f"ub-p{self.random.randrange(7)}-k0?"}),
                ("link-degraded", self.of(self.nodes), {"port": "ub-p3-k11", "share": 0.5}),
                ("link-silent", self.of(self.nodes), {"port": "ub-p2-k05"}),
                ("switch-down", self.of(self.switches), {}),
                ("tables-lost", self.of(self.nodes), {}),
            ]
        )
        name = self.name("f")
        body = {"kind": kind, "target": target, "parameters": parameters}
        if self.rest("agents", "PUT", f"/v1/faults/{name}", body):
            self.faults.append(name)
        return None

    def clear(self) -> None:
        if self.faults:
            self.rest("agents", "DELETE", f"/v1/faults/{self.faults.pop(0)}")

    def cordon(self) -> None:
        if len(self.cordoned) < 2:
            node = self.random.choice(self.nodes)
            self.rest("resource", "POST", f"/v1/nodes/{node}:cordon")
            self.cordoned.append(node)

    def uncordon(self) -> None:
        if self.cordoned:
            self.rest("resource", "POST", f"/v1/nodes/{self.cordoned.pop()}:uncordon")

    # --- allocations and slices of somebody's own

    def hold(self) -> None:
        if self.in_use() < NODES_AT_MOST:
            name = self.name("a")
            found = self.rest("resource", "PUT", f"/v1/allocations/{name}", {"nodes": 1, "leaseS": 9e8})
            if found:
                node = found["members"][0]["node"]
                self.allocations[name] = node
                body = {
                    "allocation": name, "instance": name, "plane": self.random.choice(["ub", "rdma"]),
                    "members": [node], "qosClass": "BestEffort", "weight": 2,
                }  # fmt: skip
                self.rest("link", "PUT", f"/v1/slices/{name}-s", body)

    def free(self) -> None:
        if name := self.of(self.allocations):
            self.rest("link", "DELETE", f"/v1/slices/{name}-s")
            self.rest("resource", "DELETE", f"/v1/allocations/{name}")
            del self.allocations[name]

    # --- readers, and people who err

    def plan(self) -> None:
        self.rest("resource", "POST", "/v1/plans", {"nodes": self.random.randint(1, 40)})

    def look(self) -> None:
        service, path = self.random.choice(
            [
                ("resource", "/v1/nodes"), ("resource", "/v1/npus"), ("resource", "/v1/domains"),
                ("link", "/v1/links"), ("link", "/v1/telemetry"), ("link", "/v1/events"), ("compute", "/v1/operations"),
                ("compute", "/v1/events"), ("compute", "/v1/faults"), ("infer", "/v1/deployments"),
            ]
        )  # fmt: skip
        self.ask(f"walk {service}{path}", lambda: self.stack.client.list(service, path))
        self.ask("list pods", lambda: self.stack.cluster.items("/api/v1/pods"))

    def watch(self) -> None:
        """Begin a watch, read its first lines, go away."""
        service, path = self.random.choice([("compute", "/v1/instances"), ("resource", "/v1/nodes")])

        def first() -> object:
            changes = self.stack.client.watch(service, path, {})
            return list(itertools.islice(changes, 1))

        self.ask(f"watch {service}{path}", first)

    def complete(self) -> None:
        """Faults strike the nodes that serve too: a request that they end is sent again, as OpenAI's client does."""
        path = "/v1/chat/completions"
        body = {"model": SERVED, "messages": [{"role": "user", "content": "hello " * 50}], "max_tokens": 16}

        def call() -> Any:
            until = time.monotonic() + RETRY_WALL_S
            while True:
                try:
                    return self.stack.client.call("infer", "POST", path, body=body)
                except Unavailable as refused:
                    if time.monotonic() > until:
                        raise
                    time.sleep(refused.retry_after_s or 1.0)

        self.ask(f"POST infer{path}", call)

    def mistake(self) -> None:
        service, method, path, body = self.random.choice(
            [
                ("compute", "PUT", f"/v1/instances/{self.name('bad')}", {"nodes": -1}),
                ("resource", "PUT", f"/v1/allocations/{self.name('bad')}", {"nodes": "many"}),
                ("link", "PUT", f"/v1/slices/{self.name('bad')}", {"plane": "x" * 5000}),
                ("resource", "GET", f"/v1/nodes/{self.name('unknown')}", None),
                ("agents", "PUT", f"/v1/faults/{self.name('bad')}", {"kind": "gremlins", "target": "sn0"}),
            ]
        )
        self.rest(service, method, path, body)

    # --- the end

    def leave(self) -> None:
        """Give back everything."""
        while self.faults:
            self.clear()
        while self.cordoned:
            self.uncordon()
        for name in list(self.instances):
            self.rest("compute", "DELETE", f"/v1/instances/{name}")
        for name in list(self.custom):
            self.ask("delete cmi", lambda name=name: self.stack.cluster.send("DELETE", f"{INSTANCES}/{name}"))
        for name in list(self.allocations):
            self.rest("link", "DELETE", f"/v1/slices/{name}-s")
            self.rest("resource", "DELETE", f"/v1/allocations/{name}")
        self.instances, self.custom, self.allocations = {}, {}, {}
