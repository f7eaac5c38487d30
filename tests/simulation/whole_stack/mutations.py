"""Faults put into the product, each of which lives of the whole stack have to find: a simulation that cannot fail shows
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences
from matrixcommon.persistence.transaction import GroupTransaction
from matrixcompute.autoscaling.policy import ScalingPolicyRequest
from matrixcompute.autoscaling.policy_view import ScalingPolicyView
from matrixcompute.instances.scaling_policies import ScalingPolicies
from matrixcompute.store.store import InstanceRow
from matrixresource.client import ResourceClient


@contextmanager
def commits_are_lost() -> Iterator[None]:
    """A database acknowledges every 20th commit and forgets it."""
    commit, number = Database._commit, count(1)

    def losing(records: Database, group: GroupTransaction) -> None:
        if group.newest == (group.before or 0) or next(number) % 20:  # what has a number is what clients are told of
            commit(records, group)
        else:
            group.session.rollback()
            group.committing = group.committed = True

    with patch.object(Database, "_commit", losing):
        yield


@contextmanager
def nothing_is_released() -> Iterator[None]:
    """Who deletes an instance forgets its nodes."""

    async def release(self: ResourceClient, name: str) -> bool:
        return True

    with patch.object(ResourceClient, "release", release):
        yield


@contextmanager
def old_leaders_write() -> Iterator[None]:
    """A replica that was paused writes on, whoever leads meanwhile."""
    nothing: Callable[..., Any] = lambda *_: None  # noqa: E731
    with patch.object(Fences, "record_leader", nothing), patch.object(Fences, "_compare", nothing):
        yield


@contextmanager
def policies_forget_their_targets() -> Iterator[None]:
    """Of an instance that is scaled nobody knows by whom."""
    ensure = ScalingPolicies.ensure

    def forgetting(self: ScalingPolicies, name: str, body: ScalingPolicyRequest) -> ScalingPolicyView:
        view = ensure(self, name, body)
        with self._store.transaction() as session:
            if (instance := session.get(InstanceRow, body.scale_target_ref.name)) is not None:
                instance.scaling_policy = None
        return view

    with patch.object(ScalingPolicies, "ensure", forgetting):
        yield


MUTATIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    each.__name__: each
    for each in (commits_are_lost, nothing_is_released, old_leaders_write, policies_forget_their_targets)
}
