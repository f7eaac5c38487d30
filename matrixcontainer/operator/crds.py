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

from matrixcompute.autoscaling.policy import ScalingPolicyView
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
"""What the mirrors show, beside the state, of MatrixResource's and MatrixLink's views."""


def custom_resource_definitions(versions: Sequence[str] = (VERSION,), storage: str = VERSION) -> list[dict[str, Any]]:
    """Every CRD of the group, ready to apply, serving `versions` and storing one of them.

    All say the same, so there is nothing to convert (docs/decisions/0162).
    """
    definitions: list[dict[str, Any]] = orjson.loads(_as_json())  # the caller's own, to change as it likes
    for definition in definitions:
        (alone,) = definition["spec"]["versions"]
        definition["spec"]["versions"] = [alone | {"name": name, "storage": name == storage} for name in versions]
    return definitions


@cache
def _as_json() -> bytes:
    """All of them as JSON, once: their schemas take a fifth of a second."""
    return orjson.dumps([define() for define in DEFINITIONS])


def _instance() -> dict[str, Any]:
    return crd(
        "CloudMatrixInstance",
        "cloudmatrixinstances",
        ["cmi"],
        instance_spec(),
        status_schema(
            **counts(readyNodes="members that are ready", readySpares="spares that are ready"),
            selector=text("finds the pods of workloads on it; for autoscalers"),
            expiresAt=text("when its lease ends, in emulated time"),
            operation=text("the work under way on it in MatrixCompute"),
            **counts(repairs="how often members failed and were repaired or replaced"),
            lastRecovery=OPEN
            | {
                "description": "how long the last recovery took, in parts, in emulated seconds",
                "properties": shown_schema(RecoveryTimes),
            },
            members=parts("node", MemberView, "every node, spares and successors among them"),
            slices=parts("plane", SliceSummary, "the share of each plane"),
            cancelled=OPEN
            | {"description": "the operation that was cancelled, and the generation that is not asked for again"},
            plan=OPEN | {"description": "with dryRun: whether it fits, where, who would move, or what is in the way"},
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
    )


def _infer() -> dict[str, Any]:
    return crd(
        "CloudMatrixInfer",
        "cloudmatrixinfers",
        ["cminf"],
        infer_spec(),
        status_schema(
            endpoint=text("where the model is served, as OpenAI's API"),
            **counts(
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
        "~Prefill:integer=.status.desiredPools.prefill ~Decode:integer=.status.desiredPools.decode "
        "~Active=ScalingActive ~Limited=ScalingLimited ~Last_scale=.status.lastScaleTime",
        description="Keeps a CloudMatrixInstance as large as its work asks for. Only one may own its scale.",
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
        description="How far the recovery of an instance may go, or of all of the namespace that have none.",
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
        description="How many nodes of a supernode maintenances may take out at once, for which reasons and when.",
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
        description="A fault on the emulated hardware. The control plane is not informed: it has to detect it.",
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
        description="Faults in time, what has to happen then, and a verdict; run once, and always rolled back.",
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
        description="A supernode as MatrixResource holds it. Read-only: changes are undone.",
        name_length_max=None,
    )


def _network_slice() -> dict[str, Any]:
    return crd(
        "NetworkSlice",
        "networkslices",
        ["nsl"],
        mirrored(SliceView, SLICE_SPEC),
        status_schema(**shown_schema(SliceView, *SLICE_STATUS), **counts(members="nodes that it joins")),
        "Plane=.spec.plane Instance=.spec.instance QoS=.spec.qosClass Floor:number=.spec.floorGbpsPerNpu "
        "State=.status.state",
        scope="Cluster",
        description="A network slice as MatrixLink holds it. Read-only: changes are undone.",
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
    """All CRDs as one YAML stream."""
    import yaml

    return "---\n".join(yaml.safe_dump(each, sort_keys=False, width=120) for each in custom_resource_definitions())


if __name__ == "__main__":
    print(as_yaml(), end="")
