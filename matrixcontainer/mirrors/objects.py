"""Mirror objects: Nodes (location as labels, capacity, and health as MatrixResource sees it), Supernodes and
NetworkSlices. Writes by others to the mirrored fields are overwritten; taints that users add to a Node stay."""

from __future__ import annotations

from typing import Any

from matrixcommon.model.resource_key import DEFAULT_PROJECT, name_of, project_of
from matrixcontainer.kubeapi.kubelet.node_info import MANAGED_RESOURCES, node_info
from matrixcontainer.operator.crds import SLICE_SPEC, SLICE_STATUS, SUPERNODE_STATUS
from matrixcontainer.operator.decision import MANAGED_BY, MANAGED_LABEL
from matrixcontainer.operator.workload import NPU_RESOURCE
from matrixcontainer.scheduler.gangs import SCHEDULER_NAME
from matrixresource.contract.nodes import OUT_OF_SERVICE_STATES, NodeView, SupernodeView

PODS_PER_NODE = 110
"""The kubelet's default."""


def node_object(node: NodeView, shared: bool = False) -> dict[str, Any]:
    """The Node without its status. In a `shared` cluster it has a taint that repels other pods.

    An annotation tells the embedded API's scheduler that MatrixResource alone allocates NPUs, so that none is promised
    to a pod and to an instance (decision 985).
    """
    annotations = {MANAGED_RESOURCES: f"{NPU_RESOURCE}={SCHEDULER_NAME}"}
    labels = {
        MANAGED_LABEL: MANAGED_BY,
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "arm64",
        "node.kubernetes.io/instance-type": "cloudmatrix384.node",
        "topology.kubernetes.io/zone": node.cabinet,
        "cloudmatrix.io/supernode": node.supernode,
        "cloudmatrix.io/cabinet": node.cabinet,
        "volcano.sh/hypernode": node.supernode,
    }
    if node.allocation is not None:
        labels |= {
            "cloudmatrix.io/instance": name_of(node.allocation),
            "cloudmatrix.io/namespace": project_of(node.allocation),
            "cloudmatrix.io/instance-role": node.role or "member",
        }
    if node.shared_by:
        labels["cloudmatrix.io/shared-by"] = str(node.shared_by)
    spec: dict[str, Any] = {"providerID": f"cloudmatrix://{node.supernode}/{node.name}"}
    spec["taints"] = _taints(node, shared)
    return {"metadata": {"name": node.name, "labels": labels, "annotations": annotations}, "spec": spec}


def _taints(node: NodeView, shared: bool) -> list[dict[str, str]]:
    """Taints that restrict who may use the node, and those a real cluster's node controller adds while it is not
    ready."""
    taints = []
    if shared:
        taints.append({"key": NPU_RESOURCE, "value": "present", "effect": "NoSchedule"})
    if node.allocation is not None:
        taints.append({"key": "cloudmatrix.io/instance", "value": name_of(node.allocation), "effect": "NoSchedule"})
    if node.cordoned_by or node.state in OUT_OF_SERVICE_STATES:
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    key = {"Unknown": "node.kubernetes.io/unreachable", "False": "node.kubernetes.io/not-ready"}.get(_ready(node))
    if key is not None:
        taints += [{"key": key, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    return taints


def _ready(node: NodeView) -> str:
    if node.state == "Enrolled":
        return "Unknown"
    if node.power == "Off":
        return "False"
    return {"Connected": "True", "Stale": "Unknown", "Lost": "Unknown"}.get(node.agent, "False")


def node_status(node: NodeView, now: str, previous: dict[str, Any] | None, npus_in_use: int = 0) -> dict[str, Any]:
    """The Node's status. `at` is the wall-clock time in RFC 3339, used for conditions that change.

    `npus_in_use` NPUs are held by shared-node allocations without pods, so they are not allocatable.
    """
    npus = str(node.npus)
    capacity = {"cpu": str(node.cpus * 48), "memory": "1536Gi", "pods": str(PODS_PER_NODE), NPU_RESOURCE: npus}
    isolated_npus = len({f.component.split("-")[0] for f in node.faults if f.level.startswith("Separate")})
    healthy = str(0 if node.state == "Retired" else max(0, node.npus - isolated_npus - npus_in_use))
    ready = _ready(node)
    message_text = f"the resource agent is {node.agent}; the node is {node.state}" + ", off" * (node.power == "Off")
    message_text += "".join(f"; {part}" for part in (node.stage and f"stage {node.stage}", node.state_message) if part)
    current = {c["type"]: c for c in (previous or {}).get("conditions") or []}
    conditions = []
    for type, status, reason, message in (
        ("Ready", ready, f"Agent{node.agent}" if node.power != "Off" else "SwitchedOff", message_text),
        (
            "NPUHealthy",
            {"Healthy": "True", "Unknown": "Unknown"}.get(node.health, "False"),
            node.health,
            "; ".join(f"{fault.component}: {fault.code} ({fault.level})" for fault in node.faults) or "no faults",
        ),
    ):
        since = (
            current.get(type, {}).get("lastTransitionTime", now)
            if current.get(type, {}).get("status") == status
            else now
        )
        conditions.append(
            {
                "type": type,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": since,
                "lastTransitionTime": since,
            }
        )
    return {
        "capacity": capacity,
        "allocatable": capacity | {NPU_RESOURCE: healthy},
        "conditions": conditions,
        "addresses": [{"type": "Hostname", "address": node.name}],
        "nodeInfo": node_info(node.name),
    }


def supernode_object(supernode: SupernodeView) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Supernode mirror and its status."""
    return (
        {"metadata": {"name": supernode.name, "labels": {MANAGED_LABEL: MANAGED_BY}}, "spec": {}},
        {key: value for key, value in supernode.wire().items() if key in ("state", *SUPERNODE_STATUS)},
    )


def slice_mirror_name(view: dict[str, Any]) -> str:
    """Name of the cluster-scoped NetworkSlice: the slice's name, prefixed with its project unless that is the default
    one."""
    return str(view["name"] if view["project"] == DEFAULT_PROJECT else f"{view['project']}.{view['name']}")


def slice_object(view: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The NetworkSlice mirror of a MatrixLink slice view, and its status."""
    return (
        {
            "metadata": {
                "name": slice_mirror_name(view),
                "labels": {MANAGED_LABEL: MANAGED_BY, "cloudmatrix.io/namespace": view["project"]},
            },
            "spec": {key: view[key] for key in SLICE_SPEC if key in view},
        },
        {key: view[key] for key in ("state", *SLICE_STATUS) if key in view} | {"members": len(view.get("members", []))},
    )
