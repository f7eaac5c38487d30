"""ScalingPolicies: ensure and delete. One policy owns the scale of an instance, which may come after it."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select

from matrixcommon.model.errors import Conflict
from matrixcommon.model.hardware_names import checked_resource_name
from matrixcommon.model.resource_key import name_of
from matrixcommon.persistence.database_session import find
from matrixcompute.autoscaling.policy import ScalingPolicyRequest, ScalingPolicyView
from matrixcompute.instances.service import InstanceService
from matrixcompute.store.store import ComputeStore, InstanceRow, ScalingMemoryRow, ScalingPolicyRow


class ScalingPolicies:
    """The verbs over scaling policies. `wake` has them looked at at once."""

    def __init__(self, store: ComputeStore, instance_service: InstanceService) -> None:
        self._store = store
        self._instance_service = instance_service
        self.wake: Callable[[], None] = lambda: None

    def ensure(self, name: str, body: ScalingPolicyRequest) -> ScalingPolicyView:
        """Have this policy. Raises Conflict where another one owns the target's scale. A change keeps what has been
        observed, so that it counts from the next look."""
        checked_resource_name(name)
        target = body.scale_target_ref.name
        with self._store.transaction() as session:
            owner = self._store.policy_of(session, target)
            if owner is not None and owner.name != name:
                raise Conflict(
                    f"scaling policy {name_of(owner.name)!r} owns the scale of {name_of(target)!r} already",
                    field="scaleTargetRef.name",
                )
            row = session.get(ScalingPolicyRow, name)
            if row is None:
                row = ScalingPolicyRow(name=name, project=body.project, state="Active", generation=1)
                session.add(row)
            elif row.target != target:
                raise Conflict("a policy keeps its target; delete it and make another", field="scaleTargetRef.name")
            row.declare(body)
            row.target = target
            if (instance := session.get(InstanceRow, target)) is not None:
                instance.scaling_policy = name
        return row.view()

    def generations(self) -> dict[str, int]:
        """Of each policy, by name: what differs has been asked for, here or of another replica."""
        with self._store.reading() as session:
            rows = session.execute(select(ScalingPolicyRow.name, ScalingPolicyRow.generation))
            return {row.name: row.generation for row in rows}

    def delete(self, name: str) -> None:
        """Let go of the target: it stays as large as it is, and comes back where it was scaled to zero. What
        drains for it serves on, unless that is leaving already, and the pools of deployments are as their specs have
        them again: the orphan collector sees to both."""
        with self._store.transaction() as session:
            row = find(session, ScalingPolicyRow, name)
            if (instance := session.get(InstanceRow, row.target)) is not None:
                instance.scaling_policy = None
                if row.parked and instance.state != "Deleting":
                    self._instance_service.unsuspend(session, instance)
            if (memory := session.get(ScalingMemoryRow, name)) is not None:
                session.delete(memory)
            session.delete(row)
