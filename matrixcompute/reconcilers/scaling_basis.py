"""What a scaling policy decides from: the target and its deployments, as one tick found them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from matrixcommon.model.resource_key import name_of
from matrixcompute.autoscaling.decision import Observation
from matrixcompute.autoscaling.policy import PoolSizes, Reason, ScalingPolicyRequest
from matrixcompute.autoscaling.pools import PoolsObservation
from matrixcompute.reconcilers.scaling_signals import Statistics, observed, pools_observed, sizes_now, spares_of
from matrixcompute.reconcilers.scaling_targets import Undecidable, unable
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
    unable: Undecidable | None
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


def situation_of(row: ScalingPolicyRow, instance: InstanceRow | None) -> Situation:
    """The stored part of a situation. A target that is scaled to zero counts as one without nodes."""
    whole = Observation(0, 0)
    if instance is not None:
        shape = instance.shape
        nodes, ready = (0, 0) if row.scaled_to_zero else (shape.nodes, instance.ready_nodes)
        spares = spares_of(instance.members or [])
        whole = Observation(nodes, ready, least=shape.min_nodes or 1, returns_to=shape.nodes, spares=spares)
    return Situation(
        row.target, row.policy, row.sizes, row.draining, unable(row.target, instance, row.scaled_to_zero), whole
    )


def decision_basis(seen: Situation) -> Observation | PoolsObservation | Undecidable:
    """The observation to decide from: of the whole target, or of its pools where the policy sizes those."""
    if seen.unable is not None:
        return seen.unable
    if seen.unavailable:
        return Observation(seen.nodes, seen.instance.ready, least=seen.instance.least)
    whole = observed(seen.instance, seen.statistics, seen.policy)
    if seen.policy.pools is None or not seen.nodes:
        return whole
    if len(seen.served) != 1:
        text = f"pools need exactly one deployment on {name_of(seen.target)}, which has {len(seen.served)}"
        return Undecidable(Reason.REFUSED if seen.served else Reason.METRIC_UNAVAILABLE, text)
    ((deployment, view),) = seen.served.items()
    sizes = sizes_now(seen.sizes, seen.nodes, view)
    if sizes is None:
        text = f"deployment {name_of(deployment)} has no pools yet, because it has no layout"
        return Undecidable(Reason.METRIC_UNAVAILABLE, text)
    return pools_observed(whole, sizes, view, seen.statistics[deployment])
