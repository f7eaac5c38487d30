"""InstanceService: the verbs over instances: ensure, change, renew, retry, restart, relocate, delete.

A verb writes the spec and opens the workflow in one transaction, so that a crash leaves both or neither. Failures and
other changes that were not requested are handled by `reconcilers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.quantities import parse_timestamp, pluralized
from matrixcommon.model.resource_key import name_of, resolve
from matrixcommon.persistence.database_session import check_etag
from matrixcommon.workflows.runner import WorkflowRunner
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.contract import InstanceRequest, InstanceView
from matrixcompute.model.composition import PLACEMENT_FIELDS, compose, limit_to_allocated
from matrixcompute.model.retries import due_at
from matrixcompute.model.states import SETTLED
from matrixcompute.operations.context import RELOCATE, RESTART
from matrixcompute.operations.starter import WorkflowStarter, below_floor
from matrixcompute.recovery.loss import active_or_none
from matrixcompute.store.store import ComputeStore, InstanceRow
from matrixcompute.workflows.draining import shrink_request
from matrixresource.contract.allocations import AllocationView

INSTANCE_NAME_LENGTH_MAX = 57
"""So that `<instance>-ub107`, its slice in supernode sn107, is still a legal name."""


class InstanceService:
    """The verbs over instances."""

    def __init__(
        self,
        store: ComputeStore,
        control_plane: ControlPlane,
        runner: WorkflowRunner,
        clock: Clock,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called after a workflow was opened, so that the runner begins it at once."""
        self._store = store
        self._control_plane = control_plane
        self._clock = clock
        self._wake = wake
        self._runner = runner
        self._workflows = WorkflowStarter(store, runner, clock)

    # -- verbs ---------------------------------------------------------------------------------------------------

    async def ensure(
        self,
        name: str,
        request: InstanceRequest,
        *,
        leaving: Sequence[str] = (),
        if_match: str | None = None,
        validate_only: bool = False,
    ) -> InstanceView:
        """Create an instance or change its shape. With `validate_only`, MatrixResource is asked whether it would fit.

        If it shrinks, `leaving` names the members to remove, as whoever drained them knows. Raises Conflict if they are
        not members, or not as many as have to go.
        """
        validate_resource_name(name)
        if len(name_of(name)) > INSTANCE_NAME_LENGTH_MAX:
            limit = f"it may have {INSTANCE_NAME_LENGTH_MAX} letters at most"
            raise InvalidField(
                f"{name_of(name)!r} is too long: its slices are named after it, so {limit}", field="name"
            )
        for field, spec in (("affinity", request.affinity), ("antiAffinity", request.anti_affinity)):
            if spec is not None and name in [resolve(each, request.project) for each in spec.instances]:
                raise InvalidField(f"{field} of {name} names {name} itself", field=f"{field}.instances")
        planned: AllocationView | None = None
        if validate_only:
            planned = await self._plan_allocation(name, request, leaving)
        with self._store.transaction(dry=validate_only) as session:
            instance = session.get(InstanceRow, name)
            check_etag(instance, if_match)
            if instance is None:
                instance = self._create(session, name, request)
            else:
                self._update(session, instance, request, list(leaving))
            view = instance.view()
        return self._response(instance, view, planned)

    async def change(
        self,
        name: str,
        update: Mapping[str, Any],
        *,
        leaving: Sequence[str] = (),
        if_match: str | None = None,
        validate_only: bool = False,
    ) -> InstanceView:
        """Change some fields of the shape as it is at the time of writing, so that changes made through other replicas
        are kept."""
        planned: AllocationView | None = None
        if validate_only:
            with self._store.reading() as session:
                shape = self._store.instance(session, name).shape
            planned = await self._plan_allocation(name, shape.model_copy(update=update), leaving)
        with self._store.transaction(dry=validate_only) as session:
            instance = self._store.instance(session, name)
            check_etag(instance, if_match)
            self._update(session, instance, instance.shape.model_copy(update=update), list(leaving))
            view = instance.view()
        return self._response(instance, view, planned)

    def _response(self, instance: InstanceRow, view: InstanceView, planned: AllocationView | None) -> InstanceView:
        if planned is not None:
            return view.model_copy(
                update={"members": planned.members, "npus": int(planned.npus), "preempts": planned.preempts}
            )
        self._wake()
        return instance.view()

    async def _plan_allocation(self, name: str, request: InstanceRequest, leaving: Sequence[str]) -> AllocationView:
        """The allocation it would have. The present allocation stays as far as possible."""
        allocation = active_or_none(await self._control_plane.find_allocation(name))
        with self._store.reading() as session:
            row = session.get(InstanceRow, name)
            applied = None if row is None else row.last_active
        allocation_request = shrink_request(
            compose(name, limit_to_allocated(request, applied, allocation)), allocation, leaving
        )
        if allocation is not None and any(
            getattr(allocation, field) != getattr(allocation_request, field) for field in PLACEMENT_FIELDS
        ):
            return await self._control_plane.move(name, allocation_request, validate_only=True)
        return await self._control_plane.reserve(name, allocation_request, validate_only=True)

    def _create(self, session: Session, name: str, request: InstanceRequest) -> InstanceRow:
        instance = InstanceRow(
            name=name,
            project=request.project,
            labels=request.labels,
            spec=request.wire(),
            state="Pending",
        )
        if (policy := self._store.policy_of(session, name)) is not None:
            instance.scaling_policy = policy.name
        session.add(instance)
        self._store.record_event(session, name, "Requested", _describe_size(request), self._clock.now())
        if request.suspend:
            self._workflows.open_change(session, instance)
        else:
            self._workflows.open(session, "create-instance", instance, "Provisioning", "Creating")
        return instance

    def _update(self, session: Session, instance: InstanceRow, request: InstanceRequest, leaving: list[str]) -> None:
        if instance.state == "Deleting":
            raise Conflict(f"instance {instance.name!r} is being deleted; wait until it is gone")
        current = instance.shape
        if request.project != current.project:
            raise Conflict("an instance stays in its project", field="project")
        if request == current:
            return
        if request.floor > request.nodes:
            raise InvalidField(
                f"nodes is {request.nodes}, but minNodes is {request.floor}: lower minNodes too",
                field="nodes",
            )
        if leaving:
            _check_leaving(instance, request, leaving)
        shape_changed = request.model_copy(update={"labels": current.labels}) != current
        instance.spec, instance.labels = request.wire(), request.labels
        if not shape_changed:
            return
        instance.generation += 1
        instance.cancelled = None
        instance.retry_at = 0.0
        instance.leaving = leaving
        self._store.record_event(
            session,
            instance.name,
            "Changed",
            f"generation {instance.generation}: {_describe_size(request)}",
            self._clock.now(),
        )
        if instance.state in SETTLED or below_floor(instance) or (request.suspend and instance.state == "Failed"):
            self._workflows.open_change(session, instance)
        elif instance.state == "Suspended" and request.suspend:
            instance.observed_generation = instance.generation  # it has nothing to change
        elif instance.state in ("Suspended", "Failed"):
            self._workflows.open(session, "create-instance", instance, "Provisioning", "Creating")

    def resize(self, session: Session, instance: InstanceRow, nodes: int, leaving: Sequence[str] = ()) -> None:
        """Change the number of nodes, in the caller's transaction. The caller wakes the runner after the commit."""
        self._update(session, instance, instance.shape.model_copy(update={"nodes": nodes}), list(leaving))

    def suspend(self, session: Session, instance: InstanceRow) -> None:
        """Release its nodes and slices but keep its spec, in the caller's transaction."""
        self._update(session, instance, instance.shape.model_copy(update={"suspend": True}), [])

    def unsuspend(self, session: Session, instance: InstanceRow, nodes: int | None = None) -> None:
        """Provision a suspended instance again, with `nodes` nodes, in the caller's transaction."""
        size = instance.shape.nodes if nodes is None else max(nodes, instance.shape.min_nodes or 1)
        self._update(session, instance, instance.shape.model_copy(update={"suspend": False, "nodes": size}), [])

    def delete(self, name: str) -> InstanceView:
        """Release everything and delete the instance. Supersedes any operation under way. Idempotent."""
        with self._store.transaction() as session:
            instance = self._store.instance(session, name)
            if instance.state != "Deleting":
                self._workflows.delete(session, instance, "Deleting", "everything is given back")
        self._wake()
        return instance.view()

    async def renew(
        self, name: str, lease_s: float, *, if_match: str | None = None, validate_only: bool = False
    ) -> InstanceView:
        """Restart an instance's lease with this length. Raises Conflict if it has none."""
        with self._store.reading() as session:
            instance = self._store.instance(session, name)
            check_etag(instance, if_match)
            if instance.shape.lease_s is None:
                raise Conflict(f"instance {name!r} has no lease", field="leaseS")
        allocation = await self._control_plane.renew(name, lease_s, validate_only)
        with self._store.transaction(dry=validate_only) as session:
            instance = self._store.instance(session, name)
            instance.expires_at = parse_timestamp(allocation.expires_at) if allocation.expires_at else None
            view = instance.view()
        return view if validate_only else instance.view()

    def retry(self, name: str) -> InstanceView:
        """Retry now what was refused, instead of waiting for the backoff."""
        with self._store.transaction() as session:
            instance = self._store.instance(session, name)
            instance.retry_at, instance.refused_generation = 0.0, None
            if instance.state == "Failed" and not below_floor(instance):
                self._workflows.open(session, "create-instance", instance, "Provisioning", "Creating")
        self._wake()
        return instance.view()

    def restart(self, name: str) -> InstanceView:
        """Switch its nodes off and on again. Raises Conflict unless it is Active."""
        with self._store.transaction() as session:
            instance = self._store.instance(session, name)
            restarting = [each for each in self._store.open_operations(session, name) if each.verb == RESTART]
            if not restarting:
                if instance.state != "Active":
                    raise Conflict(f"instance {name!r} is {instance.state}; only one that is Active can be restarted")
                self._store.record_event(
                    session, name, "Restarting", "nodes are switched off and on", self._clock.now()
                )
                self._workflows.open(session, RESTART, instance, "Updating", "Restarting")
        self._wake()
        return instance.view()

    def relocate(self, name: str, parameters: dict[str, str]) -> bool:
        """Move one member to a named node for a defragmentation; `parameters` is a `RelocateRequest`.

        Returns False while another operation is under way, or while the instance's spec differs from its shape.
        """
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state not in SETTLED or instance.applied is None:
                return False
            due = self._clock.now() >= due_at(instance.retry_at, self._clock)
            settled = instance.generation == instance.observed_generation and due
            if not settled or self._store.open_operations(session, name):
                return False
            self._workflows.open(session, RELOCATE, instance, "Updating", "Moving", parameters)
        self._wake()
        return True


def _describe_size(request: InstanceRequest) -> str:
    return f"{pluralized(request.nodes, 'node')}, {pluralized(request.spares, 'spare')}"


def _check_leaving(instance: InstanceRow, request: InstanceRequest, leaving: list[str]) -> None:
    """Raises Conflict unless exactly these members leave with this change."""
    members = {member["node"] for member in instance.members or [] if member["role"] == "member"}
    non_members = sorted(set(leaving) - members)
    if non_members:
        raise Conflict(f"{', '.join(non_members)} cannot leave: not a member of {instance.name!r}", field="leaving")
    if len(set(leaving)) != len(members) - request.nodes:
        leaving_count = len(members) - request.nodes
        expected = (
            f"{leaving_count} of its {len(members)} members go"
            if leaving_count > 0
            else f"none of its {len(members)} members goes"
        )
        raise Conflict(
            f"leaving names {pluralized(len(set(leaving)), 'node')}, and {expected} when nodes is {request.nodes}; "
            "name just those, or leave it out",
            field="leaving",
        )
