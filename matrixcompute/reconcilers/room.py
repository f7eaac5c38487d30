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
from matrixcompute.model.retries import RETRY_S, Refusals
from matrixcompute.operations.context import RESTORE
from matrixcompute.operations.starter import WorkflowStarter, below_floor
from matrixcompute.recovery.ladder import RungTried
from matrixcompute.recovery.policy import Recovery
from matrixcompute.store.store import ComputeStore, InstanceRow
from matrixcompute.workflows.restoring_steps import room_for, take_spares
from matrixresource.contract.allocations import AllocationView


class RoomReconciler:
    """`restore`, `repair` and `start`, each for one instance without a workflow under way."""

    def __init__(self, store: ComputeStore, neighbours: ControlPlane, workflows: WorkflowStarter, clock: Clock) -> None:
        self._store = store
        self._neighbours = neighbours
        self._workflows = workflows
        self._clock = clock
        self._refusals = Refusals(clock)

    def due(self, name: str) -> bool:
        """Whether it is time to ask for an instance's missing members."""
        return not self._refusals.rests(name)

    async def restore(self, name: str) -> int:
        """Restore missing members, as many as there is room for, and then spares. Returns how many workflows were
        opened."""
        self._refusals.note(name)
        allocation = await self._neighbours.find_allocation(name)
        with self._store.reading() as session:
            instance = session.get(InstanceRow, name)
            shape, lacks = (None, 0) if instance is None else (instance.last_active, instance.lacks(allocation))
        if allocation is None or shape is None:
            return 0
        if not lacks:
            await take_spares(self._neighbours, name, shape)
            return 0
        nodes = await room_for(self._neighbours, name, shape, allocation, allocation.nodes + lacks)
        if nodes == allocation.nodes:
            return 0
        members = sorted(each.node for each in allocation.members if each.role == "member")
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state != "Active" or self._store.open_operations(session, name):
                return 0
            about = {"nodes": str(nodes), "spares": str(allocation.spares), "members": " ".join(members)}
            self._workflows.open(session, RESTORE, instance, "Updating", "Restoring", about)
        return 1

    async def repair(
        self, name: str, allocation: AllocationView, recovery: Recovery, tried: Sequence[RungTried], stops: bool
    ) -> int:
        """Repair an instance below its floor if that can help now. Returns how many workflows were opened."""
        helps = await self._helps(name, allocation, recovery)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or not below_floor(instance) or self._store.open_operations(session, name):
                return 0
            if not helps:
                instance.retry_at = math.inf if stops else self._clock.now() + RETRY_S
                return 0
            self._workflows.open_repair(session, instance, allocation.members, recovery, tried)
        return 1

    async def start(self, name: str, allocation: AllocationView, recovery: Recovery) -> int:
        """Start an instance that lost members while it was off, if enough of them work or replacements are free;
        otherwise an attempt would switch its nodes on and off for nothing. Returns how many workflows were opened."""
        helps = await self._helps(name, allocation, recovery)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state != "Stopped" or self._store.open_operations(session, name):
                return 0
            if not helps:
                instance.retry_at = self._clock.now() + RETRY_S
                return 0
            self._workflows.open_change(session, instance)
        return 1

    async def _helps(self, name: str, allocation: AllocationView, recovery: Recovery) -> bool:
        """Whether enough members work, or there is a replacement for at least one that does not."""
        with self._store.reading() as session:
            floor = self._store.instance(session, name).shape.floor
        members = [each.node for each in allocation.members if each.role == "member"]
        if len(members) - len({*members} & {*recovery.nodes}) >= floor:
            return True
        for node in recovery.nodes:
            try:
                await self._neighbours.replace(name, node, recovery.reason, validate_only=True)
            except Conflict:
                continue
            return True
        return False
