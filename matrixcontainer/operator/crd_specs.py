"""The specs of the kinds that are asked for: the wire classes of the services, and the rules of CEL beside them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from matrixcommon.model.hardware_names import NODE_PATTERN
from matrixcommon.model.resource_model import ApiModel
from matrixcompute.autoscaling.policy import ScalingPolicySpec
from matrixcompute.contract import InstanceShape
from matrixcompute.maintenance.budgets import NODES, DisruptionBudgetSpec
from matrixcompute.recovery.ladder import recovery_rules
from matrixcompute.recovery.spec import RecoveryPolicySpec
from matrixcompute.scenarios.schema import Scenario
from matrixcontainer.operator.structural_schema import structural_schema
from matrixresource.agent.fault_catalogue import FaultKind

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


class ObjectiveSpec(ApiModel):
    """What requests that are admitted are served within; those that would not be are refused with 429."""

    ttft_s: float | None = Field(None, gt=0, le=86_400, description="arrival to first token, emulated seconds")
    tpot_s: float | None = Field(None, gt=0, le=60, description="mean time of a token after the first, seconds")


class InferSpec(ApiModel):
    """CloudMatrix-Infer on an instance: which model, and how many NPUs play which role (by default, as the paper). A
    ScalingPolicy with pools goes before these sizes."""

    instance: str = Field(
        min_length=1, max_length=57, description="the CloudMatrixInstance to serve on, same namespace"
    )
    model: str = Field(
        "deepseek-r1",
        min_length=1,
        max_length=127,
        description="the model that is served: deepseek-r1, deepseek-v3, kimi-k2, llama-3.1-70b, qwen3-235b, or one of "
        "CloudMatrix-Infer's own folder of models",
    )
    prefill_npus: int | None = Field(None, ge=8, le=32768, description="NPUs of the prefill pool, in whole nodes of 8")
    decode_npus: int | None = Field(None, ge=8, le=32768, description="NPUs of the decode pool, in whole nodes of 8")
    caching_nodes: int | None = Field(
        None, ge=1, le=4096, description="nodes of both that lend their memory to the context cache; by default all"
    )
    block_tokens: int = Field(512, ge=128, le=512, description="tokens of one block of the context cache")
    context_cache: bool = Field(True, description="whether prompts that begin as earlier ones are read from the cache")
    cache_plane: Literal["ub", "vpc"] = Field("ub", description="the plane that cached blocks are read over")
    cache_gb_per_node: float | None = Field(
        None, ge=0, le=4096, description="memory of each caching node for the context cache, GB; by default a quarter"
    )
    cache_ssd_gb_per_node: float = Field(0.0, ge=0, le=65_536, description="solid state behind it, GB; 0: none")
    cache_eviction: Literal["lru", "cost"] = Field(
        "lru", description="what goes first: the least recently used, or what costs least to compute again"
    )
    cache_project_share: float = Field(
        1.0, gt=0, le=1, description="the part of the cache's memory that one project's prompts may hold"
    )
    warm_model_cache: bool = Field(True, description="whether the pool holds the weights before the first start")
    model_cache_gb_per_node: float | None = Field(
        None, ge=0, le=4096, description="memory of each node for weights, GB; by default what its models need"
    )
    model_cache_ssd_gb_per_node: float = Field(0.0, ge=0, le=65_536, description="solid state behind it, GB; 0: none")
    model_cache_models: list[str] = Field(
        default_factory=list,
        max_length=32,
        description="further models whose weights the pool keeps, the most wanted first; the served one comes before",
    )
    objective: ObjectiveSpec | None = Field(None, description="without one requests wait as long as it takes")
    queue_max: int = Field(
        10_000, ge=0, le=1_000_000, description="requests that wait for KV memory, at most; others get 429"
    )
    activation_queue_max: int = Field(
        1000, ge=0, le=100_000, description="requests that wait while it is scaled to zero or returns; others get 503"
    )
    activation_timeout_s: float = Field(
        600.0, gt=0, le=86_400, description="emulated seconds that a request waits so before it gets 503"
    )


class FaultSpec(ApiModel):
    """A fault on the emulated hardware of one node or switch, for as long as the resource exists."""

    kind: FaultKind = Field(description="what happens; `matrixctl fault kinds` lists them")
    target: str = Field(
        pattern=f"^({_NODE}|{_CABINET}|{_SWITCH})$",
        description="the node (sn0-c03-n2), the cabinet (sn0-c03) or the switch (sn0-l2p3-k11) it happens on",
    )
    parameters: dict[str, str] = Field(default_factory=dict, description="what the kind needs to know")


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
            )
        ]
    return spec


def infer_spec() -> dict[str, Any]:
    spec = structural_schema(InferSpec)
    spec["x-kubernetes-validations"] = [
        *(
            rule(
                f"!has(self.{pool}) || self.{pool} % 8 == 0", f"{pool} must be a whole number of nodes of 8", f".{pool}"
            )
            for pool in ("prefillNpus", "decodeNpus")
        ),
        {"rule": "self.instance == oldSelf.instance", "message": "a deployment stays on its instance"},
        {"rule": "self.model == oldSelf.model", "message": "a deployment keeps its model"},
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
