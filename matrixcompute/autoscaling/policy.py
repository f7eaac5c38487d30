"""A scaling policy as it is asked for: HPA v2's fields where it has them.

A replica is a node of eight NPUs, as on the scale subresource of a CloudMatrixInstance. Times are emulated seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator

from matrixcommon.model.empty import empty_dict, empty_list
from matrixcommon.model.quantities import counted
from matrixcommon.model.resource_key import reference
from matrixcommon.model.resource_model import ApiModel, ResourceView

REPLICAS_MAX = 49152


class Reason(StrEnum):
    """Why a tick ended as it did: one of these, in the status, in events and in conditions."""

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
    """What is told of nodes on which so many requests still run when they are to leave."""
    return f"{counted(requests, 'request')} on nodes that are to leave: {nodes}"


def owner_of(policy: str) -> str:
    """As whom a policy sizes the pools of deployments and has nodes drained."""
    return f"scaling-policies/{policy}"


def is_policy(owner: str) -> bool:
    """Whether somebody who asked for a size or a drain is a scaling policy."""
    return owner.startswith(owner_of(""))


def resource_owner(instance: str) -> str:
    """As whom the operator has nodes drained that a CloudMatrixInstance is to be without."""
    return f"cloudmatrixinstances/{instance}"


def is_resource(owner: str) -> bool:
    """Whether somebody who asked for a drain is a CloudMatrixInstance."""
    return owner.startswith(resource_owner(""))


class ScaleTarget(ApiModel):
    """What is scaled."""

    kind: Literal["CloudMatrixInstance"] = Field("CloudMatrixInstance", description="an instance, by its nodes")
    name: str = Field(min_length=1, max_length=127, description="its name, in the policy's project")

    REFERENCES: ClassVar = ("name",)

    def shown_to(self, project: str) -> Self:
        return self.model_copy(update={"name": reference(self.name, project)})


class DescribedObject(ApiModel):
    """Whose metric it is."""

    kind: Literal["CloudMatrixInfer"] = Field("CloudMatrixInfer", description="a model that is served on the target")
    name: str = Field("", max_length=57, description="its name; empty: the one that is served on the target")


class MetricIdentifier(ApiModel):
    """Which metric."""

    name: str = Field(min_length=1, max_length=63, description="as CloudMatrix-Infer's statistics name it")


class MetricTarget(ApiModel):
    """What the metric is to be."""

    value: float | None = Field(None, gt=0, le=1e12, description="with type Value")
    average_value: float | None = Field(None, gt=0, le=1e12, description="with type AverageValue")
    type: Literal["Value", "AverageValue"] = Field(description="of all members together, or of each")

    @field_validator("type")
    @classmethod
    def _one_of_them(cls, type: str, given: ValidationInfo) -> str:
        present = {name for name in ("value", "average_value") if given.data.get(name, 1.0) is not None}
        if present != {"average_value" if type == "AverageValue" else "value"}:
            raise ValueError("type Value goes with value alone, type AverageValue with averageValue alone")
        return type

    @property
    def number(self) -> float:
        found = self.value if self.type == "Value" else self.average_value
        assert found is not None
        return found


class ObjectMetric(ApiModel):
    """A metric of one object."""

    described_object: DescribedObject = Field(DescribedObject(), description="whose it is")
    metric: MetricIdentifier = Field(description="which one")
    target: MetricTarget = Field(description="what it is to be")


class Metric(ApiModel):
    """One signal, in the form of `autoscaling/v2`."""

    type: Literal["Object"] = Field("Object", description="a metric of one object")
    object: ObjectMetric = Field(description="the metric and its target")


class ScalingRate(ApiModel):
    """How much may change in a period."""

    type: Literal["Pods", "Percent"] = Field(description="Pods counts members, which are nodes")
    value: int = Field(gt=0, le=REPLICAS_MAX, description="so many, or so many in a hundred")
    period_seconds: int = Field(gt=0, le=1800, description="in so many seconds")


class ScalingRules(ApiModel):
    """How fast it may go one way."""

    stabilization_window_seconds: int | None = Field(
        None, ge=0, le=3600, description="up: the lowest recommendation of so long counts; down: the highest"
    )
    select_policy: Literal["Max", "Min", "Disabled"] = Field("Max", description="which of the policies counts")
    policies: list[ScalingRate] = Field(default_factory=empty_list, max_length=16, description="by default HPA's own")
    tolerance: float | None = Field(None, ge=0, le=1, description="nothing changes while the ratio is this near to one")


class Behavior(ApiModel):
    """How fast it may go each way; what is left out is as `autoscaling/v2` has it."""

    scale_up: ScalingRules = Field(ScalingRules(), description="growing")
    scale_down: ScalingRules = Field(ScalingRules(), description="shrinking")


class Schedule(ApiModel):
    """A floor by the clock, every week again; times of the day in UTC, emulated."""

    name: str = Field(min_length=1, max_length=63, description="for the reason's message")
    days: list[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]] = Field(
        default_factory=empty_list, max_length=7, description="none means every day"
    )
    start: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="from then")]
    end: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$", description="until then; before start: overnight")]
    min_replicas: int = Field(ge=1, le=REPLICAS_MAX, description="no fewer than that meanwhile")


class Objective(ApiModel):
    """How the own signals are judged, where a policy names no metric."""

    utilization: float | None = Field(
        None,
        gt=0.05,
        le=1,
        description="the share of a member's work that is aimed at; by default 0.8, with a forecast all of it",
    )
    backlog_seconds: float = Field(10.0, gt=0, le=3600, description="in how long what waits is to be worked off")
    ttft_seconds: float | None = Field(
        None, gt=0, le=3600, description="the P90 of the time to the first token, in place of backlogSeconds; for pools"
    )
    tpot_seconds: float | None = Field(
        None, gt=0, le=10, description="the time for each further token; by default the paper's 0.05"
    )


class PoolBounds(ApiModel):
    """How large a pool may be, in nodes."""

    min_replicas: int = Field(1, ge=1, le=REPLICAS_MAX, description="never fewer; the model may need more")
    max_replicas: int | None = Field(
        None, ge=1, le=REPLICAS_MAX, description="never more; by default what the policy leaves beside the others"
    )

    @field_validator("max_replicas")
    @classmethod
    def _ordered(cls, most: int | None, given: ValidationInfo) -> int | None:
        if most is not None and most < (least := given.data.get("min_replicas", 1)):
            raise ValueError(f"{most} is below minReplicas, {least}")
        return most


class PoolsPolicy(ApiModel):
    """Pools that are sized each by its own work; nodes may change their role where nothing has to be allocated."""

    prefill: PoolBounds = Field(PoolBounds(), description="nodes that read prompts")
    decode: PoolBounds = Field(PoolBounds(), description="nodes that generate answers")
    caching: PoolBounds | None = Field(
        None, description="of these, how many lend their memory to the context cache; by default all of them do"
    )

    @property
    def least(self) -> int:
        """Nodes that there are at least: caching is in the memory of the others."""
        return max(
            self.prefill.min_replicas + self.decode.min_replicas, self.caching.min_replicas if self.caching else 0
        )


class PoolSizes(ApiModel):
    """Nodes of each pool; caching is in the memory of the other two."""

    prefill: int = Field(0, description="nodes that read prompts")
    decode: int = Field(0, description="nodes that generate answers")
    caching: int | None = Field(None, description="nodes that lend their memory to the context cache")

    @property
    def nodes(self) -> int:
        return self.prefill + self.decode


class ScalingPolicySpec(ApiModel):
    """Keeps an instance as large as its work asks for. One policy owns a target.

    The spec of a ScalingPolicy is printed from this class.
    """

    project: str = Field("default", min_length=1, max_length=63, description="whose policy it is; cannot be changed")
    scale_target_ref: ScaleTarget = Field(description="what is scaled; nothing else may own its scale")
    min_replicas: int = Field(
        1, ge=0, le=REPLICAS_MAX, description="never fewer nodes; 0: it may be scaled to zero when nothing comes in"
    )
    max_replicas: int = Field(ge=1, le=REPLICAS_MAX, description="never more nodes")
    cooldown_period: int = Field(
        300, ge=0, le=86_400, description="with minReplicas 0: seconds without a request before it is scaled to zero"
    )
    block: int = Field(1, ge=1, le=384, description="nodes come and go in whole blocks of so many")
    metrics: list[Metric] = Field(
        default_factory=empty_list,
        max_length=16,
        description="the largest proposal counts; none: the work that waits and that comes in, in nodes",
    )
    pools: PoolsPolicy | None = Field(
        None, description="size the pools of the one model that is served there, by their own work; without metrics"
    )
    objective: Objective = Field(Objective(), description="of the own signals")
    behavior: Behavior = Field(Behavior(), description="how fast it may change")
    schedules: list[Schedule] = Field(default_factory=empty_list, max_length=32, description="floors by the clock")
    warm_spares: int = Field(
        0, ge=0, le=48, description="so many of the target's spares may stand for nodes that were to be there ahead"
    )
    predictive: Literal["Off", "Preview", "Auto"] | None = Field(
        None,
        description="whether a forecast for when a member that starts now serves raises the floor, or only shows; "
        "by default Auto where no metric is named, else Off",
    )

    REFERENCES: ClassVar = ("scale_target_ref",)

    @property
    def forecasts(self) -> Literal["Off", "Preview", "Auto"]:
        return self.predictive or ("Off" if self.metrics else "Auto")

    @property
    def utilization(self) -> float:
        """A forecast has a margin of its own; without one the headroom is here."""
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
            raise ValueError(f"no multiple of {block} is between minReplicas, {least}, and maxReplicas, {most}")
        return block

    @field_validator("pools")
    @classmethod
    def _possible(cls, pools: PoolsPolicy | None, given: ValidationInfo) -> PoolsPolicy | None:
        most = given.data.get("max_replicas", REPLICAS_MAX)
        if pools is None:
            return None
        if given.data.get("metrics"):
            raise ValueError("pools are sized by the work of each: leave metrics out")
        if pools.least > most:
            raise ValueError(f"minReplicas of the pools need {pools.least} nodes, and maxReplicas is {most}")
        bounds = pools.prefill.max_replicas, pools.decode.max_replicas
        least = given.data.get("min_replicas", 1)
        if None not in bounds and (together := sum(each or 0 for each in bounds)) < least:
            raise ValueError(f"maxReplicas of prefill and decode are {together}, and minReplicas is {least}")
        return pools

    @field_validator("schedules")
    @classmethod
    def _reachable(cls, schedules: Sequence[Schedule], given: ValidationInfo) -> Sequence[Schedule]:
        most = given.data.get("max_replicas", REPLICAS_MAX)
        if above := [each.name for each in schedules if each.min_replicas > most]:
            raise ValueError(f"minReplicas of {', '.join(above)} is above maxReplicas, {most}")
        return schedules

    def shown_to(self, project: str) -> Self:
        """With the name of a target of the project's own."""
        return self.model_copy(update={"scale_target_ref": self.scale_target_ref.shown_to(project)})


class ScalingPolicyRequest(ScalingPolicySpec):
    """A policy, with the labels that it bears."""

    EXAMPLES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"scaleTargetRef": {"name": "qwen"}, "minReplicas": 1, "maxReplicas": 8},
    )

    labels: dict[str, str] = Field(default_factory=empty_dict)


class ScalingState(ApiModel):
    """What the decision remembers; stored with the decision, so that a restart forgets nothing."""

    recommended: list[tuple[float, int]] = Field(default_factory=empty_list)
    changes: list[tuple[float, int]] = Field(default_factory=empty_list)
    loads: list[tuple[float, float]] = Field(default_factory=empty_list)
    missed: list[tuple[float, float]] = Field(default_factory=empty_list)
    """Of `loads`, those that came while prompts waited for too long."""
    began: tuple[float, int] | None = None
    """When it began to look, and the size that it found."""
    pools: dict[str, ScalingState] = Field(default_factory=empty_dict)
    """The same of each pool, where a policy sizes pools."""
    joined: ScalingState | None = None
    """The same of the decision as if every new node came from a spare, where spares are a tier."""
    returns_to: PoolSizes | None = None
    """The pools that there were before the target was scaled to zero."""

    @classmethod
    def of(cls, stored: dict[str, Any] | None) -> ScalingState:
        # Earlier releases kept `nodeS` here, which is with the instance now.
        return cls.from_stored({name: value for name, value in (stored or {}).items() if name != "nodeS"})


class ScalingDecision(ApiModel):
    """A decision that differed from the one before."""

    at: str = Field(description="when, emulated")
    current_replicas: int = Field(description="nodes that there were")
    desired_replicas: int = Field(description="nodes that there are to be")
    desired_pools: PoolSizes | None = Field(None, description="and how many of each pool, where they are sized")
    reason: Reason = Field(description="why, of a closed list")
    message: str = Field(description="why, with the figures")


class ScalingPolicyView(ResourceView):
    """A policy, and what it decided last."""

    scale_target_ref: ScaleTarget
    min_replicas: int
    max_replicas: int
    block: int
    cooldown_period: int = 300
    metrics: list[Metric] = Field(default_factory=empty_list)
    pools: PoolsPolicy | None = None
    objective: Objective
    behavior: Behavior
    schedules: list[Schedule] = Field(default_factory=empty_list)
    warm_spares: int = 0
    predictive: Literal["Off", "Preview", "Auto"] | None = None
    current_replicas: int = Field(0, description="nodes of the target's spec")
    desired_replicas: int = Field(0, description="nodes that it is to have")
    desired_pools: PoolSizes | None = Field(None, description="and how many of each pool, where they are sized")
    forecast_replicas: int | None = Field(None, description="the floor that the forecast makes, or would make")
    reason: Reason | None = Field(None, description="of the last decision")
    message: str = Field("", description="of the last decision, with its figures")
    last_scale_time: str | None = Field(None, description="when it last changed the target")
    decisions: list[ScalingDecision] = Field(default_factory=empty_list, description="the last ones, the newest last")
