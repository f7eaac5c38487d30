"""NodeInfo: the part of a Node that the scheduler and the emulated kubelets need, indexed in memory."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from matrixcontainer.kubeapi.meta.quantities import milli_or_zero
from matrixcontainer.kubeapi.storage.objects import Record

MANAGED_RESOURCES = "scheduler.cloudmatrix.io/managed-resources"
"""Annotation of a Node: resources that another scheduler alone allocates, as `resource=schedulerName`, separated by
commas. The default scheduler places no pod that requests one."""


@dataclass
class NodeInfo:
    name: str
    uid: str = ""
    ready: bool = False
    unschedulable: bool = False
    deleting: bool = False
    address: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[dict[str, Any]] = field(default_factory=list)
    allocatable: dict[str, int] = field(default_factory=dict)  # milli-units
    managed_resources: dict[str, str] = field(default_factory=dict)  # resource: the scheduler that allocates it

    @property
    def no_execute_taints(self) -> list[dict[str, Any]]:
        """The NoExecute taints."""
        return [taint for taint in self.taints if taint.get("effect") == "NoExecute"]


def parse_node_info(node: dict[str, Any]) -> NodeInfo:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
    addresses = {a["type"]: a["address"] for a in status.get("addresses") or []}
    return NodeInfo(
        name=meta["name"],
        uid=meta.get("uid", ""),
        ready=conditions.get("Ready") == "True",
        unschedulable=bool(spec.get("unschedulable")),
        deleting="deletionTimestamp" in meta,
        address=addresses.get("InternalIP") or synthetic_address(meta["name"]),
        labels=meta.get("labels") or {},
        taints=spec.get("taints") or [],
        managed_resources=_managed_resources((meta.get("annotations") or {}).get(MANAGED_RESOURCES, "")),
        allocatable={name: milli_or_zero(text) for name, text in (status.get("allocatable") or {}).items()},
    )


def _managed_resources(text: str) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in text.split(","))
    return {resource.strip(): scheduler.strip() for resource, _, scheduler in pairs if scheduler.strip()}


def synthetic_address(name: str) -> str:
    """A stable synthetic address for a node, from the block reserved for benchmarks (RFC 2544)."""
    digest = hashlib.sha256(name.encode()).digest()
    return f"198.18.{digest[0]}.{digest[1] % 254 + 1}"


class NodeIndex:
    def __init__(self) -> None:
        self._infos: dict[str, NodeInfo] = {}

    def get(self, name: str) -> NodeInfo | None:
        return self._infos.get(name)

    def all(self) -> list[NodeInfo]:
        return [self._infos[name] for name in sorted(self._infos)]

    def put(self, record: Record) -> tuple[NodeInfo | None, NodeInfo]:
        before = self._infos.get(record.key[2])
        info = self._infos[record.key[2]] = parse_node_info(record.obj)
        return before, info

    def delete(self, key: tuple[str, str]) -> NodeInfo | None:
        return self._infos.pop(key[1], None)


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
