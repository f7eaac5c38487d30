"""The specs of the kinds that are asked for: the wire classes of the services, and the rules of CEL beside them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from infer_workload.contract.deployments import DeploymentRequest
from matrixcommon.model.empty import empty_dict
from matrixcommon.model.hardware_names import NODE_PATTERN
from matrixcommon.model.resource_model import ApiModel
from matrixcompute.autoscaling.policy import ScalingPolicySpec
from matrixcompute.contract import InstanceShape
from matrixcompute.maintenance.budgets import NODES, DisruptionBudgetSpec
from matrixcompute.recovery.ladder import recovery_rules
from matrixcompute.recovery.spec import RecoveryPolicySpec
from matrixcompute.scenarios.schema import Scenario
from matrixcontainer.operator.schemas.structural_schema import structural_schema
from matrixresource.agent.fault_catalogue import FaultKind

NAME_LENGTH_MAX = 57
"""Of an instance."""
_SWITCH = r"sn\d+-c\d{2,3}-n\d-l1p\d|sn\d+-l2p\d-k\d{2}|sn\d+-c\d{2,3}-leaf\d"
_CABINET = r"sn\d+-c\d{2,3}"
_NODE = NODE_PATTERN.replace("?P<supernode>", "").replace("?P<cabinet>", "").replace("?P<node>", "")


class InstanceSpec(InstanceShape):
    """The shape of an instance, and whether it is only to be planned."""

    dry_run: bool = Field(
        False,
        description="only plan: status.plan says whether it fits, where, which members would move, or what stands in "
        "the way; an instance that is there stays as it is meanwhile",
    )


class FaultSpec(ApiModel):
    """A fault on the emulated hardware of one node or switch, for as long as the resource exists."""

    kind: FaultKind = Field(description="what happens; `matrixctl fault kinds` lists them")
    target: str = Field(
        pattern=f"^({_NODE}|{_CABINET}|{_SWITCH})$",
        description="the node (sn0-c03-n2), the cabinet (sn0-c03) or the switch (sn0-l2p3-k11) it happens on",
    )
    parameters: dict[str, str] = Field(default_factory=empty_dict, description="what the kind needs to know")


class ScenarioSpec(Scenario):
    """A fault scenario, and whether it is not to be run yet."""

    suspend: bool = Field(False, description="do not run it; one that runs is stopped and rolled back")


def rule(rule: str, message: str, at: str = "") -> dict[str, str]:
    return {"rule": rule, "message": message} | ({"fieldPath": at} if at else {})


def instance_spec() -> dict[str, Any]:
    spec = structural_schema(InstanceSpec)
    del spec["properties"]["project"]  # it is the namespace
    spec["x-kubernetes-validations"] = [
        rule("!has(self.minNodes) || self.minNodes <= self.nodes", "minNodes must not be above nodes", ".minNodes"),
        rule(
            "!has(self.placement.blocks) || self.placement.blocks.all(block, self.nodes % block.nodes == 0)",
            "nodes must be a whole number of blocks",
            ".placement.blocks",
        ),
        rule(
            "!has(self.affinity) || !has(self.antiAffinity) || "
            "self.affinity.level != self.antiAffinity.level || "
            "!self.affinity.instances.exists(name, name in self.antiAffinity.instances)",
            "affinity and antiAffinity name the same instance at the same level",
            ".antiAffinity.instances",
        ),
    ]
    spec["properties"]["placement"]["x-kubernetes-validations"] = [
        rule(
            "!has(self.maxPerDomain) || self.policy == 'spread'",
            "maxPerDomain goes with policy spread",
            ".maxPerDomain",
        ),
        rule(
            "!has(self.blocks) || self.blocks.all(one, self.blocks.exists_one(o, o.level == one.level))",
            "one block size for each level",
            ".blocks",
        ),
        rule(
            "!has(self.blocks) || self.blocks.all(one, one.level != 'supernode' || self.blocks.all(other, "
            "other.level != 'cabinet' || one.nodes == 1 || one.nodes % other.nodes == 0))",
            "a block in a supernode must hold a whole number of blocks in a cabinet",
            ".blocks",
        ),
    ]
    for share in spec["properties"]["network"]["properties"].values():
        share["x-kubernetes-validations"] = [
            rule(
                "!has(self.ceilingGbpsPerNpu) || self.ceilingGbpsPerNpu >= self.floorGbpsPerNpu",
                "ceilingGbpsPerNpu must not be below floorGbpsPerNpu",
            ),
            rule(
                "self.qosClass != 'BestEffort' || self.floorGbpsPerNpu == 0.0",
                "BestEffort promises nothing: floorGbpsPerNpu must be 0",
            ),
        ]
    return spec


def infer_spec() -> dict[str, Any]:
    spec = structural_schema(DeploymentRequest)
    del spec["properties"]["labels"]  # they are the resource's own
    spec["properties"]["instance"] |= {"maxLength": NAME_LENGTH_MAX}  # a name in the same namespace, not a key
    spec["x-kubernetes-validations"] = [
        {"rule": "self.instance == oldSelf.instance", "message": "a deployment stays on its instance"},
        {"rule": "self.model == oldSelf.model", "message": "a deployment keeps its model"},
        {
            "rule": "!has(self.machine) || !has(oldSelf.machine) || self.machine == oldSelf.machine",
            "message": "a deployment keeps its machine",
        },
    ]
    return spec


def policy_spec() -> dict[str, Any]:
    spec = structural_schema(ScalingPolicySpec)
    del spec["properties"]["project"]  # it is the namespace
    spec["x-kubernetes-validations"] = [
        rule("self.maxReplicas >= self.minReplicas", "maxReplicas must not be below minReplicas", ".maxReplicas"),
        rule(
            "!has(self.pools) || !has(self.metrics) || self.metrics.size() == 0",
            "pools are sized by the work of each: leave metrics out",
            ".pools",
        ),
        *(
            rule(
                f"!has(self.pools) || !has(self.pools.{pool}) || !has(self.pools.{pool}.maxReplicas) || "
                f"self.pools.{pool}.maxReplicas >= self.pools.{pool}.minReplicas",
                "maxReplicas must not be below minReplicas",
                f".pools.{pool}.maxReplicas",
            )
            for pool in ("prefill", "decode", "caching")
        ),
        rule("self.scaleTargetRef == oldSelf.scaleTargetRef", "a policy keeps its target", ".scaleTargetRef"),
    ]
    return spec


def recovery_spec() -> dict[str, Any]:
    spec = structural_schema(RecoveryPolicySpec)
    del spec["properties"]["project"]  # it is the namespace
    spec["properties"]["rungs"]["items"]["enum"] = [*recovery_rules().rungs]
    return spec


def budget_spec() -> dict[str, Any]:
    spec = structural_schema(DisruptionBudgetSpec)
    spec["properties"]["nodes"]["pattern"] = f"^({NODES})$"
    spec["x-kubernetes-validations"] = [
        rule("has(self.schedule) == has(self.durationS)", "schedule and durationS go together", ".schedule")
    ]
    return spec


def fault_spec() -> dict[str, Any]:
    spec = structural_schema(FaultSpec)
    spec["x-kubernetes-validations"] = [{"rule": "self == oldSelf", "message": "a fault cannot be changed; delete it"}]
    return spec


def scenario_spec() -> dict[str, Any]:
    return structural_schema(ScenarioSpec)
