"""What a scaling policy decides from: the target and its deployments, as one tick found them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matrixcommon.model.resource_key import name_of
from matrixcompute.autoscaling.decision import Observation
from matrixcompute.autoscaling.policy import PoolSizes, Reason, ScalingPolicyRequest
from matrixcompute.autoscaling.pools import PoolsObservation
from matrixcompute.reconcilers.scaling_signals import (
    Statistics,
    count_spares,
    current_pool_sizes,
    observe_pools,
    observe_target,
)
from matrixcompute.reconcilers.scaling_targets import Undecidable, check_scalable
from matrixcompute.store.store import InstanceRow, ScalingPolicyRow

Views = Mapping[str, dict[str, Any]]
"""The deployments on a target as they are now, by key."""


@dataclass(frozen=True)
class Situation:
    """A policy, its target, and what CloudMatrix-Infer said of the deployments there."""

    target: str
    policy: ScalingPolicyRequest
    sizes: PoolSizes | None
    """The pools that were decided last."""
    draining: list[str] | None
    """The nodes that were recorded as leaving."""
    not_scalable: Undecidable | None
    """Why nothing can be decided about the target, whatever is served there."""
    instance: Observation
    """The target's size, before anything is known of its load."""
    served: Views = field(default_factory=dict)
    statistics: Statistics = field(default_factory=dict)
    unavailable: str = ""
    """Why CloudMatrix-Infer did not answer; empty if it did."""

    @property
    def nodes(self) -> int:
        return self.instance.members


def read_situation(row: ScalingPolicyRow, instance: InstanceRow | None) -> Situation:
    """The stored part of a situation. A target that is scaled to zero counts as one without nodes."""
    whole = Observation(0, 0)
    if instance is not None:
        shape = instance.shape
        nodes, ready = (0, 0) if row.scaled_to_zero else (shape.nodes, instance.ready_nodes)
        spares = count_spares(instance.members or [])
        whole = Observation(nodes, ready, least=shape.min_nodes or 1, returns_to=shape.nodes, spares=spares)
    return Situation(
        row.target, row.policy, row.sizes, row.draining, check_scalable(row.target, instance, row.scaled_to_zero), whole
    )


def decision_basis(situation: Situation) -> Observation | PoolsObservation | Undecidable:
    """The observation to decide from: of the whole target, or of its pools where the policy sizes those."""
    if situation.not_scalable is not None:
        return situation.not_scalable
    if situation.unavailable:
        return Observation(situation.nodes, situation.instance.ready, least=situation.instance.least)
    whole = observe_target(situation.instance, situation.statistics, situation.policy)
    if situation.policy.pools is None or not situation.nodes:
        return whole
    if len(situation.served) != 1:
        text = f"pools need exactly one deployment on {name_of(situation.target)}, which has {len(situation.served)}"
        return Undecidable(Reason.REFUSED if situation.served else Reason.METRIC_UNAVAILABLE, text)
    ((deployment, view),) = situation.served.items()
    sizes = current_pool_sizes(situation.sizes, situation.nodes, view)
    if sizes is None:
        text = f"deployment {name_of(deployment)} has no pools yet, because it has no layout"
        return Undecidable(Reason.METRIC_UNAVAILABLE, text)
    return observe_pools(whole, sizes, view, situation.statistics[deployment])
