"""Frees what no instance owns: allocations and slices that bear an instance's name and outlived it, slices of an
instance that has no nodes, memory that caches had on nodes of one that is gone, though another may have its name now.
Withdraws drains of operations that have ended and of scaling policies that are gone or want others to leave, and sizes
of pools by a policy that is gone.

A thing is let go only when it was ownerless on two looks in a row, so that one that is just being made is left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import NotFound, Unavailable
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import name_of
from matrixcommon.workflows.rows import OPEN
from matrixcompute.autoscaling.policy import is_policy, is_resource, owner_of
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.clients.inference import Inference, OwnedDrain
from matrixcompute.model.composition import OWNER_LABEL
from matrixcompute.store.store import ComputeStore, InstanceRow, OperationRow
from matrixresource.contract.allocations import CACHING_ON_LABEL, of_former


class OrphanCollector:
    """`look` once per period."""

    def __init__(
        self, store: ComputeStore, neighbours: ControlPlane, clock: Clock, inference: Inference | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._neighbours = neighbours
        self._inference = inference
        self._suspects: set[tuple[str, str, str]] = set()
        self._unwanted: dict[str, OwnedDrain] = {}

    async def reconcile(self) -> str:
        """Release what was ownerless last time too. Returns a sentence about what it did."""
        withdrawn, unscaled = await self._withdraw_drains(), await self._withdraw_scales()
        slices, allocations = await self._neighbours.slice_owners(), await self._neighbours.allocations()
        marked = [("slice", key, owner) for key, owner in slices.items()]
        marked += [
            ("allocation", each.key, each.labels[OWNER_LABEL]) for each in allocations if OWNER_LABEL in each.labels
        ]
        with self._store.reading() as session:
            instances = {row.name: timestamp(row.created_at) for row in self._store.instances(session)}
            busy = {row.target for row in self._store.open_operations(session)}
        found = {each for each in marked if each[2] not in instances}
        # One of which the admission arrived after its instance had given everything up: its floors stay booked.
        having = busy | {each.key for each in allocations}
        found |= {each for each in marked if each[0] == "slice" and each[2] not in having}
        # CloudMatrix-Infer does so itself, unless it is away. Nodes that somebody else put together are none of ours.
        since = instances | {each.key: each.created_at for each in allocations}
        for each in allocations:
            owner = each.labels.get(CACHING_ON_LABEL)
            if owner is None:
                continue
            if owner not in busy | since.keys() or of_former(each, since.get(owner, "")):
                found.add(("cache memory", each.key, owner))
        released = 0
        for kind, name, owner in sorted(found & self._suspects):
            if self._wanted_since(owner, instances, busy):
                continue
            released += 1
            await (self._neighbours.withdraw(name) if kind == "slice" else self._neighbours.release(name))
            with self._store.transaction() as session:
                text = f"{kind} {name_of(name)} was left behind and is given back"
                self._store.record_event(session, owner, "OrphanReleased", text, self._clock.now(), "Warning")
        self._suspects = found
        return f"{released} orphans released, {withdrawn} drains withdrawn, {unscaled} sizes of pools withdrawn"

    def _wanted_since(self, owner: str, instances: Mapping[str, str], busy: Collection[str]) -> bool:
        """Whether an owner is made, or has a workflow, that was not there at the look: what bears its name is its own
        by now."""
        with self._store.reading() as session:
            row = session.get(InstanceRow, owner)
            made = row is not None and timestamp(row.created_at) != instances.get(owner)
            return made or (owner not in busy and bool(self._store.open_operations(session, owner)))

    async def _withdraw_drains(self) -> int:
        """Those that nobody wants any more. A process that is away keeps them until the next look."""
        if self._inference is None:
            return 0
        try:
            drains = await self._inference.drains()
            with self._store.reading() as session:
                wanted = {owner_of(row.name): {*(row.draining or [])} for row in self._store.scaling_policies(session)}
                # The operator ends those of its resources by itself: MatrixCompute does not know what these ask for.
                known = {key: each for key, each in drains.items() if not is_resource(each.by)}
                left = {key: each for key, each in known.items() if not self._wanted(session, each, wanted)}
            # Who drained for a policy may just have left, and CloudMatrix-Infer has yet to see it.
            over = [key for key, each in left.items() if not is_policy(each.by) or self._unwanted.get(key) == each]
            self._unwanted = left
            for key in over:
                await self._inference.undrain(key)
        except (Unavailable, NotFound):
            return 0
        return len(over)

    def _wanted(self, session: Session, drain: OwnedDrain, policies: Mapping[str, Collection[str]]) -> bool:
        """Whether somebody wants a drain: an operation that is open (one that has ended well has none left), or a
        policy. Where the target is being resized, its policy has done with it, and who drained is leaving."""
        if not is_policy(drain.by):
            row = session.get(OperationRow, drain.by)
            return row is not None and row.state in OPEN
        if drain.nodes == policies.get(drain.by):
            return True
        instance = session.get(InstanceRow, drain.instance)
        if instance is None:
            return False
        refused = instance.refused_generation == instance.generation
        return (
            drain.nodes <= {*(instance.leaving or [])}
            and instance.generation != instance.observed_generation
            and not refused
        )

    async def _withdraw_scales(self) -> int:
        """How large pools are to be by policies that are no more: they are as their deployments say again."""
        if self._inference is None:
            return 0
        try:
            scales = await self._inference.scales()
            with self._store.reading() as session:
                owners = {owner_of(row.name) for row in self._store.scaling_policies(session)}
            left = [key for key, by in scales.items() if is_policy(by) and by not in owners]
            for key in left:
                await self._inference.unscale(key)
        except (Unavailable, NotFound):
            return 0
        return len(left)
