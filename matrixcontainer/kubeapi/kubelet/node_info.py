"""NodeFacts: the part of a Node that the scheduler and the emulated kubelets need, indexed in memory."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.meta.quantities import milli_or_nothing
from matrixcontainer.kubeapi.storage.objects import Record


@dataclass
class NodeFacts:
    name: str
    uid: str = ""
    ready: bool = False
    unschedulable: bool = False
    deleting: bool = False
    address: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, Any]] = field(default_factory=list)
    allocatable: dict[str, int] = field(default_factory=dict)  # milli-units

    @property
    def evicting(self) -> list[dict[str, Any]]:
        """The NoExecute taints."""
        return [taint for taint in self.taints if taint.get("effect") == "NoExecute"]


def facts_of_node(node: dict[str, Any]) -> NodeFacts:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or []}
    return NodeFacts(
        name=meta["name"],
        uid=meta.get("uid", ""),
        ready=conditions.get("Ready") == "True",
        unschedulable=bool(spec.get("unschedulable")),
        deleting="deletionTimestamp" in meta,
        address=addresses.get("InternalIP") or synthetic_address(meta["name"]),
        labels=meta.get("labels") or {},
        taints=spec.get("taints") or [],
        allocatable={name: milli_or_nothing(text) for name, text in (status.get("allocatable") or {}).items()},
    )


def synthetic_address(name: str) -> str:
    """A stable synthetic address for a node, from the block reserved for benchmarks (RFC 2544)."""
    mark = hashlib.sha256(name.encode()).digest()
    return f"198.18.{mark[0]}.{mark[1] % 254 + 1}"


class NodeIndex:
    def __init__(self) -> None:
        self._facts: dict[str, NodeFacts] = {}

    def get(self, name: str) -> NodeFacts | None:
        return self._facts.get(name)

    def all(self) -> list[NodeFacts]:
        return [self._facts[name] for name in sorted(self._facts)]

    def put(self, record: Record) -> tuple[NodeFacts | None, NodeFacts]:
        before = self._facts.get(record.key[2])
        facts = self._facts[record.key[2]] = facts_of_node(record.obj)
        return before, facts

    def drop(self, key: tuple[str, str]) -> NodeFacts | None:
        return self._facts.pop(key[1], None)


def node_info(name: str) -> dict[str, str]:
    """The `status.nodeInfo` that an emulated node's kubelet reports."""
    return {
        "architecture": "arm64",
        "operatingSystem": "linux",
        "osImage": "emulated",
        "kernelVersion": "emulated",
        "kubeletVersion": "v1.33.0-cloudmatrix",
        "kubeProxyVersion": "",
        "containerRuntimeVersion": "emulated://1",
        "bootID": "",
        "machineID": name,
        "systemUUID": name,
    }
