"""The routes of scaling policies, and of recovery policies with the default rules."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcompute import access
from matrixcompute.instances.recovery_policies import RecoveryPolicies
from matrixcompute.instances.scaling_policies import ScalingPolicies
from matrixcompute.recovery.ladder import recovery_rules
from matrixcompute.recovery.spec import rule_views
from matrixcompute.store.store import ComputeStore


def policy_routes(
    store: ComputeStore, scaling: ScalingPolicies, recovery: RecoveryPolicies, wake_node_health: Callable[[], None]
) -> APIRouter:
    """The routes of both kinds. `wake_node_health` wakes the watcher of nodes after a recovery policy changed."""
    api = ResourceRoutes(store.records)
    _scaling(api.of(access.SCALING_POLICIES), scaling)
    _recovery(api.of(access.RECOVERY_POLICIES), recovery, wake_node_health)
    api.of(access.RECOVERY_RULES).list(
        lambda: rule_views(recovery_rules()),
        description="For each fault level, the recovery actions tried on a member, in order, and how long it drains.",
    )
    return api.router


def _scaling(kind: KindRoutes, policies: ScalingPolicies) -> None:
    kind.list()
    kind.get()
    kind.change("PUT", after=policies.wake, name="ensure_scaling_policy")(policies.ensure)
    kind.change("DELETE", name="delete_scaling_policy")(policies.delete)


def _recovery(kind: KindRoutes, policies: RecoveryPolicies, wake_node_health: Callable[[], None]) -> None:
    kind.list()
    kind.get()
    kind.change("PUT", after=wake_node_health, name="ensure_recovery_policy")(policies.ensure)
    kind.change("DELETE", after=wake_node_health, name="delete_recovery_policy")(policies.delete)
