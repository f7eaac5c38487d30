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
from matrixcommon.model.resource_model import ApiModel, Condition
from matrixcompute.contract import InstanceShape, SliceSummary
from matrixcontainer.operator.structural_schema import shown_schema, structural_schema
from matrixlink.contract.slices import SliceView
from matrixresource.agent.fault_catalogue import FaultKind
from matrixresource.contract.allocations import MemberView
from matrixresource.contract.nodes import SupernodeView

GROUP = "cloudmatrix.io"
VERSION = "v1alpha1"

_SWITCH = r"sn\d+-c\d{2}-n\d-l1p\d|sn\d+-l2p\d-k\d{2}|sn\d+-c\d{2}-leaf\d"
_CABINET = r"sn\d+-c\d{2}"
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
        min_length=1, max_length=57, description="the CloudMatrixInstance to serve on, same namespace"
    )
    model: Literal["deepseek-r1"] = Field("deepseek-r1", description="the model that is served")
    prefill_npus: int | None = Field(None, ge=1, le=32768, description="NPUs of the prefill pool")
    decode_npus: int | None = Field(None, ge=1, le=32768, description="NPUs of the decode pool")
    block_tokens: int = Field(512, ge=128, le=512, description="tokens of one block of the context cache")


class FaultSpec(ApiModel):
    """A fault on the emulated hardware of one node or switch, for as long as the resource exists."""

    kind: FaultKind = Field(description="what happens; `matrixctl fault kinds` lists them")
    target: str = Field(
        pattern=f"^({_NODE}|{_CABINET}|{_SWITCH})$",
        description="the node (sn0-c03-n2), the cabinet (sn0-c03) or the switch (sn0-l2p3-k11) it happens on",
    )
    parameters: dict[str, str] = Field(default_factory=dict, description="what the kind needs to know")


SUPERNODE_STATUS = (
    "topologyVersion", "cabinets", "nodes", "npus", "cpus", "availableNodes", "allocatedNodes", "lostNodes",
)  # fmt: skip
SLICE_SPEC = ("plane", "instance", "allocation", "qosClass", "floorGbpsPerNpu", "ceilingGbpsPerNpu", "weight")
SLICE_STATUS = ("isolation", "isolationKey", "programmed", "floorKeptGbpsPerNpu")
"""What the mirrors show, beside the state, of MatrixResource's and MatrixLink's views."""

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

_CONDITIONS = {
    "type": "array",
    "description": "what is observed of it, aspect by aspect",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": structural_schema(Condition) | {"required": ["type", "status"], "properties": shown_schema(Condition)},
}


def _status(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": "what has become of it; written by the operator alone",
        "x-kubernetes-preserve-unknown-fields": True,  # Kopf keeps its progress here
        "properties": {
            "state": _text("where it is in its life"),
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "the generation of the spec that this status is of",
            },
            "conditions": _CONDITIONS,
            **properties,
        },
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _counts(**descriptions: str) -> dict[str, Any]:
    return {
        name: {"type": "integer", "format": "int32", "description": description}
        for name, description in descriptions.items()
    }


def _parts(key: str, view: type[ApiModel], description: str) -> dict[str, Any]:
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
            "properties": shown_schema(view) | {"conditions": _CONDITIONS},
        },
    }


def _mirrored(view: type[ApiModel], fields: Sequence[str]) -> dict[str, Any]:
    """The spec of a mirror: what was asked for elsewhere."""
    spec = _OPEN | {"description": "what was asked of the service that it mirrors; not read from here"}
    return spec | ({"properties": shown_schema(view, *fields)} if fields else {})


def _columns(text: str) -> list[dict[str, Any]]:
    """`Nodes:integer=.spec.nodes ~QoS=QosSatisfied`: a type behind a colon, ~ for the wide form only, _ for a space;
    behind = a path, or a condition whose status is shown. The age comes last.
    """
    found = []
    for word in [*text.split(), "Age:date=.metadata.creationTimestamp"]:
        title, _, source = word.partition("=")
        name, _, type = title.lstrip("~").partition(":")
        path = source if source.startswith(".") else f'.status.conditions[?(@.type=="{source}")].status'
        column = {"name": name.replace("_", " "), "type": type or "string", "jsonPath": path}
        found.append(column | ({"priority": 1} if title.startswith("~") else {}))
    return found


def _crd(
    kind: str,
    plural: str,
    short: list[str],
    spec: dict[str, Any],
    status: dict[str, Any],
    columns: str,
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
                    "additionalPrinterColumns": _columns(columns),
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


def _rule(rule: str, message: str, at: str = "") -> dict[str, str]:
    return {"rule": rule, "message": message} | ({"fieldPath": at} if at else {})


def _instance_spec() -> dict[str, Any]:
    spec = structural_schema(InstanceSpec)
    del spec["properties"]["project"]  # it is the namespace
    spec["x-kubernetes-validations"] = [
        _rule(
            "!has(self.placement.blocks) || self.placement.blocks.all(block, self.nodes % block.nodes == 0)",
            "nodes must be a whole number of blocks",
            ".placement.blocks",
        ),
        _rule(
            "!has(self.affinity) || !has(self.antiAffinity) || "
            "self.affinity.level != self.antiAffinity.level || "
            "!self.affinity.instances.exists(name, name in self.antiAffinity.instances)",
            "affinity and antiAffinity name the same instance at the same level",
            ".antiAffinity.instances",
        ),
    ]
    spec["properties"]["placement"]["x-kubernetes-validations"] = [
        _rule(
            "!has(self.maxPerDomain) || self.policy == 'spread'",
            "maxPerDomain goes with policy spread",
            ".maxPerDomain",
        ),
        _rule(
            "!has(self.blocks) || self.blocks.all(one, self.blocks.exists_one(o, o.level == one.level))",
            "one block size for each level",
            ".blocks",
        ),
        _rule(
            "!has(self.blocks) || self.blocks.all(one, one.level != 'supernode' || self.blocks.all(other, "
            "other.level != 'cabinet' || one.nodes == 1 || one.nodes % other.nodes == 0))",
            "a block in a supernode must hold a whole number of blocks in a cabinet",
            ".blocks",
        ),
    ]
    for share in spec["properties"]["network"]["properties"].values():
        share["x-kubernetes-validations"] = [
            _rule(
                "!has(self.ceilingGbpsPerNpu) || self.ceilingGbpsPerNpu >= self.floorGbpsPerNpu",
                "ceilingGbpsPerNpu must not be below floorGbpsPerNpu",
            )
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
                **_counts(readyNodes="members that are ready", readySpares="spares that are ready"),
                selector=_text("finds the pods of workloads on it; for autoscalers"),
                expiresAt=_text("when its lease ends, in emulated time"),
                operation=_text("the work under way on it in MatrixCompute"),
                **_counts(repairs="how often a member was replaced"),
                members=_parts("node", MemberView, "every node, spares and successors among them"),
                slices=_parts("plane", SliceSummary, "the share of each plane"),
                cancelled=_OPEN
                | {"description": "the operation that was cancelled, and the generation that is not asked for again"},
                plan=_OPEN
                | {"description": "with dryRun: whether it fits, where, who would move, or what is in the way"},
            ),
            "State=.status.state Nodes:integer=.spec.nodes Ready:integer=.status.readyNodes "
            "Spares:integer=.status.readySpares Links=LinksReady Degraded=Degraded ~Priority:integer=.spec.priority "
            "~Lease_ends=.status.expiresAt ~QoS=QosSatisfied ~Repairs:integer=.status.repairs "
            "~Operation=.status.operation",
            scale={
                "specReplicasPath": ".spec.nodes",
                "statusReplicasPath": ".status.readyNodes",
                "labelSelectorPath": ".status.selector",
            },
            description="Nodes of a supernode composed into one instance, with spares and a share of three planes.",
            rules=[
                _rule(
                    f"!has(self.spec.{field}) || !(self.metadata.name in self.spec.{field}.instances)",
                    f"{field} cannot name the instance itself",
                    f".spec.{field}.instances",
                )
                for field in ("affinity", "antiAffinity")
            ],
        ),
        _crd(
            "CloudMatrixInfer",
            "cloudmatrixinfers",
            ["cminf"],
            _infer_spec(),
            _status(
                endpoint=_text("where the model is served, as OpenAI's API"),
                **_counts(
                    prefillNpus="NPUs that read prompts",
                    decodeNpus="NPUs that generate tokens",
                    pods="pods of the workload, one on each node",
                ),
                metrics={
                    "type": "object",
                    "description": "what it does now, as quantities; metrics of this object to autoscalers",
                    "additionalProperties": {"type": "string"},
                },
            ),
            "State=.status.state Instance=.spec.instance Model=.spec.model Prefill:integer=.status.prefillNpus "
            "Decode:integer=.status.decodeNpus ~Endpoint=.status.endpoint",
            description="CloudMatrix-Infer serving a model on a CloudMatrixInstance.",
        ),
        _crd(
            "MatrixFault",
            "matrixfaults",
            ["mf"],
            _fault_spec(),
            _status(),
            "Kind=.spec.kind Target=.spec.target State=.status.state",
            scope="Cluster",
            description="A fault on the emulated hardware. The control plane is not informed: it has to detect it.",
        ),
        _crd(
            "Supernode",
            "supernodes",
            ["sn"],
            _mirrored(SupernodeView, ()),
            _status(**shown_schema(SupernodeView, *SUPERNODE_STATUS)),
            "State=.status.state Nodes:integer=.status.nodes NPUs:integer=.status.npus "
            "Available:integer=.status.availableNodes Allocated:integer=.status.allocatedNodes "
            "Lost:integer=.status.lostNodes ~Topology=.status.topologyVersion",
            scope="Cluster",
            description="A supernode as MatrixResource holds it. Read-only: changes are undone.",
        ),
        _crd(
            "NetworkSlice",
            "networkslices",
            ["nsl"],
            _mirrored(SliceView, SLICE_SPEC),
            _status(**shown_schema(SliceView, *SLICE_STATUS), **_counts(members="nodes that it joins")),
            "Plane=.spec.plane Instance=.spec.instance QoS=.spec.qosClass Floor:number=.spec.floorGbpsPerNpu "
            "State=.status.state",
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
