"""Handle allocations that MatrixResource revoked, and members in domains that drain.

A preempted instance yields its slices and waits, one whose lease ended is deleted, and members in a draining domain
move out as far as there is room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matrixcommon.model.clock import Clock
from matrixcompute.clients.control_plane import ControlPlane
from matrixcompute.model.composition import compose, limit_to_allocated
from matrixcompute.model.observation import Observed
from matrixcompute.model.retries import RefusalBackoff
from matrixcompute.model.states import HOLDING, SETTLED
from matrixcompute.operations.context import MOVE, PENDING_GENERATION, YIELD_CAPACITY
from matrixcompute.operations.starter import WorkflowStarter, below_floor
from matrixcompute.reconcilers.findings import Findings
from matrixcompute.recovery.loss import AllocationLoss, diagnose_loss
from matrixcompute.store.store import ComputeStore, InstanceRow
from matrixcompute.workflows.draining import nodes_in_domains, select_movable
from matrixresource.contract.allocations import AllocationView


class PreemptionReconciler:
    """Records losses and leavers during a pass, and opens their workflows after checking each again."""

    def __init__(
        self, store: ComputeStore, control_plane: ControlPlane, workflows: WorkflowStarter, clock: Clock
    ) -> None:
        self._store = store
        self._control_plane = control_plane
        self._workflows = workflows
        self._clock = clock
        self._backoff = RefusalBackoff(clock)
        """Instances whose members could not leave."""

    # -- what was revoked ---------------------------------------------------------------------------------------

    def find_loss(
        self, instance: InstanceRow, allocation: AllocationView | None, allocations: Iterable[AllocationView]
    ) -> AllocationLoss | None:
        """Why an instance lost its nodes, if that calls for something other than the workflow under way."""
        leased = instance.shape.lease_s is not None
        loss = diagnose_loss(instance.name, allocation, allocations, instance.expires_at, self._clock.now(), leased)
        if loss is None or instance.state == "Deleting":
            return None
        ended = loss.reason == "LeaseEnded" and instance.expires_at is not None
        return loss if ended or instance.state in HOLDING or below_floor(instance) else None

    async def open_for_loss(self, name: str, loss: AllocationLoss, allocations: Iterable[AllocationView]) -> int:
        """Open the workflow that a loss calls for, if it is still one; a workflow may have taken nodes meanwhile."""
        allocation = await self._control_plane.find_allocation(name)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or self.find_loss(instance, allocation, allocations) is None:
                return 0
            now, generation = self._clock.now(), instance.generation
            if loss.reason == "LeaseEnded":
                self._workflows.delete(session, instance, loss.reason, loss.message)
            else:
                self._store.record_event(session, name, loss.reason, loss.message, now, "Warning")
                self._workflows.open(session, YIELD_CAPACITY, instance, "Pending", loss.reason)
                instance.set_condition("Scheduled", False, loss.reason, loss.message, now, generation)
            if loss.reason != "Revoked":
                instance.set_condition(loss.reason, True, loss.reason, loss.message, now, generation)
        return 1

    # -- what is to leave ------------------------------------------------------------------------------------------

    def find_draining_members(
        self, instance: InstanceRow, observed: Observed, draining: Sequence[str], findings: Findings
    ) -> None:
        """Record the members in a draining domain of a settled instance without a workflow, or its spares there if no
        members are left. An instance whose changed spec was refused is included: a request for more than there is must
        not block work on the nodes it has."""
        if observed.allocation is None or instance.state not in SETTLED:
            return
        if self._backoff.backing_off(instance.name):
            return
        nodes = nodes_in_domains(observed.allocation.members, draining)
        if nodes:
            findings.draining_members[instance.name] = nodes
        else:
            spares = nodes_in_domains(observed.allocation.members, draining, "spare")
            findings.lost_spares += [(instance.name, node) for node in spares]

    async def move_draining_members(self, name: str, nodes: Sequence[str]) -> int:
        """Move the members that can leave a draining domain; record an event for the others, with the reason."""
        allocation = await self._control_plane.find_allocation(name)
        with self._store.reading() as session:
            row = self._store.instance(session, name)
            shape = row.last_active or row.shape
            request = compose(name, limit_to_allocated(shape, shape, allocation))
        leaving, refusal = await select_movable(self._control_plane, name, request, nodes)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state not in SETTLED or self._store.open_operations(session, name):
                return 0
            now = self._clock.now()
            if refusal is not None:
                remaining = ", ".join(node for node in nodes if node not in leaving)
                self._store.record_event(
                    session, name, "DrainBlocked", f"{remaining} cannot leave: {refusal.message}", now, "Warning"
                )
            if not leaving:
                self._backoff.record(name)
                return 0
            waits = instance.generation != instance.observed_generation
            parameters = (
                {PENDING_GENERATION: str(instance.generation)} if waits and instance.applied is not None else None
            )
            self._store.record_event(
                session, name, "Draining", f"moving {', '.join(leaving)} out of a draining domain", now
            )
            self._workflows.open(session, MOVE, instance, "Updating", "Draining", parameters)
        return 1
