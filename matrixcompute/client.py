"""ComputeClient: the REST client of MatrixCompute for the Kubernetes operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matrixcommon.api.client import ServiceClient, call, resource_path
from matrixcommon.model.errors import NotFound
from matrixcompute.autoscaling.policy_view import ScalingPolicyView
from matrixcompute.contract import InstanceRequest, InstanceView
from matrixcompute.maintenance.budgets import DisruptionBudgetView
from matrixcompute.recovery.spec import RecoveryPolicyView
from matrixcompute.scenarios.runs import ScenarioRunView


class ComputeClient(ServiceClient):
    """Can also watch `instances`, `operations`, `scaling-policies`, `scenario-runs` and `events`."""

    async def ensure_instance(
        self, name: str, request: InstanceRequest, validate_only: bool = False, leaving: Sequence[str] = ()
    ) -> InstanceView:
        """Create or change an instance. With `validate_only` nothing is changed, and the view's members are the nodes
        that it would get.

        `leaving`: the members to remove if it shrinks.
        """
        params = {"leaving": list(leaving)} if leaving else None
        path = resource_path("instances", name)
        return await self._ask(InstanceView, "PUT", path, request, validate_only=validate_only, params=params)

    async def find_instance(self, name: str) -> InstanceView | None:
        return await self._find(InstanceView, resource_path("instances", name))

    async def ensure_policy(self, name: str, request: dict[str, Any]) -> ScalingPolicyView:
        return await self._ask(ScalingPolicyView, "PUT", resource_path("scaling-policies", name), request)

    async def delete_policy(self, name: str) -> bool:
        """Returns whether the scaling policy is gone."""
        return await self._delete(resource_path("scaling-policies", name))

    async def ensure_recovery_policy(self, name: str, request: dict[str, Any]) -> RecoveryPolicyView:
        return await self._ask(RecoveryPolicyView, "PUT", resource_path("recovery-policies", name), request)

    async def delete_recovery_policy(self, name: str) -> bool:
        """Returns whether the recovery policy is gone."""
        return await self._delete(resource_path("recovery-policies", name))

    async def ensure_budget(self, name: str, request: dict[str, Any]) -> DisruptionBudgetView:
        return await self._ask(DisruptionBudgetView, "PUT", resource_path("disruption-budgets", name), request)

    async def delete_budget(self, name: str) -> bool:
        """Returns whether the disruption budget is gone."""
        return await self._delete(resource_path("disruption-budgets", name))

    async def find_run(self, name: str) -> ScenarioRunView | None:
        return await self._find(ScenarioRunView, resource_path("scenario-runs", name))

    async def ensure_run(self, name: str, request: dict[str, Any]) -> ScenarioRunView:
        return await self._ask(ScenarioRunView, "PUT", resource_path("scenario-runs", name), request)

    async def stop_run(self, name: str) -> ScenarioRunView:
        """Stop a run; its changes are rolled back before it is Completed."""
        return await self._ask(ScenarioRunView, "POST", resource_path("scenario-runs", name, ":stop"))

    async def delete_run(self, name: str) -> bool:
        """Returns whether the run is gone. Raises Conflict while it is in progress."""
        return await self._delete(resource_path("scenario-runs", name))

    async def delete_instance(self, name: str) -> bool:
        """Request deletion. Returns whether the instance is gone already."""
        try:
            await call(self._http, "DELETE", resource_path("instances", name))
        except NotFound:
            return True
        return False
