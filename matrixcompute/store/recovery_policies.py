"""Recovery policies, and which of them applies to an instance."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import String, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.resource_key import DEFAULT_PROJECT, key_of, project_of
from matrixcommon.persistence.table_cache import all_rows
from matrixcompute.recovery.ladder import recovery_rules
from matrixcompute.recovery.policy import RecoveryPolicy
from matrixcompute.recovery.spec import RecoveryPolicyRequest, RecoveryPolicySpec, RecoveryPolicyView
from matrixcompute.store.declared import DeclaredRow
from matrixcompute.store.store import Base


class RecoveryPolicyRow(DeclaredRow, Base):
    """One recovery policy. `target`: an instance's key, or `*` in a project; at most one policy per target."""

    __tablename__ = "recovery_policies"
    kind = "recovery policy"

    target: Mapped[str] = mapped_column(String(127), unique=True)

    @property
    def policy(self) -> RecoveryPolicyRequest:
        return RecoveryPolicyRequest.from_stored(self.spec)

    def view(self) -> RecoveryPolicyView:
        policy = self.policy.shown_to(self.project or DEFAULT_PROJECT)
        spec_fields = {field: getattr(policy, field) for field in RecoveryPolicySpec.model_fields if field != "project"}
        rules = recovery_rules()
        ladders = {level: [each for each in rules.ladder(level) if each in policy.rungs] for level in rules.ladders}
        return self.view_as(RecoveryPolicyView, **spec_fields, ladders=ladders)


def target_of(policy: RecoveryPolicySpec) -> str:
    """The key that a policy applies to: an instance, or `*` in a project."""
    return policy.instance or key_of(policy.project, "*")


def policy_for(session: Session, target: str) -> RecoveryPolicyRow | None:
    return session.scalars(select(RecoveryPolicyRow).where(RecoveryPolicyRow.target == target)).first()


def policies_by_target(session: Session) -> dict[str, RecoveryPolicySpec]:
    return {row.target: row.policy for row in all_rows(session, RecoveryPolicyRow)}


def policy_of(instance: str, policies: Mapping[str, RecoveryPolicySpec], default: RecoveryPolicy) -> RecoveryPolicy:
    """The policy that applies to an instance: its own, else its project's; unset fields come from `default`."""
    found = policies.get(instance) or policies.get(key_of(project_of(instance), "*"))
    return default if found is None else default.overridden_by(found.drain_seconds, found.rungs, found.on_exhausted)
