"""The wire contract of scaling policies. Fields follow the HorizontalPodAutoscaler (autoscaling/v2) where it has them.

A replica is a node of eight NPUs, as on the scale subresource of a CloudMatrixInstance. Times are emulated seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.quantities import pluralized
from matrixcommon.model.resource_key import reference_to
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.model.validation import pattern_of

REPLICAS_MAX = 49152


class Reason(StrEnum):
    """Why a tick ended as it did, as shown in status, events and conditions. A closed list."""

    DESIRED_WITHIN_RANGE = "DesiredWithinRange"
    ABOVE_TARGET = "AboveTarget"
    BELOW_TARGET = "BelowTarget"
    SCHEDULE_FLOOR = "ScheduleFloor"
    FORECAST_FLOOR = "ForecastFloor"
    WHOLE_BLOCKS = "WholeBlocks"
    SCALE_UP_STABILIZED = "ScaleUpStabilized"
    SCALE_DOWN_STABILIZED = "ScaleDownStabilized"
    SCALE_UP_LIMIT = "ScaleUpLimit"
    SCALE_DOWN_LIMIT = "ScaleDownLimit"
    TOO_MANY_REPLICAS = "TooManyReplicas"
    TOO_FEW_REPLICAS = "TooFewReplicas"
    PENDING_MEMBERS = "PendingMembers"
    METRIC_UNAVAILABLE = "MetricUnavailable"
    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    TARGET_NOT_FOUND = "TargetNotFound"
    TARGET_NOT_READY = "TargetNotReady"
    CHANGE_UNDER_WAY = "ChangeUnderWay"
    DRAINING = "Draining"
    ROLES_REBALANCED = "RolesRebalanced"
    SCALE_TARGET_DEACTIVATED = "ScaleTargetDeactivated"
    SCALE_TARGET_ACTIVATED = "ScaleTargetActivated"
    REFUSED = "Refused"
    SPARES_COVER = "SparesCover"


def draining_text(requests: int, nodes: str) -> str:
    """The message for nodes that are draining before they leave; `requests` still run there."""
    return f"{pluralized(requests, 'request')} on nodes that are to leave: {nodes}"


def owner_of(policy: str) -> str:
    """The owner name under which a policy sizes pools and drains nodes."""
    return f"scaling-policies/{policy}"


def is_policy(owner: str) -> bool:
    """Whether the owner of a pool size or a drain is a scaling policy."""
    return owner.startswith(owner_of(""))


def resource_owner(instance: str) -> str:
    """The owner name under which the operator drains nodes that a CloudMatrixInstance gives up."""
    return f"cloudmatrixinstances/{instance}"


def is_resource(owner: str) -> bool:
    """Whether the owner of a drain is a CloudMatrixInstance."""
    return owner.startswith(resource_owner(""))


class ScaleTarget(ApiModel):
    """The resource to scale."""

    kind: Literal["CloudMatrixInstance"] = Field("CloudMatrixInstance", description="an instance, scaled by nodes")
    name: str = Field(min_length=1, max_length=127, description="its name, in the policy's project")

    REFERENCES: ClassVar = ("name",)

    def shown_to(self, project: str) -> Self:
        return self.model_copy(update={"name": reference_to(self.name, project)})


class DescribedObject(ApiModel):
    """The object that a metric describes."""

    kind: Literal["CloudMatrixInfer"] = Field("CloudMatrixInfer", description="a model that the target serves")
    name: str = Field("", max_length=57, description="its name; empty: the only one that the target serves")


class MetricIdentifier(ApiModel):
    """A metric, by name."""

    name: str = Field(min_length=1, max_length=63, description="its name in CloudMatrix-Infer's statistics")


class MetricTarget(ApiModel):
    """The target value of a metric."""

    value: float | None = Field(None, gt=0, le=1e12, description="target for the whole; with type Value")
    average_value: float | None = Field(None, gt=0, le=1e12, description="target per member; with type AverageValue")
    type: Literal["Value", "AverageValue"] = Field(description="Value: of all members together; AverageValue: of each")

    @field_validator("type")
    @classmethod
    def _one_value(cls, type: str, given: ValidationInfo) -> str:
        present = {name for name in ("value", "average_value") if given.data.get(name, 1.0) is not None}
        if present != {"average_value" if type == "AverageValue" else "value"}:
            raise ValueError("type Value takes value and nothing else, type AverageValue takes averageValue")
        return type

    @property
    def number(self) -> float:
        found = self.value if self.type == "Value" else self.average_value
        assert found is not None
        return found


class ObjectMetric(ApiModel):
    """A metric of one object."""

    described_object: DescribedObject = Field(DescribedObject(), description="the object it describes")
    metric: MetricIdentifier = Field(description="which metric")
    target: MetricTarget = Field(description="its target value")


class Metric(ApiModel):
    """One signal, in the form of `autoscaling/v2`."""

    type: Literal["Object"] = Field("Object", description="a metric of one object")
    object: ObjectMetric = Field(description="the metric and its target")


class ScalingRate(ApiModel):
    """How much the size may change in a period."""

    type: Literal["Pods", "Percent"] = Field(description="unit of value; Pods counts members, which are nodes")
    value: int = Field(gt=0, le=REPLICAS_MAX, description="the largest change: members, or percent of the size")
    period_seconds: int = Field(gt=0, le=1800, description="the period, in seconds")


class ScalingRules(ApiModel):
    """How fast the size may change in one direction."""

    stabilization_window_seconds: int | None = Field(
        None, ge=0, le=3600, description="up: the lowest recommendation of this window applies; down: the highest"
    )
    select_policy: Literal["Max", "Min", "Disabled"] = Field(
        "Max", description="apply the policy that allows the largest (Max) or smallest change (Min), or never scale"
    )
    policies: list[ScalingRate] = Field(default_factory=empty_list, max_length=16, description="by default the HPA's")
    tolerance: float | None = Field(None, ge=0, le=1, description="no change while metric/target is within this of 1")


class Behavior(ApiModel):
    """How fast the size may change in each direction; defaults are those of `autoscaling/v2`."""

    scale_up: ScalingRules = Field(ScalingRules(), description="rules for growing")
    scale_down: ScalingRules = Field(ScalingRules(), description="rules for shrinking")


TimeOfDay = Annotated[
    str, Field(pattern=pattern_of(r"^([01]\d|2[0-3]):[0-5]\d$", "a time of day from 00:00 to 23:59, such as 09:30"))
]


class Schedule(ApiModel):
    """A minimum size at certain hours, repeated weekly. Times of day are UTC, emulated."""

    name: str = Field(min_length=1, max_length=63, description="its name, shown in messages")
    days: list[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]] = Field(
        default_factory=empty_list, max_length=7, description="the days it applies; by default every day"
    )
    start: TimeOfDay = Field(description="when it begins, as HH:MM (UTC)")
    end: TimeOfDay = Field(description="when it ends, as HH:MM (UTC); earlier than start: the next day")
    min_replicas: int = Field(ge=1, le=REPLICAS_MAX, description="the fewest nodes between start and end")


class Objective(ApiModel):
    """Targets for the built-in signals, which apply where a policy names no metric."""

    utilization: float | None = Field(
        None,
        gt=0.05,
        le=1,
        description="target share of a member's capacity; by default 0.8, or 1 with a forecast",
    )
    backlog_seconds: float = Field(10.0, gt=0, le=3600, description="the time in which the backlog is to be cleared")
    ttft_seconds: float | None = Field(
        None, gt=0, le=3600, description="target P90 of the time to first token; replaces backlogSeconds for pools"
    )
    tpot_seconds: float | None = Field(
        None, gt=0, le=10, description="target time per output token; by default the paper's 0.05"
    )


class PoolBounds(ApiModel):
    """Bounds on the size of a pool, in nodes."""

    min_replicas: int = Field(1, ge=1, le=REPLICAS_MAX, description="the fewest nodes; the model may need more")
    max_replicas: int | None = Field(
        None, ge=1, le=REPLICAS_MAX, description="the most nodes; by default what the policy's maxReplicas leaves"
    )

    @field_validator("max_replicas")
    @classmethod
    def _ordered(cls, most: int | None, given: ValidationInfo) -> int | None:
        if most is not None and most < (least := given.data.get("min_replicas", 1)):
            raise ValueError(f"{most} is below minReplicas, {least}")
        return most


class PoolsPolicy(ApiModel):
    """Bounds of the pools, each sized by its own work. A node may change roles, which allocates nothing."""

    prefill: PoolBounds = Field(PoolBounds(), description="nodes that read prompts")
    decode: PoolBounds = Field(PoolBounds(), description="nodes that generate answers")
    caching: PoolBounds | None = Field(
        None, description="how many of these nodes lend memory to the context cache; by default all"
    )

    @property
    def least(self) -> int:
        """The fewest nodes that satisfy all minimums; the caching pool lives in the memory of the other two."""
        return max(
            self.prefill.min_replicas + self.decode.min_replicas, self.caching.min_replicas if self.caching else 0
        )


class PoolSizes(ApiModel):
    """Nodes in each pool; the caching pool lives in the memory of the other two."""

    prefill: int = Field(0, description="nodes that read prompts")
    decode: int = Field(0, description="nodes that generate answers")
    caching: int | None = Field(None, description="nodes that lend their memory to the context cache")

    @property
    def nodes(self) -> int:
        return self.prefill + self.decode


class ScalingPolicySpec(ApiModel):
    """Sizes an instance to its load. A target has one policy.

    The spec of a ScalingPolicy is generated from this class.
    """

    project: str = Field("default", min_length=1, max_length=63, description="the owning project; cannot be changed")
    scale_target_ref: ScaleTarget = Field(description="what to scale; nothing else may control its size")
    min_replicas: int = Field(
        1, ge=0, le=REPLICAS_MAX, description="the fewest nodes; 0 allows scaling to zero when no requests come"
    )
    max_replicas: int = Field(ge=1, le=REPLICAS_MAX, description="the most nodes")
    cooldown_period: int = Field(
        300, ge=0, le=86_400, description="with minReplicas 0: seconds without a request before it is scaled to zero"
    )
    block: int = Field(1, ge=1, le=384, description="nodes are added and removed in multiples of this")
    metrics: list[Metric] = Field(
        default_factory=empty_list,
        max_length=16,
        description="the metric that asks for most nodes decides; without any, the size follows backlog and arrivals",
    )
    pools: PoolsPolicy | None = Field(
        None, description="size each pool of the one model served there by its own work; excludes metrics"
    )
    objective: Objective = Field(Objective(), description="targets for the built-in signals")
    behavior: Behavior = Field(Behavior(), description="how fast the size may change")
    schedules: list[Schedule] = Field(default_factory=empty_list, max_length=32, description="minimum sizes by hour")
    warm_spares: int = Field(
        0, ge=0, le=48, description="how many of the target's spares count as nodes that are kept in advance of load"
    )
    predictive: Literal["Off", "Preview", "Auto"] | None = Field(
        None,
        description="forecast the load at the time a member started now would serve: Auto raises the floor to it, "
        "Preview only shows it; by default Auto without metrics, else Off",
    )

    REFERENCES: ClassVar = ("scale_target_ref",)

    @property
    def forecasts(self) -> Literal["Off", "Preview", "Auto"]:
        return self.predictive or ("Off" if self.metrics else "Auto")

    @property
    def utilization(self) -> float:
        """Target utilization: 1 with a forecast, which adds its own margin; else 0.8, which leaves headroom."""
        return self.objective.utilization or (1.0 if self.forecasts == "Auto" else 0.8)

    @field_validator("max_replicas")
    @classmethod
    def _ordered(cls, most: int, given: ValidationInfo) -> int:
        if most < (least := given.data.get("min_replicas", 1)):
            raise ValueError(f"{most} is below minReplicas, {least}")
        return most

    @field_validator("block")
    @classmethod
    def _fits(cls, block: int, given: ValidationInfo) -> int:
        most, least = given.data.get("max_replicas", block), given.data.get("min_replicas", 1)
        if most // block * block < least:
            raise ValueError(f"no multiple of block, {block}, is between minReplicas, {least}, and maxReplicas, {most}")
        return block

    @field_validator("pools")
    @classmethod
    def _feasible_bounds(cls, pools: PoolsPolicy | None, given: ValidationInfo) -> PoolsPolicy | None:
        most = given.data.get("max_replicas", REPLICAS_MAX)
        if pools is None:
            return None
        if given.data.get("metrics"):
            raise ValueError("pools are sized by the work of each: leave metrics out")
        if pools.least > most:
            raise ValueError(f"minReplicas of the pools need {pools.least} nodes, but maxReplicas is {most}")
        bounds = pools.prefill.max_replicas, pools.decode.max_replicas
        least = given.data.get("min_replicas", 1)
        if None not in bounds and (bounds_sum := sum(each or 0 for each in bounds)) < least:
            raise ValueError(f"maxReplicas of prefill and decode add up to {bounds_sum}, but minReplicas is {least}")
        return pools

    @field_validator("schedules")
    @classmethod
    def _reachable(cls, schedules: Sequence[Schedule], given: ValidationInfo) -> Sequence[Schedule]:
        most = given.data.get("max_replicas", REPLICAS_MAX)
        if above := [each.name for each in schedules if each.min_replicas > most]:
            raise ValueError(f"minReplicas of {', '.join(above)} is above maxReplicas, {most}")
        return schedules

    def shown_to(self, project: str) -> Self:
        """The spec as `project` sees it: a target of the project's own is named without its project."""
        return self.model_copy(update={"scale_target_ref": self.scale_target_ref.shown_to(project)})


class ScalingPolicyRequest(ScalingPolicySpec):
    """A policy, and its labels."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"scaleTargetRef": {"name": "qwen"}, "minReplicas": 1, "maxReplicas": 8},
    )

    labels: dict[str, str] = Field(default_factory=empty_dict, description="its labels; a request replaces all of them")


class ScalingState(ApiModel):
    """What a decision remembers for the next. Stored in the decision's transaction, so a restart loses nothing."""

    recommended: list[tuple[float, int]] = Field(default_factory=empty_list)
    changes: list[tuple[float, int]] = Field(default_factory=empty_list)
    loads: list[tuple[float, float]] = Field(default_factory=empty_list)
    missed: list[tuple[float, float]] = Field(default_factory=empty_list)
    """The entries of `loads` during which prompts waited too long."""
    began: tuple[float, int] | None = None
    """When the policy first looked, and the size it found."""
    pools: dict[str, ScalingState] = Field(default_factory=empty_dict)
    """The state of each pool, where a policy sizes pools."""
    joined: ScalingState | None = None
    """The state of the decision made as if every new node came from a spare, where `warmSpares` is set."""
    returns_to: PoolSizes | None = None
    """The pool sizes from before the target was scaled to zero."""

    @classmethod
    def of(cls, stored: dict[str, Any] | None) -> ScalingState:
        # Earlier releases stored `nodeS` here; it is stored with the instance now.
        return cls.from_stored({name: value for name, value in (stored or {}).items() if name != "nodeS"})
