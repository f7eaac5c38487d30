"""DisruptionBudgets and RecoveryPolicies: each resource declares one object of the same name in MatrixCompute.

The resource owns that object: changes made to it over REST are reverted by the next reconcile, and it is deleted with
the resource. Budgets are cluster-scoped, like nodes, and for administrators; recovery policies are namespaced, like
instances.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import pluralized
from matrixcompute.client import ComputeClient
from matrixcompute.maintenance.budgets import DisruptionBudgetView
from matrixcompute.recovery.spec import RecoveryPolicyView
from matrixcontainer.client.client import DISRUPTION_BUDGET, RECOVERY_POLICY, KubeClient
from matrixcontainer.operator.crds import RECOVERY_STATUS
from matrixcontainer.operator.decision import key_in, namespace_of
from matrixcontainer.operator.reconciler import DELETION_POLL_WALL_S, Reconciler


class DeclaredReconciler(Reconciler):
    """Reconciles a resource with the object that it declares; each kind adds how to ensure and delete that object."""

    def __init__(self, kube: KubeClient, compute: ComputeClient, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self.compute = compute

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        if body["metadata"].get("deletionTimestamp"):
            return None if await self.delete(key) else DELETION_POLL_WALL_S
        labels = body["metadata"].get("labels") or {}
        state, message = await self.ensure(key, body, {**body["spec"], "labels": labels})
        await self.report_ready(body, state, True, "Declared", message)
        return None

    @abstractmethod
    async def ensure(self, key: str, body: dict[str, Any], request: dict[str, Any]) -> tuple[str, str]:
        """Create or update the object; return its state and a sentence for the Ready condition."""

    @abstractmethod
    async def delete(self, key: str) -> bool:
        """Delete the object; True once it is gone."""

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, temporary: bool) -> None:
        """Also report a conflict with another owner, which may still resolve itself."""
        await super().report_refusal(key, body, refused, temporary and refused.reason != "Conflict")


class DisruptionBudgetReconciler(DeclaredReconciler):
    """Declares disruption budgets."""

    kind = DISRUPTION_BUDGET

    async def ensure(self, key: str, body: dict[str, Any], request: dict[str, Any]) -> tuple[str, str]:
        budget = await self.compute.ensure_budget(key, request)
        return budget.state, describe_budget(budget)

    async def delete(self, key: str) -> bool:
        return await self.compute.delete_budget(key)


class RecoveryPolicyReconciler(DeclaredReconciler):
    """Declares recovery policies."""

    kind = RECOVERY_POLICY

    async def ensure(self, key: str, body: dict[str, Any], request: dict[str, Any]) -> tuple[str, str]:
        if (instance := request.get("instance")) is not None:
            key_in(body, instance, "spec.instance")
        policy = await self.compute.ensure_recovery_policy(key, {**request, "project": namespace_of(body)})
        fields = policy.wire()
        await self.write_status(body, {name: fields.get(name) for name in RECOVERY_STATUS})
        return policy.state, describe_policy(policy)

    async def delete(self, key: str) -> bool:
        return await self.compute.delete_recovery_policy(key)


def describe_budget(budget: DisruptionBudgetView) -> str:
    """Describe what a budget limits, and when."""
    where = f"of {budget.supernode}" if budget.supernode else "of each supernode"
    when = f"for {budget.duration_s:g} s from {budget.schedule} on" if budget.duration_s else "at all times"
    reasons = " or ".join(budget.reasons)
    nodes = f"{budget.nodes} of the nodes" if budget.nodes.endswith("%") else pluralized(budget.nodes, "node")
    inactive = f"; {budget.message}" if budget.message else ""
    return f"at most {nodes} {where} may be out of service for {reasons}, {when}{inactive}"


def describe_policy(policy: RecoveryPolicyView) -> str:
    """Describe which instances a policy applies to, and what it allows."""
    scope = policy.instance or "every instance of the namespace without a policy of its own"
    rungs = ", ".join(policy.rungs) or "no recovery steps"
    end = "then start over" if policy.on_exhausted == "Retry" else "then wait for a manual retry"
    return f"for {scope}: {rungs}; {end}"
