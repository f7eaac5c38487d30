"""Two namespaces that hold an instance and a workload of one name, lived through a Kubernetes API side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.operator_life import GROUP, MERGE, NODES, PASSING, Life

NAMESPACES = ("red", "blue")
INSTANCES, INFERS = "cloudmatrixinstances", "cloudmatrixinfers"
INSTANCE, INFER = "CloudMatrixInstance", "CloudMatrixInfer"


def path(namespace: str, plural: str) -> str:
    return f"{GROUP}/namespaces/{namespace}/{plural}"


def members(body: dict[str, Any], role: str = "") -> set[str]:
    return {each["node"] for each in body["status"]["members"] if role in ("", each["role"])}


class TwoNamespaces(Life):
    """Create, scale, lose a node, delete: what one namespace does is never seen in the other."""

    def live(self) -> dict[str, Any]:
        self.until(lambda: len(self.items(NODES)) == 48, "all is mirrored")
        for namespace in NAMESPACES:
            self.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
            self.make(namespace, INSTANCES, INSTANCE, {"nodes": 4, "spares": 1})
            self.make(namespace, INFERS, INFER, {"instance": "a"})
        red, blue = (self.ready(namespace, 4) for namespace in NAMESPACES)
        assert members(red).isdisjoint(members(blue)), "no node has two holders"
        for namespace, body in (("red", red), ("blue", blue)):
            self.until(lambda at=namespace: self.serves(at), f"{namespace} serves")
            assert self.nodes_of_pods(namespace) == members(body, "member")
        self.note("slices", len(self.items(f"{GROUP}/networkslices")))

        scaled = self.client.patch(f"{path('red', INSTANCES)}/a", json={"spec": {"nodes": 6}}, headers=MERGE)
        assert scaled.status_code == 200, scaled.text
        red = self.ready("red", 6)
        assert members(self.ready("blue", 4)) == members(blue), "blue is left alone"

        lost = min(members(blue, "member"))
        self.create("matrixfaults", "dark", {"kind": "node-down", "target": lost}, namespaced=False)
        self.ready("blue", 4, lambda body: lost not in members(body))
        assert members(self.ready("red", 6)) == members(red), "red is left alone"
        self.delete(f"{GROUP}/matrixfaults/dark")

        for namespace in NAMESPACES:
            for plural in (INFERS, INSTANCES):
                self.delete(f"{path(namespace, plural)}/a")
                self.gone(f"{path(namespace, plural)}/a")
            self.until(lambda at=namespace: not self.items(f"/api/v1/namespaces/{at}/pods"), f"no pod of {namespace}")
            if namespace == "red":
                self.ready("blue", 4)
                assert self.serves("blue")
        self.until(lambda: not self.items(f"{GROUP}/networkslices"), "no slice is left")
        for namespace in NAMESPACES:
            self.note(f"events of {namespace}", self.reasons(namespace))
        return self.seen

    def make(self, namespace: str, plural: str, kind: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "cloudmatrix.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
        self.post(path(namespace, plural), body)

    def ready(self, namespace: str, nodes: int, also: Callable[[dict[str, Any]], bool] | None = None) -> dict[str, Any]:
        """The instance, at rest with that many nodes and its spare."""
        found: dict[str, Any] = {}

        def settled() -> bool:
            found.update(self.get(f"{path(namespace, INSTANCES)}/a"))
            status = found.get("status") or {}
            return bool(
                status.get("state") == "Active"
                and status.get("observedGeneration") == found["metadata"]["generation"]
                and status.get("readyNodes") == nodes
                and len(status["members"]) == nodes + 1
                and (also is None or also(found))
            )

        self.until(settled, f"{namespace}'s instance has {nodes} nodes")
        return found

    def serves(self, namespace: str) -> bool:
        return (self.get(f"{path(namespace, INFERS)}/a").get("status") or {}).get("state") == "Serving"

    def nodes_of_pods(self, namespace: str) -> set[str]:
        return {pod["spec"]["nodeName"] for pod in self.items(f"/api/v1/namespaces/{namespace}/pods")}

    def reasons(self, namespace: str) -> list[str]:
        """Reasons of the events of a namespace's own resources; passing states may be over before anybody looks."""
        found = self.items(f"/api/v1/namespaces/{namespace}/events")
        of_ours = {e["reason"] for e in found if e["involvedObject"]["kind"] in (INSTANCE, INFER)}
        return sorted(of_ours - set(PASSING))
