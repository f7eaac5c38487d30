"""The custom resources of group cloudmatrix.io/v1alpha1, generated from the model classes of the services.

CloudMatrixInstance (cmi), CloudMatrixInfer (cminf), ScalingPolicy (sp), RecoveryPolicy (rp) and DisruptionBudget (db)
declare desired state. MatrixFault (mf) injects a fault into emulated hardware; MatrixFaultScenario (mfs) injects faults
on a timeline and ends with a verdict. Supernode (sn) and NetworkSlice (nsl) are read-only mirrors of state in
MatrixResource and MatrixLink.

    python -m matrixcontainer.operator.crds          prints the CRDs as YAML
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson

from matrixcompute.autoscaling.policy_view import ScalingPolicyView
from matrixcompute.contract import RecoveryTimes, SliceSummary
from matrixcompute.recovery.spec import RecoveryPolicyView
from matrixcompute.scenarios.runs import ScenarioRunView
from matrixcontainer.operator.schemas.definition_frame import (
    OPEN,
    VERSION,
    counts,
    crd,
    mirrored,
    parts,
    status_schema,
    text,
)
from matrixcontainer.operator.schemas.specs import (
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
from matrixcontainer.operator.schemas.structural_schema import shown_schema
from matrixlink.contract.slices import SliceView
from matrixresource.contract.allocations import MemberView
from matrixresource.contract.nodes import SupernodeView

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
"""Fields of MatrixResource's and MatrixLink's views that the mirrors show, in addition to the state."""


def custom_resource_definitions(versions: Sequence[str] = (VERSION,), storage: str = VERSION) -> list[dict[str, Any]]:
    """Every CRD of the group, ready to apply, serving `versions` and storing `storage`.

    All versions have the same schema, so no conversion is needed (docs/decisions/0162).
    """
    definitions: list[dict[str, Any]] = orjson.loads(_as_json())  # a fresh copy that the caller may modify
    for definition in definitions:
        (alone,) = definition["spec"]["versions"]
        definition["spec"]["versions"] = [alone | {"name": name, "storage": name == storage} for name in versions]
    return definitions


@cache
def _as_json() -> bytes:
    """All CRDs as JSON, built once: generating their schemas takes a fifth of a second."""
    return orjson.dumps([define() for define in DEFINITIONS])


def _instance() -> dict[str, Any]:
    return crd(
        "CloudMatrixInstance",
        "cloudmatrixinstances",
        ["cmi"],
        instance_spec(),
        status_schema(
            **counts(readyNodes="number of ready members", readySpares="number of ready spares"),
            selector=text("label selector for the pods of workloads on the instance; read by autoscalers"),
            expiresAt=text("when the instance's lease ends, in emulated time"),
            operation=text("the MatrixCompute operation in progress on the instance"),
            **counts(repairs="how many times failed members were repaired or replaced"),
            lastRecovery=OPEN
            | {
                "description": "duration of the last recovery, phase by phase, in emulated seconds",
                "properties": shown_schema(RecoveryTimes),
            },
            members=parts("node", MemberView, "every node of the instance, including spares and replacements"),
            slices=parts("plane", SliceSummary, "the instance's network slice on each plane"),
            cancelled=OPEN
            | {"description": "the operation that was cancelled, and the generation that will not be retried"},
            plan=OPEN
            | {
                "description": "with dryRun: whether the instance fits, on which nodes, and which members would move, "
                "or else what blocks it"
            },
        ),
        "State=.status.state Nodes:integer=.spec.nodes Ready:integer=.status.readyNodes "
        "Spares:integer=.status.readySpares Links=LinksReady Degraded=Degraded ~Min_nodes:integer=.spec.minNodes "
        "~Priority:integer=.spec.priority "
        "~Lease_ends_(emulated)=.status.expiresAt ~QoS=QosSatisfied ~Repairs:integer=.status.repairs "
        "~Operation=.status.operation",
        scale={
            "specReplicasPath": ".spec.nodes",
            "statusReplicasPath": ".status.readyNodes",
            "labelSelectorPath": ".status.selector",
        },
        description="Supernode nodes composed into one instance, with spares and a slice of each of three networks.",
        name_length_max=NAME_LENGTH_MAX,
        rules=[
            rule(
                f"!has(self.spec.{field}) || !(self.metadata.name in self.spec.{field}.instances)",
                f"{field} cannot name the instance itself",
                f".spec.{field}.instances",
            )
            for field in ("affinity", "antiAffinity")
        ],
    )


def _infer() -> dict[str, Any]:
    return crd(
        "CloudMatrixInfer",
        "cloudmatrixinfers",
        ["cminf"],
        infer_spec(),
        status_schema(
            endpoint=text("base URL of the OpenAI-compatible API that serves the model"),
            **counts(
                prefillNpus="NPUs that process prompts",
                decodeNpus="NPUs that generate tokens",
                cachingNodes="nodes that contribute memory to the context cache",
                pods="pods of the workload, one per node",
            ),
            metrics={
                "type": "object",
                "description": "current load and throughput as quantities; autoscalers read them as Object metrics",
                "additionalProperties": {"type": "string"},
            },
        ),
        "State=.status.state Instance=.spec.instance Model=.spec.model Prefill:integer=.status.prefillNpus "
        "Decode:integer=.status.decodeNpus ~Caching:integer=.status.cachingNodes ~Endpoint=.status.endpoint",
        description="A CloudMatrix-Infer deployment that serves a model on a CloudMatrixInstance.",
    )


def _scaling_policy() -> dict[str, Any]:
    return crd(
        "ScalingPolicy",
        "scalingpolicies",
        ["sp"],
        policy_spec(),
        status_schema(**shown_schema(ScalingPolicyView, *POLICY_STATUS)),
        "Target=.spec.scaleTargetRef.name Min:integer=.spec.minReplicas Max:integer=.spec.maxReplicas "
        "Nodes:integer=.status.currentReplicas Desired:integer=.status.desiredReplicas Reason=.status.reason "
        "State=.status.state "
        "~Prefill:integer=.status.desiredPools.prefill ~Decode:integer=.status.desiredPools.decode "
        "~Active=ScalingActive ~Limited=ScalingLimited ~Last_scale_(emulated)=.status.lastScaleTime",
        description="Scales a CloudMatrixInstance to match its load. An instance's scale can have only one owner.",
    )


def _recovery_policy() -> dict[str, Any]:
    return crd(
        "RecoveryPolicy",
        "recoverypolicies",
        ["rp"],
        recovery_spec(),
        status_schema(**shown_schema(RecoveryPolicyView, *RECOVERY_STATUS)),
        "Instance=.spec.instance Drain:number=.spec.drainSeconds Rungs=.spec.rungs "
        "On_exhausted=.spec.onExhausted State=.status.state",
        description="Limits how far recovery may go, for one instance or for every instance of the namespace that has "
        "no policy of its own.",
    )


def _disruption_budget() -> dict[str, Any]:
    return crd(
        "DisruptionBudget",
        "disruptionbudgets",
        ["db"],
        budget_spec(),
        status_schema(),
        "Nodes=.spec.nodes Supernode=.spec.supernode Reasons=.spec.reasons Schedule=.spec.schedule "
        "Duration:number=.spec.durationS State=.status.state",
        scope="Cluster",
        description="Limits how many nodes of a supernode maintenance may take out of service at once, for which "
        "reasons and when.",
    )


def _fault() -> dict[str, Any]:
    return crd(
        "MatrixFault",
        "matrixfaults",
        ["mf"],
        fault_spec(),
        status_schema(),
        "Kind=.spec.kind Target=.spec.target State=.status.state",
        scope="Cluster",
        description="A fault in the emulated hardware. The control plane is not told; it has to detect the fault.",
    )


def _fault_scenario() -> dict[str, Any]:
    return crd(
        "MatrixFaultScenario",
        "matrixfaultscenarios",
        ["mfs"],
        scenario_spec(),
        status_schema(**shown_schema(ScenarioRunView, *SCENARIO_STATUS)),
        "State=.status.state Verdict=.status.verdict Phase=.status.phase Title=.spec.title "
        "~Message=.status.message ~Seed:integer=.spec.seed",
        scope="Cluster",
        description="A timeline of faults, what is expected to happen, and a verdict. Runs once and is always rolled "
        "back.",
    )


def _supernode() -> dict[str, Any]:
    return crd(
        "Supernode",
        "supernodes",
        ["sn"],
        mirrored(SupernodeView, ()),
        status_schema(**shown_schema(SupernodeView, *SUPERNODE_STATUS)),
        "State=.status.state Nodes:integer=.status.nodes NPUs:integer=.status.npus "
        "Available:integer=.status.availableNodes Allocated:integer=.status.allocatedNodes "
        "Lost:integer=.status.lostNodes ~Topology=.status.topologyVersion",
        scope="Cluster",
        description="Mirror of a supernode in MatrixResource. Read-only: changes are reverted.",
        name_length_max=None,
    )


def _network_slice() -> dict[str, Any]:
    return crd(
        "NetworkSlice",
        "networkslices",
        ["nsl"],
        mirrored(SliceView, SLICE_SPEC),
        status_schema(**shown_schema(SliceView, *SLICE_STATUS), **counts(members="number of nodes on the slice")),
        "Plane=.spec.plane Instance=.spec.instance QoS=.spec.qosClass Floor:number=.spec.floorGbpsPerNpu "
        "State=.status.state",
        scope="Cluster",
        description="Mirror of a network slice in MatrixLink. Read-only: changes are reverted.",
        name_length_max=None,
    )


DEFINITIONS = (
    _instance,
    _infer,
    _scaling_policy,
    _recovery_policy,
    _disruption_budget,
    _fault,
    _fault_scenario,
    _supernode,
    _network_slice,
)


def as_yaml() -> str:
    """All CRDs as one multi-document YAML stream."""
    import yaml

    return "---\n".join(yaml.safe_dump(each, sort_keys=False, width=120) for each in custom_resource_definitions())


if __name__ == "__main__":
    print(as_yaml(), end="")
