"""ScalingPolicies: ensure and delete. An instance has at most one policy, which may be created before it."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select

from matrixcommon.model.errors import Conflict
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.resource_key import name_of
from matrixcommon.persistence.database_session import find
from matrixcompute.autoscaling.policy import ScalingPolicyRequest
from matrixcompute.autoscaling.policy_view import ScalingPolicyView
from matrixcompute.instances.service import InstanceService
from matrixcompute.store.store import ComputeStore, InstanceRow, ScalingMemoryRow, ScalingPolicyRow


class ScalingPolicies:
    """The verbs over scaling policies. `wake` runs the reconciler at once."""

    def __init__(self, store: ComputeStore, instance_service: InstanceService) -> None:
        self._store = store
        self._instance_service = instance_service
        self.wake: Callable[[], None] = lambda: None

    def ensure(self, name: str, body: ScalingPolicyRequest) -> ScalingPolicyView:
        """Create or change a policy. Raises Conflict if another one scales the target. A change keeps the observations
        so far, and applies from the next tick."""
        validate_resource_name(name)
        target = body.scale_target_ref.name
        with self._store.transaction() as session:
            owner = self._store.policy_of(session, target)
            if owner is not None and owner.name != name:
                raise Conflict(
                    f"scaling policy {name_of(owner.name)!r} already scales {name_of(target)!r}",
                    field="scaleTargetRef.name",
                )
            row = session.get(ScalingPolicyRow, name)
            if row is None:
                row = ScalingPolicyRow(name=name, project=body.project, state="Active", generation=1)
                session.add(row)
            elif row.target != target:
                raise Conflict(
                    "the target of a policy cannot change; delete it and create another", field="scaleTargetRef.name"
                )
            row.declare(body)
            row.target = target
            if (instance := session.get(InstanceRow, target)) is not None:
                instance.scaling_policy = name
        return row.view()

    def generations(self) -> dict[str, int]:
        """The generation of each policy, by name. A difference shows a change, made here or through another replica."""
        with self._store.reading() as session:
            rows = session.execute(select(ScalingPolicyRow.name, ScalingPolicyRow.generation))
            return {row.name: row.generation for row in rows}

    def delete(self, name: str) -> None:
        """Delete a policy. The target keeps its size, or comes back if it was scaled to zero. Nodes that drain for the
        policy keep serving unless they are leaving already, and deployments return to the pools of their specs; the
        orphan collector does both."""
        with self._store.transaction() as session:
            row = find(session, ScalingPolicyRow, name)
            if (instance := session.get(InstanceRow, row.target)) is not None:
                instance.scaling_policy = None
                if row.scaled_to_zero and instance.state != "Deleting":
                    self._instance_service.unsuspend(session, instance)
            if (memory := session.get(ScalingMemoryRow, name)) is not None:
                session.delete(memory)
            session.delete(row)
