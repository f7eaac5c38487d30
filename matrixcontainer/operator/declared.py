"""DisruptionBudgets and RecoveryPolicies: what is declared to MatrixCompute, one of it for each resource, by its name.

The resource owns what it declares: what is written to that over REST is undone at the next look, and it is gone with
the resource. Budgets are cluster-scoped, as nodes are, and administrators'; a recovery policy is its namespace's, as
instances are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import counted
from matrixcompute.client import ComputeClient
from matrixcompute.maintenance.budgets import DisruptionBudgetView
from matrixcompute.recovery.spec import RecoveryPolicyView
from matrixcontainer.client.client import DISRUPTION_BUDGET, RECOVERY_POLICY, KubeClient
from matrixcontainer.operator.crds import RECOVERY_STATUS
from matrixcontainer.operator.decision import key_in, namespace_of
from matrixcontainer.operator.reconciler import GONE_WALL_S, Reconciler


class DeclaredReconciler(Reconciler):
    """What each kind adds: how it is ensured and deleted, and what is shown of it."""

    def __init__(self, kube: KubeClient, compute: ComputeClient, wall: Callable[[], float]) -> None:
        super().__init__(kube, wall)
        self.compute = compute

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        if body["metadata"].get("deletionTimestamp"):
            return None if await self.delete(key) else GONE_WALL_S
        labels = body["metadata"].get("labels") or {}
        state, message = await self.ensure(key, body, {**body["spec"], "labels": labels})
        await self.report_ready(body, state, True, "Declared", message)
        return None

    @abstractmethod
    async def ensure(self, key: str, body: dict[str, Any], request: dict[str, Any]) -> tuple[str, str]:
        """Its state in MatrixCompute, and what it says there."""

    @abstractmethod
    async def delete(self, key: str) -> bool:
        """True once there is none."""

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, passes: bool) -> None:
        """That another one has what it is about is reported, though that one may go."""
        await super().report_refusal(key, body, refused, passes and refused.reason != "Conflict")


class DisruptionBudgetReconciler(DeclaredReconciler):
    """A resource's budget."""

    kind = DISRUPTION_BUDGET

    async def ensure(self, key: str, body: dict[str, Any], request: dict[str, Any]) -> tuple[str, str]:
        budget = await self.compute.ensure_budget(key, request)
        return budget.state, limited(budget)

    async def delete(self, key: str) -> bool:
        return await self.compute.delete_budget(key)


class RecoveryPolicyReconciler(DeclaredReconciler):
    """A resource's recovery policy."""

    kind = RECOVERY_POLICY

    async def ensure(self, key: str, body: dict[str, Any], request: dict[str, Any]) -> tuple[str, str]:
        if (instance := request.get("instance")) is not None:
            key_in(body, instance, "spec.instance")
        policy = await self.compute.ensure_recovery_policy(key, {**request, "project": namespace_of(body)})
        shown = policy.wire()
        await self.write_status(body, {name: shown.get(name) for name in RECOVERY_STATUS})
        return policy.state, followed(policy)

    async def delete(self, key: str) -> bool:
        return await self.compute.delete_recovery_policy(key)


def limited(budget: DisruptionBudgetView) -> str:
    """What a budget limits, and when."""
    where = f"of {budget.supernode}" if budget.supernode else "of each supernode"
    when = f"for {budget.duration_s:g} s from {budget.schedule} on" if budget.duration_s else "at all times"
    return f"at most {counted(budget.nodes, 'node')} {where} may be out for {' or '.join(budget.reasons)}, {when}"


def followed(policy: RecoveryPolicyView) -> str:
    """Whom a policy is for, and what it allows."""
    whom = policy.instance or "every instance of the namespace that has none of its own"
    rungs = ", ".join(policy.rungs) or "nothing"
    end = "then it is tried again" if policy.on_exhausted == "Retry" else "then it waits for a retry"
    return f"for {whom}: {rungs}; {end}"
