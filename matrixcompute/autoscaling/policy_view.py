"""Scaling policies as they are shown: the spec, the latest decision, and those before it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from matrixcommon.model.empty import empty_list
from matrixcommon.model.resource_model import ApiModel, ResourceView
from matrixcompute.autoscaling.policy import (
    Behavior,
    Metric,
    Objective,
    PoolSizes,
    PoolsPolicy,
    Reason,
    ScaleTarget,
    Schedule,
)


class ScalingDecision(ApiModel):
    """A decision that differed from the previous one."""

    at: str = Field(description="when it was made, emulated")
    current_replicas: int = Field(description="number of nodes at the time")
    desired_replicas: int = Field(description="number of nodes it asked for")
    desired_pools: PoolSizes | None = Field(None, description="pool sizes it asked for, if the policy sizes pools")
    reason: Reason = Field(description="why, as one of a closed list")
    message: str = Field(description="why, with the figures")


class ScalingPolicyView(ResourceView):
    """A policy and its latest decision."""

    scale_target_ref: ScaleTarget = Field(description="what it scales")
    min_replicas: int = Field(description="the fewest nodes; 0: the target is scaled to zero when no requests come")
    max_replicas: int = Field(description="the most nodes")
    block: int = Field(description="nodes are added and removed in multiples of this")
    cooldown_period: int = Field(
        300, description="with minReplicas 0: emulated seconds without a request before it is scaled to zero"
    )
    metrics: list[Metric] = Field(
        default_factory=empty_list,
        description="the metric that asks for most nodes decides; empty: backlog and arrivals do",
    )
    pools: PoolsPolicy | None = Field(
        None, description="bounds of each pool, which is sized by its own work; null: pools are not sized"
    )
    objective: Objective = Field(description="targets for the built-in signals")
    behavior: Behavior = Field(description="how fast the size may change")
    schedules: list[Schedule] = Field(default_factory=empty_list, description="minimum sizes by hour")
    warm_spares: int = Field(
        0, description="how many of the target's spares count as nodes that are kept in advance of load"
    )
    predictive: Literal["Off", "Preview", "Auto"] | None = Field(
        None,
        description="Auto: the floor follows a forecast; Preview: only shown; null: Auto, or Off with metrics",
    )
    current_replicas: int = Field(0, description="number of nodes in the target's spec")
    desired_replicas: int = Field(0, description="number of nodes the policy wants")
    desired_pools: PoolSizes | None = Field(None, description="pool sizes the policy wants, if it sizes pools")
    forecast_replicas: int | None = Field(None, description="the floor that the forecast sets, or would set in Preview")
    reason: Reason | None = Field(None, description="reason of the last decision")
    message: str = Field("", description="the last decision in words, with its figures")
    last_scale_time: str | None = Field(None, description="when it last changed the target, in emulated time")
    decisions: list[ScalingDecision] = Field(default_factory=empty_list, description="recent decisions, newest last")
