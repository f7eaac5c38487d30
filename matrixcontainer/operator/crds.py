"""The custom resources of group cloudmatrix.io/v1alpha1, printed from the classes that the services use.

CloudMatrixInstance (cmi) and CloudMatrixInfer (cminf) are desired states, MatrixFault (mf) breaks emulated hardware,
Supernode (sn) and NetworkSlice (nsl) are read-only mirrors of what MatrixResource and MatrixLink hold.

    python -m matrixcontainer.operator.crds          prints the CRDs as YAML
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from matrixcommon.model.hardware_names import NODE_PATTERN
from matrixcommon.model.resource_model import ApiModel
from matrixcompute.contract import InstanceShape
from matrixcontainer.operator.structural_schema import structural_schema
from matrixresource.agent.hardware import FaultKind

GROUP = "cloudmatrix.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

_SWITCH = r"sn\d+-c\d{2}-n\d-l1p\d|sn\d+-l2p\d-k\d{2}|sn\d+-c\d{2}-leaf\d"
_NODE = NODE_PATTERN.replace("?P<supernode>", "").replace("?P<cabinet>", "").replace("?P<node>", "")


class InstanceSpec(InstanceShape):
    """The shape of an instance, and whether it is only to be planned."""

    dry_run: bool = Field(
        False,
        description="only plan: status.plan says whether it fits, where, which members would move, or what stands in "
        "the way; an instance that is there stays as it is meanwhile",
    )


class InferSpec(ApiModel):
    """CloudMatrix-Infer on an instance: which model, and how many NPUs play which role (by default, as the paper)."""

    instance: str = Field(
        min_length=1, max_length=58, description="the CloudMatrixInstance to serve on, same namespace"
    )
    model: Literal["deepseek-r1"] = Field("deepseek-r1", description="the model that is served")
    prefill_npus: int | None = Field(None, ge=1, le=32768, description="NPUs of the prefill pool")
    decode_npus: int | None = Field(None, ge=1, le=32768, description="NPUs of the decode pool")
    block_tokens: int = Field(512, ge=128, le=512, description="tokens of one block of the context cache")


class FaultSpec(ApiModel):
    """A fault on the emulated hardware of one node or switch, for as long as the resource exists."""

    kind: FaultKind = Field(description="what happens; `matrixctl fault kinds` lists them")
    target: str = Field(
        pattern=f"^({_NODE}|{_SWITCH})$",
        description="the node it happens on, e.g. sn0-c03-n2, or the switch, e.g. sn0-l2p3-k11",
    )
    parameters: dict[str, str] = Field(default_factory=dict, description="what the kind needs to know")


_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

_CONDITIONS = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "lastTransitionTime": {"type": "string"},
        },
    },
}


def _status(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,  # Kopf keeps its progress here
        "properties": {
            "state": {"type": "string"},
            "observedGeneration": {"type": "integer", "format": "int64"},
            "conditions": _CONDITIONS,
            **properties,
        },
    }


def _parts(key: str, description: str) -> dict[str, Any]:
    """A list of parts, each with its own conditions."""
    return {
        "type": "array",
        "description": description,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
        "items": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "required": [key],
            "properties": {key: {"type": "string"}, "conditions": _CONDITIONS},
        },
    }


def _column(name: str, path: str, type: str = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "jsonPath": path, **more}


AGE = _column("Age", ".metadata.creationTimestamp", "date")


def _condition_column(name: str, type: str, **more: Any) -> dict[str, Any]:
    return _column(name, f'.status.conditions[?(@.type=="{type}")].status', **more)


def _crd(
    kind: str,
    plural: str,
    short: list[str],
    spec: dict[str, Any],
    status: dict[str, Any],
    columns: list[dict[str, Any]],
    *,
    scope: str = "Namespaced",
    scale: dict[str, Any] | None = None,
    description: str,
    rules: Sequence[dict[str, str]] = (),
) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if scale is not None:
        subresources["scale"] = scale
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": short,
                "categories": ["cloudmatrix"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": columns,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "description": description,
                            "required": ["spec"],
                            **({"x-kubernetes-validations": list(rules)} if rules else {}),
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": spec,
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


def _instance_spec() -> dict[str, Any]:
    spec = structural_schema(InstanceSpec)
    del spec["properties"]["project"]  # it is the namespace
    spec["x-kubernetes-validations"] = [
        {
            "rule": "!has(self.placement.blocks) || self.placement.blocks.all(block, self.nodes % block.nodes == 0)",
            "message": "nodes must be a whole number of blocks",
            "fieldPath": ".placement.blocks",
        },
        {
            "rule": "!has(self.affinity) || !has(self.antiAffinity) || "
            "self.affinity.level != self.antiAffinity.level || "
            "!self.affinity.instances.exists(name, name in self.antiAffinity.instances)",
            "message": "affinity and antiAffinity name the same instance at the same level",
            "fieldPath": ".antiAffinity.instances",
        },
    ]
    spec["properties"]["placement"]["x-kubernetes-validations"] = [
        {
            "rule": "!has(self.maxPerDomain) || self.policy == 'spread'",
            "message": "maxPerDomain goes with policy spread",
            "fieldPath": ".maxPerDomain",
        },
        {
            "rule": "!has(self.blocks) || self.blocks.all(one, self.blocks.exists_one(o, o.level == one.level))",
            "message": "one block size for each level",
            "fieldPath": ".blocks",
        },
        {
            "rule": "!has(self.blocks) || self.blocks.all(one, one.level != 'supernode' || self.blocks.all(other, "
            "other.level != 'cabinet' || one.nodes == 1 || one.nodes % other.nodes == 0))",
            "message": "a block in a supernode must hold a whole number of blocks in a cabinet",
            "fieldPath": ".blocks",
        },
    ]
    for share in spec["properties"]["network"]["properties"].values():
        share["x-kubernetes-validations"] = [
            {
                "rule": "!has(self.ceilingGbpsPerNpu) || self.ceilingGbpsPerNpu >= self.floorGbpsPerNpu",
                "message": "ceilingGbpsPerNpu must not be below floorGbpsPerNpu",
            }
        ]
    return spec


def _infer_spec() -> dict[str, Any]:
    spec = structural_schema(InferSpec)
    spec["x-kubernetes-validations"] = [
        {"rule": "self.instance == oldSelf.instance", "message": "a deployment stays on its instance"},
        {"rule": "self.model == oldSelf.model", "message": "a deployment keeps its model"},
    ]
    return spec


def _fault_spec() -> dict[str, Any]:
    spec = structural_schema(FaultSpec)
    spec["x-kubernetes-validations"] = [{"rule": "self == oldSelf", "message": "a fault cannot be changed; delete it"}]
    return spec


def custom_resource_definitions(versions: Sequence[str] = (VERSION,), storage: str = VERSION) -> list[dict[str, Any]]:
    """Every CRD of the group, ready to apply, serving `versions` and storing one of them.

    All say the same, so there is nothing to convert (docs/decisions/0162).
    """
    definitions = _definitions()
    for crd in definitions:
        (alone,) = crd["spec"]["versions"]
        crd["spec"]["versions"] = [alone | {"name": name, "storage": name == storage} for name in versions]
    return definitions


def _definitions() -> list[dict[str, Any]]:
    return [
        _crd(
            "CloudMatrixInstance",
            "cloudmatrixinstances",
            ["cmi"],
            _instance_spec(),
            _status(
                readyNodes={"type": "integer", "format": "int32"},
                readySpares={"type": "integer", "format": "int32"},
                selector={"type": "string", "description": "finds the pods of workloads on it; for autoscalers"},
                expiresAt={"type": "string", "description": "when its lease ends, in emulated time"},
                operation={"type": "string"},
                repairs={"type": "integer", "format": "int32"},
                members=_parts("node", "every node, spares and successors among them"),
                slices=_parts("plane", "the share of each plane"),
                plan=_OPEN,
            ),
            [
                _column("State", ".status.state"),
                _column("Nodes", ".spec.nodes", "integer"),
                _column("Ready", ".status.readyNodes", "integer"),
                _column("Spares", ".status.readySpares", "integer"),
                _condition_column("Links", "LinksReady"),
                _condition_column("Degraded", "Degraded"),
                _column("Priority", ".spec.priority", "integer", priority=1),
                _column("Lease ends", ".status.expiresAt", priority=1),
                _condition_column("QoS", "QosSatisfied", priority=1),
                _column("Repairs", ".status.repairs", "integer", priority=1),
                _column("Operation", ".status.operation", priority=1),
                AGE,
            ],
            scale={
                "specReplicasPath": ".spec.nodes",
                "statusReplicasPath": ".status.readyNodes",
                "labelSelectorPath": ".status.selector",
            },
            description="Nodes of a supernode composed into one instance, with spares and a share of three planes.",
            rules=[
                {
                    "rule": f"!has(self.spec.{field}) || !(self.metadata.name in self.spec.{field}.instances)",
                    "message": f"{field} cannot name the instance itself",
                    "fieldPath": f".spec.{field}.instances",
                }
                for field in ("affinity", "antiAffinity")
            ],
        ),
        _crd(
            "CloudMatrixInfer",
            "cloudmatrixinfers",
            ["cminf"],
            _infer_spec(),
            _status(
                endpoint={"type": "string"},
                prefillNpus={"type": "integer", "format": "int32"},
                decodeNpus={"type": "integer", "format": "int32"},
                pods={"type": "integer", "format": "int32"},
                metrics={
                    "type": "object",
                    "description": "what it does now, as quantities; metrics of this object to autoscalers",
                    "additionalProperties": {"type": "string"},
                },
            ),
            [
                _column("State", ".status.state"),
                _column("Instance", ".spec.instance"),
                _column("Model", ".spec.model"),
                _column("Prefill", ".status.prefillNpus", "integer"),
                _column("Decode", ".status.decodeNpus", "integer"),
                _column("Endpoint", ".status.endpoint", priority=1),
                AGE,
            ],
            description="CloudMatrix-Infer serving a model on a CloudMatrixInstance.",
        ),
        _crd(
            "MatrixFault",
            "matrixfaults",
            ["mf"],
            _fault_spec(),
            _status(),
            [_column("Kind", ".spec.kind"), _column("Target", ".spec.target"), _column("State", ".status.state"), AGE],
            scope="Cluster",
            description="A fault on the emulated hardware. The control plane is not informed: it has to detect it.",
        ),
        _crd(
            "Supernode",
            "supernodes",
            ["sn"],
            _OPEN,
            _status(),
            [
                _column("State", ".status.state"),
                _column("Nodes", ".status.nodes", "integer"),
                _column("NPUs", ".status.npus", "integer"),
                _column("Available", ".status.availableNodes", "integer"),
                _column("Allocated", ".status.allocatedNodes", "integer"),
                _column("Lost", ".status.lostNodes", "integer"),
                _column("Topology", ".status.topologyVersion", priority=1),
                AGE,
            ],
            scope="Cluster",
            description="A supernode as MatrixResource holds it. Read-only: changes are undone.",
        ),
        _crd(
            "NetworkSlice",
            "networkslices",
            ["nsl"],
            _OPEN,
            _status(),
            [
                _column("Plane", ".spec.plane"),
                _column("Instance", ".spec.instance"),
                _column("QoS", ".spec.qosClass"),
                _column("Floor", ".spec.floorGbpsPerNpu", "number"),
                _column("State", ".status.state"),
                AGE,
            ],
            scope="Cluster",
            description="A network slice as MatrixLink holds it. Read-only: changes are undone.",
        ),
    ]


def as_yaml() -> str:
    """All CRDs as one YAML stream."""
    import yaml

    return "---\n".join(yaml.safe_dump(crd, sort_keys=False, width=120) for crd in custom_resource_definitions())


if __name__ == "__main__":
    print(as_yaml(), end="")
