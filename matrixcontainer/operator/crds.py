"""The custom resources of group cloudmatrix.io/v1alpha1, printed from the classes that the services use.

CloudMatrixInstance (cmi), CloudMatrixInfer (cminf), ScalingPolicy (sp), RecoveryPolicy (rp) and DisruptionBudget (db)
are desired states, MatrixFault (mf) breaks emulated hardware, MatrixFaultScenario (mfs) does so in time and has a
verdict, Supernode (sn) and NetworkSlice (nsl) are read-only mirrors of what MatrixResource and MatrixLink hold.

    python -m matrixcontainer.operator.crds          prints the CRDs as YAML
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson

from matrixcommon.model.hardware_names import RESOURCE_NAME
from matrixcommon.model.resource_model import ApiModel, Condition
from matrixcompute.autoscaling.policy import ScalingPolicyView
from matrixcompute.contract import RecoveryTimes, SliceSummary
from matrixcompute.recovery.spec import RecoveryPolicyView
from matrixcompute.scenarios.runs import ScenarioRunView
from matrixcontainer.operator.crd_specs import (
    NAME_LENGTH_MAX,
    budget_spec,
    fault_spec,
    infer_spec,
    instance_spec,
    policy_spec,
    recovery_spec,
    rule,
    scenario_spec,
)
from matrixcontainer.operator.structural_schema import shown_schema, structural_schema
from matrixlink.contract.slices import SliceView
from matrixresource.contract.allocations import MemberView
from matrixresource.contract.nodes import SupernodeView

GROUP = "cloudmatrix.io"
VERSION = "v1alpha1"


POLICY_STATUS = (
    "currentReplicas", "desiredReplicas", "desiredPools", "forecastReplicas", "reason", "message", "lastScaleTime",
    "decisions",
)  # fmt: skip
RECOVERY_STATUS = ("ladders",)
SCENARIO_STATUS = (
    "verdict", "message", "phase", "phases", "targets", "expectations", "seconds", "historyHash", "startedAt",
    "finishedAt",
)  # fmt: skip
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
    name_length_max: int | None = 63,
) -> dict[str, Any]:
    """`name_length_max`: the services take names of that many characters, and no dots; None where nobody names it."""
    named = {"type": "string", "pattern": RESOURCE_NAME.pattern, "maxLength": name_length_max}
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
                                "metadata": {"type": "object"}
                                | ({"properties": {"name": named}} if name_length_max else {}),
                                "spec": spec,
                                "status": status,
                            },
                        }
                    },
                }
            ],
        },
    }


def custom_resource_definitions(versions: Sequence[str] = (VERSION,), storage: str = VERSION) -> list[dict[str, Any]]:
    """Every CRD of the group, ready to apply, serving `versions` and storing one of them.

    All say the same, so there is nothing to convert (docs/decisions/0162).
    """
    definitions: list[dict[str, Any]] = orjson.loads(_as_json())  # the caller's own, to change as it likes
    for crd in definitions:
        (alone,) = crd["spec"]["versions"]
        crd["spec"]["versions"] = [alone | {"name": name, "storage": name == storage} for name in versions]
    return definitions


@cache
def _as_json() -> bytes:
    """All of them as JSON, once: their schemas take a fifth of a second."""
    return orjson.dumps(_definitions())


def _definitions() -> list[dict[str, Any]]:
    return [
        _crd(
            "CloudMatrixInstance",
            "cloudmatrixinstances",
            ["cmi"],
            instance_spec(),
            _status(
                **_counts(readyNodes="members that are ready", readySpares="spares that are ready"),
                selector=_text("finds the pods of workloads on it; for autoscalers"),
                expiresAt=_text("when its lease ends, in emulated time"),
                operation=_text("the work under way on it in MatrixCompute"),
                **_counts(repairs="how often members failed and were repaired or replaced"),
                lastRecovery=_OPEN
                | {
                    "description": "how long the last recovery took, in parts, in emulated seconds",
                    "properties": shown_schema(RecoveryTimes),
                },
                members=_parts("node", MemberView, "every node, spares and successors among them"),
                slices=_parts("plane", SliceSummary, "the share of each plane"),
                cancelled=_OPEN
                | {"description": "the operation that was cancelled, and the generation that is not asked for again"},
                plan=_OPEN
                | {"description": "with dryRun: whether it fits, where, who would move, or what is in the way"},
            ),
            "State=.status.state Nodes:integer=.spec.nodes Ready:integer=.status.readyNodes "
            "Spares:integer=.status.readySpares Links=LinksReady Degraded=Degraded ~Min_nodes:integer=.spec.minNodes "
            "~Priority:integer=.spec.priority "
            "~Lease_ends=.status.expiresAt ~QoS=QosSatisfied ~Repairs:integer=.status.repairs "
            "~Operation=.status.operation",
            scale={
                "specReplicasPath": ".spec.nodes",
                "statusReplicasPath": ".status.readyNodes",
                "labelSelectorPath": ".status.selector",
            },
            description="Nodes of a supernode composed into one instance, with spares and a share of three planes.",
            name_length_max=NAME_LENGTH_MAX,
            rules=[
                rule(
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
            infer_spec(),
            _status(
                endpoint=_text("where the model is served, as OpenAI's API"),
                **_counts(
                    prefillNpus="NPUs that read prompts",
                    decodeNpus="NPUs that generate tokens",
                    cachingNodes="nodes that lend their memory to the context cache",
                    pods="pods of the workload, one on each node",
                ),
                metrics={
                    "type": "object",
                    "description": "what it does now, as quantities; metrics of this object to autoscalers",
                    "additionalProperties": {"type": "string"},
                },
            ),
            "State=.status.state Instance=.spec.instance Model=.spec.model Prefill:integer=.status.prefillNpus "
            "Decode:integer=.status.decodeNpus ~Caching:integer=.status.cachingNodes ~Endpoint=.status.endpoint",
            description="CloudMatrix-Infer serving a model on a CloudMatrixInstance.",
        ),
        _crd(
            "ScalingPolicy",
            "scalingpolicies",
            ["sp"],
            policy_spec(),
            _status(**shown_schema(ScalingPolicyView, *POLICY_STATUS)),
            "Target=.spec.scaleTargetRef.name Min:integer=.spec.minReplicas Max:integer=.spec.maxReplicas "
            "Nodes:integer=.status.currentReplicas Desired:integer=.status.desiredReplicas Reason=.status.reason "
            "~Prefill:integer=.status.desiredPools.prefill ~Decode:integer=.status.desiredPools.decode "
            "~Active=ScalingActive ~Limited=ScalingLimited ~Last_scale=.status.lastScaleTime",
            description="Keeps a CloudMatrixInstance as large as its work asks for. Only one may own its scale.",
        ),
        _crd(
            "RecoveryPolicy",
            "recoverypolicies",
            ["rp"],
            recovery_spec(),
            _status(**shown_schema(RecoveryPolicyView, *RECOVERY_STATUS)),
            "Instance=.spec.instance Drain:number=.spec.drainSeconds Rungs=.spec.rungs "
            "On_exhausted=.spec.onExhausted State=.status.state",
            description="How far the recovery of an instance may go, or of all of the namespace that have none.",
        ),
        _crd(
            "DisruptionBudget",
            "disruptionbudgets",
            ["db"],
            budget_spec(),
            _status(),
            "Nodes=.spec.nodes Supernode=.spec.supernode Reasons=.spec.reasons Schedule=.spec.schedule "
            "Duration:number=.spec.durationS State=.status.state",
            scope="Cluster",
            description="How many nodes of a supernode maintenances may take out at once, for which reasons and when.",
        ),
        _crd(
            "MatrixFault",
            "matrixfaults",
            ["mf"],
            fault_spec(),
            _status(),
            "Kind=.spec.kind Target=.spec.target State=.status.state",
            scope="Cluster",
            description="A fault on the emulated hardware. The control plane is not informed: it has to detect it.",
        ),
        _crd(
            "MatrixFaultScenario",
            "matrixfaultscenarios",
            ["mfs"],
            scenario_spec(),
            _status(**shown_schema(ScenarioRunView, *SCENARIO_STATUS)),
            "State=.status.state Verdict=.status.verdict Phase=.status.phase Title=.spec.title "
            "~Message=.status.message ~Seed:integer=.spec.seed",
            scope="Cluster",
            description="Faults in time, what has to happen then, and a verdict; run once, and always rolled back.",
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
            name_length_max=None,
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
            name_length_max=None,
        ),
    ]


def as_yaml() -> str:
    """All CRDs as one YAML stream."""
    import yaml

    return "---\n".join(yaml.safe_dump(crd, sort_keys=False, width=120) for crd in custom_resource_definitions())


if __name__ == "__main__":
    print(as_yaml(), end="")
