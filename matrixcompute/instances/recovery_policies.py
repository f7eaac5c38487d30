"""RecoveryPolicies: ensure and delete. A policy applies to one instance, or to all others of a project."""

from __future__ import annotations

from matrixcommon.model.errors import Conflict
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.resource_key import name_of
from matrixcommon.persistence.database_session import find
from matrixcompute.recovery.spec import RecoveryPolicyRequest, RecoveryPolicyView
from matrixcompute.store.recovery_policies import RecoveryPolicyRow, policy_for, target_of
from matrixcompute.store.store import ComputeStore


class RecoveryPolicies:
    """The verbs over recovery policies."""

    def __init__(self, store: ComputeStore) -> None:
        self._store = store

    def ensure(self, name: str, body: RecoveryPolicyRequest) -> RecoveryPolicyView:
        """Create or change a policy. Repairs under way follow it from their next check. Raises Conflict if another
        policy applies to the same instance, or to the project's others."""
        validate_resource_name(name)
        if body.instance is not None:
            validate_resource_name(body.instance, field="instance")
        target = target_of(body)
        with self._store.transaction() as session:
            other = policy_for(session, target)
            if other is not None and other.name != name:
                scope = f"instance {name_of(body.instance)!r}" if body.instance else "the project's instances"
                raise Conflict(f"recovery policy {name_of(other.name)!r} already applies to {scope}", field="instance")
            row = session.get(RecoveryPolicyRow, name)
            if row is None:
                row = RecoveryPolicyRow(name=name, project=body.project, state="Active", generation=1)
                session.add(row)
            row.declare(body)
            row.target = target
        return row.view()

    def delete(self, name: str) -> None:
        """Delete a policy. The project's policy applies instead, or else the rules as they are in the table."""
        with self._store.transaction() as session:
            session.delete(find(session, RecoveryPolicyRow, name))
