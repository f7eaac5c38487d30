"""Release what no instance owns: allocations and slices labelled with an instance that no longer exists, slices of an
instance without nodes, and cache memory on nodes of a deleted instance, even if another has its name now. Withdraw
drains of operations that have ended, drains of scaling policies that are gone or drain other nodes by now, and pool
sizes of a policy that is gone.

Something is released only if it had no owner in two passes in a row, so that what is just being created is left alone.
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
from matrixresource.contract.allocations import CACHING_ON_LABEL, belongs_to_earlier_instance


class OrphanCollector:
    """`reconcile` once per period."""

    def __init__(
        self, store: ComputeStore, control_plane: ControlPlane, clock: Clock, inference: Inference | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._control_plane = control_plane
        self._inference = inference
        self._suspects: set[tuple[str, str, str]] = set()
        self._ownerless_drains: dict[str, OwnedDrain] = {}

    async def reconcile(self) -> str:
        """Release what had no owner in the last pass either. Returns a summary."""
        withdrawn, unscaled = await self._withdraw_drains(), await self._withdraw_scales()
        slices, allocations = await self._control_plane.slice_owners(), await self._control_plane.allocations()
        owned = [("slice", key, owner) for key, owner in slices.items()]
        owned += [
            ("allocation", each.key, each.labels[OWNER_LABEL]) for each in allocations if OWNER_LABEL in each.labels
        ]
        with self._store.reading() as session:
            instances = {row.name: timestamp(row.created_at) for row in self._store.instances(session)}
            busy = {row.target for row in self._store.open_operations(session)}
        found = {each for each in owned if each[2] not in instances}
        # A slice whose admission arrived after its instance had released everything keeps its floors booked.
        with_nodes = busy | {each.key for each in allocations}
        found |= {each for each in owned if each[0] == "slice" and each[2] not in with_nodes}
        # CloudMatrix-Infer releases its cache memory itself, unless it is down. Allocations without our label are not
        # ours.
        since = instances | {each.key: each.created_at for each in allocations}
        for each in allocations:
            owner = each.labels.get(CACHING_ON_LABEL)
            if owner is None:
                continue
            if owner not in busy | since.keys() or belongs_to_earlier_instance(each, since.get(owner, "")):
                found.add(("cache memory", each.key, owner))
        released = 0
        for kind, name, owner in sorted(found & self._suspects):
            if self._owner_appeared(owner, instances, busy):
                continue
            released += 1
            await (self._control_plane.withdraw(name) if kind == "slice" else self._control_plane.release(name))
            with self._store.transaction() as session:
                text = f"released {kind} {name_of(name)}, which was left without an owner"
                self._store.record_event(session, owner, "OrphanReleased", text, self._clock.now(), "Warning")
        self._suspects = found
        return f"{released} orphans released, {withdrawn} drains withdrawn, {unscaled} sizes of pools withdrawn"

    def _owner_appeared(self, owner: str, instances: Mapping[str, str], busy: Collection[str]) -> bool:
        """Whether the owner was created, or began a workflow, since the pass began, and so owns what has its name."""
        with self._store.reading() as session:
            row = session.get(InstanceRow, owner)
            recreated = row is not None and timestamp(row.created_at) != instances.get(owner)
            return recreated or (owner not in busy and bool(self._store.open_operations(session, owner)))

    async def _withdraw_drains(self) -> int:
        """Withdraw drains without an owner. If CloudMatrix-Infer is down, they stay until the next pass."""
        if self._inference is None:
            return 0
        try:
            drains = await self._inference.drains()
            with self._store.reading() as session:
                draining_nodes = {
                    owner_of(row.name): {*(row.draining or [])} for row in self._store.scaling_policies(session)
                }
                # The operator ends drains of its resources itself; MatrixCompute does not know their specs.
                known = {key: each for key, each in drains.items() if not is_resource(each.by)}
                ownerless = {
                    key: each for key, each in known.items() if not self._has_owner(session, each, draining_nodes)
                }
            # Nodes drained for a policy may just have left, before CloudMatrix-Infer has noticed.
            withdrawn = [
                key
                for key, each in ownerless.items()
                if not is_policy(each.by) or self._ownerless_drains.get(key) == each
            ]
            self._ownerless_drains = ownerless
            for key in withdrawn:
                await self._inference.undrain(key)
        except (Unavailable, NotFound):
            return 0
        return len(withdrawn)

    def _has_owner(self, session: Session, drain: OwnedDrain, policies: Mapping[str, Collection[str]]) -> bool:
        """Whether a drain has an owner: an open operation (one that succeeded leaves none), or a policy. While the
        target is being resized its policy no longer lists the drain, but the drained nodes are leaving."""
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
        """Withdraw pool sizes set by policies that are gone, so that deployments return to their own specs."""
        if self._inference is None:
            return 0
        try:
            scales = await self._inference.scales()
            with self._store.reading() as session:
                owners = {owner_of(row.name) for row in self._store.scaling_policies(session)}
            ownerless = [key for key, by in scales.items() if is_policy(by) and by not in owners]
            for key in ownerless:
                await self._inference.unscale(key)
        except (Unavailable, NotFound):
            return 0
        return len(ownerless)
