"""Spec schemas of the kinds that users write: the services' model classes plus CEL validation rules."""

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
"""Longest name of an instance, in characters."""
_SWITCH = r"sn\d+-c\d{2,3}-n\d-l1p\d|sn\d+-l2p\d-k\d{2}|sn\d+-c\d{2,3}-leaf\d"
_CABINET = r"sn\d+-c\d{2,3}"
_NODE = NODE_PATTERN.replace("?P<supernode>", "").replace("?P<cabinet>", "").replace("?P<node>", "")


class InstanceSpec(InstanceShape):
    """The shape of an instance, and whether it is only planned."""

    dry_run: bool = Field(
        False,
        description="only plan: status.plan reports whether the instance fits, on which nodes, and which members would "
        "move, or else what blocks it; an existing instance is not changed",
    )


class FaultSpec(ApiModel):
    """A fault in the emulated hardware of one node, cabinet or switch, for as long as the resource exists."""

    kind: FaultKind = Field(description="kind of fault; `matrixctl fault kinds` lists them")
    target: str = Field(
        pattern=f"^({_NODE}|{_CABINET}|{_SWITCH})$",
        description="the node (sn0-c03-n2), cabinet (sn0-c03) or switch (sn0-l2p3-k11) that fails",
    )
    parameters: dict[str, str] = Field(default_factory=empty_dict, description="parameters of this kind of fault")


class ScenarioSpec(Scenario):
    """A fault scenario, and whether it is suspended."""

    suspend: bool = Field(False, description="do not run the scenario; one already running is stopped and rolled back")


def rule(rule: str, message: str, at: str = "") -> dict[str, str]:
    return {"rule": rule, "message": message} | ({"fieldPath": at} if at else {})


def instance_spec() -> dict[str, Any]:
    spec = structural_schema(InstanceSpec)
    del spec["properties"]["project"]  # the namespace is the project
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
            "maxPerDomain requires policy spread",
            ".maxPerDomain",
        ),
        rule(
            "!has(self.blocks) || self.blocks.all(one, self.blocks.exists_one(o, o.level == one.level))",
            "blocks allows only one entry per level",
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
                "BestEffort guarantees no bandwidth: floorGbpsPerNpu must be 0",
            ),
        ]
    return spec


def infer_spec() -> dict[str, Any]:
    spec = structural_schema(DeploymentRequest)
    del spec["properties"]["labels"]  # taken from the resource's metadata
    spec["properties"]["instance"] |= {"maxLength": NAME_LENGTH_MAX}  # a name in the same namespace, not a key
    spec["x-kubernetes-validations"] = [
        {"rule": "self.instance == oldSelf.instance", "message": "instance is immutable"},
        {"rule": "self.model == oldSelf.model", "message": "model is immutable"},
        {
            "rule": "!has(self.machine) || !has(oldSelf.machine) || self.machine == oldSelf.machine",
            "message": "machine is immutable",
        },
    ]
    return spec


def policy_spec() -> dict[str, Any]:
    spec = structural_schema(ScalingPolicySpec)
    del spec["properties"]["project"]  # the namespace is the project
    spec["x-kubernetes-validations"] = [
        rule("self.maxReplicas >= self.minReplicas", "maxReplicas must not be below minReplicas", ".maxReplicas"),
        rule(
            "!has(self.pools) || !has(self.metrics) || self.metrics.size() == 0",
            "pools are scaled by their own load: metrics must not be set with pools",
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
        rule("self.scaleTargetRef == oldSelf.scaleTargetRef", "scaleTargetRef is immutable", ".scaleTargetRef"),
    ]
    return spec


def recovery_spec() -> dict[str, Any]:
    spec = structural_schema(RecoveryPolicySpec)
    del spec["properties"]["project"]  # the namespace is the project
    spec["properties"]["rungs"]["items"]["enum"] = [*recovery_rules().rungs]
    return spec


def budget_spec() -> dict[str, Any]:
    spec = structural_schema(DisruptionBudgetSpec)
    spec["properties"]["nodes"]["pattern"] = f"^({NODES})$"
    spec["x-kubernetes-validations"] = [
        rule("has(self.schedule) == has(self.durationS)", "schedule and durationS must be set together", ".schedule")
    ]
    return spec


def fault_spec() -> dict[str, Any]:
    spec = structural_schema(FaultSpec)
    message = "a MatrixFault is immutable; delete it and create another"
    spec["x-kubernetes-validations"] = [rule("self == oldSelf", message)]
    return spec


def scenario_spec() -> dict[str, Any]:
    return structural_schema(ScenarioSpec)
