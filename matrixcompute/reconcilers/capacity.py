"""Instances that are short of members because nodes were lacking: ask MatrixResource whether there is room now.

An instance in degraded shape gets its missing members back; one below its floor is repaired. The question changes
nothing, so that no workflow is opened, refused and listed for every attempt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.model.retries import RETRY_S, RefusalBackoff
from matrixcompute.operations.context import RESTORE
from matrixcompute.operations.starter import WorkflowStarter, below_floor
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.policy import Recovery
from matrixcompute.store.store import ComputeStore, InstanceRow
from matrixcompute.workflows.restoring_steps import largest_available_size, reserve_spares
from matrixresource.contract.allocations import AllocationView


class CapacityReconciler:
    """`restore`, `repair` and `start`, each for one instance without a workflow under way."""

    def __init__(
        self, store: ComputeStore, control_plane: ControlPlane, workflows: WorkflowStarter, clock: Clock
    ) -> None:
        self._store = store
        self._control_plane = control_plane
        self._workflows = workflows
        self._clock = clock
        self._backoff = RefusalBackoff(clock)

    def due(self, name: str) -> bool:
        """Whether it is time to ask for an instance's missing members."""
        return not self._backoff.backing_off(name)

    async def restore(self, name: str) -> int:
        """Restore missing members, as many as there is room for, and then spares. Returns how many workflows were
        opened."""
        self._backoff.record(name)
        allocation = await self._control_plane.find_allocation(name)
        with self._store.reading() as session:
            instance = session.get(InstanceRow, name)
            shape, missing = (
                (None, 0) if instance is None else (instance.last_active, instance.missing_members(allocation))
            )
        if allocation is None or shape is None:
            return 0
        if not missing:
            await reserve_spares(self._control_plane, name, shape)
            return 0
        nodes = await largest_available_size(self._control_plane, name, shape, allocation, allocation.nodes + missing)
        if nodes == allocation.nodes:
            return 0
        members = sorted(each.node for each in allocation.members if each.role == "member")
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state != "Active" or self._store.open_operations(session, name):
                return 0
            parameters = {"nodes": str(nodes), "spares": str(allocation.spares), "members": " ".join(members)}
            self._workflows.open(session, RESTORE, instance, "Updating", "Restoring", parameters)
        return 1

    async def repair(
        self,
        name: str,
        allocation: AllocationView,
        recovery: Recovery,
        tried: Sequence[RungTried],
        stop_on_exhausted: bool,
    ) -> int:
        """Repair an instance below its floor if that can help now. Returns how many workflows were opened."""
        possible = await self._can_recover(name, allocation, recovery)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or not below_floor(instance) or self._store.open_operations(session, name):
                return 0
            if not possible:
                instance.retry_at = math.inf if stop_on_exhausted else self._clock.now() + RETRY_S
                return 0
            self._workflows.open_repair(session, instance, allocation.members, recovery, tried)
        return 1

    async def start(self, name: str, allocation: AllocationView, recovery: Recovery) -> int:
        """Start an instance that lost members while it was off, if enough of them work or replacements are free;
        otherwise an attempt would switch its nodes on and off for nothing. Returns how many workflows were opened."""
        possible = await self._can_recover(name, allocation, recovery)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state != "Stopped" or self._store.open_operations(session, name):
                return 0
            if not possible:
                instance.retry_at = self._clock.now() + RETRY_S
                return 0
            self._workflows.open_change(session, instance)
        return 1

    async def _can_recover(self, name: str, allocation: AllocationView, recovery: Recovery) -> bool:
        """Whether enough members work, or there is a replacement for at least one that does not."""
        with self._store.reading() as session:
            floor = self._store.instance(session, name).shape.floor
        members = [each.node for each in allocation.members if each.role == "member"]
        if len(members) - len({*members} & {*recovery.nodes}) >= floor:
            return True
        for node in recovery.nodes:
            try:
                await self._control_plane.replace(name, node, recovery.reason, validate_only=True)
            except Conflict:
                continue
            return True
        return False
