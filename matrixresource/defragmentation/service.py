"""The verbs on defragmentations: propose, approve, cancel, delete.

An approved plan is carried out by the workflow `defragment` and, for instances, by MatrixCompute. While a plan is in
progress its room, and the nodes that members move to, are kept from new work.
"""

from __future__ import annotations

import secrets
from math import inf

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Cancelled, Conflict, ExceedsDomain, InsufficientCapacity, StalePlan
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.persistence.database_session import find
from matrixcommon.workflows import verbs
from matrixcommon.workflows.rows import FORWARD
from matrixcommon.workflows.runner import WorkflowRunner
from matrixresource.allocations.ledger_sync import LedgerSync
from matrixresource.allocations.refusals import blocking_cabinets, describe_request, does_not_fit, exceeded_domain
from matrixresource.allocations.request_checks import check_placement
from matrixresource.allocations.reservation_conflicts import conflicting_reservations, promised_nodes
from matrixresource.contract.defragmentations import DefragmentationRequest, DefragmentationView, MoveRefused
from matrixresource.defragmentation.plan import blocking_reason, move_started, plan_room
from matrixresource.defragmentation.plan_lifecycle import PlanLifecycle
from matrixresource.defragmentation.workflows import DEFRAGMENTATION, DefragmentationContext
from matrixresource.scheduler.placement.reserved_capacity import is_promised
from matrixresource.store.defragmentations import IN_PROGRESS, DefragmentationRow, in_state
from matrixresource.store.operations import OperationRow
from matrixresource.store.store import ResourceStore
from matrixresource.store.topology_versions import checked_version


class DefragmentationService:
    """Over one store and its ledger."""

    def __init__(
        self,
        store: ResourceStore,
        ledger: LedgerSync,
        clock: Clock,
        runner: WorkflowRunner[DefragmentationContext, OperationRow],
    ) -> None:
        self._store = store
        self._runner = runner
        self._ledger = ledger
        self._clock = clock
        self._plans = PlanLifecycle(store, clock)

    def propose(self, request: DefragmentationRequest) -> DefragmentationView:
        """Make a plan for review. Repeated with the same name and spec, it returns the existing one. Raises
        InsufficientCapacity if no moves make the room, Conflict if no move is needed."""
        name = validate_resource_name(request.name or f"defrag-{secrets.token_hex(4)}")
        with self._store.transaction() as session:
            spec = request.spec().spec_dict()
            if (existing := session.get(DefragmentationRow, name)) is not None:
                if existing.request == spec:
                    return existing.view()
                raise Conflict(f"defragmentation {name!r} exists with another spec", field="name")
            version = checked_version(session, request.topology_version)
            check_placement(request.spec())
            ledger = self._ledger.open(session)
            allocation_request = self._ledger.placement_request(request.spec(), self._clock.now())
            wanted = describe_request(allocation_request, ledger.shape.npus)
            if ledger.choose(allocation_request) is not None:
                raise Conflict(f"there is already room for {wanted}; nothing needs to move")
            if limit := exceeded_domain(self._ledger, allocation_request):
                field = "nodes" if request.request is None else "request.placement.level"
                start = does_not_fit(allocation_request, ledger.shape.npus)
                raise ExceedsDomain(f"{start}: {limit}; no move can change that", field=field)
            found = plan_room(session, self._store, self._ledger, allocation_request)
            if found is None or found.plan is None:
                why = f"no moves of whole nodes make room for {wanted}"
                if found is not None:
                    why = f"there will be room for {wanted} once these are clean: {', '.join(found.nodes)}"
                elif promised := conflicting_reservations(self._ledger, allocation_request):
                    why = f"{does_not_fit(allocation_request, ledger.shape.npus)}: {promised}"
                promised_to_others = promised_nodes(self._ledger, allocation_request)
                raise InsufficientCapacity(
                    why, blocking=blocking_cabinets(self._store.nodes(session), promised_to_others)
                )
            row = DefragmentationRow(
                name=name,
                project=request.project,
                labels=request.labels,
                state="Proposed",
                nodes=allocation_request.nodes,
                level=allocation_request.required_domain,
                request=spec,
                moves=[move.wire() for move in found.moves],
                room=found.nodes,
                block_before=found.plan.before,
                block_after=found.plan.after,
                npus=found.plan.npus,
                exact=found.plan.exact,
                topology_version=version,
            )
            session.add(row)
        return row.view()

    def approve(self, name: str) -> DefragmentationView:
        """Approve the plan, which is then carried out. Raises StalePlan, and marks it Stale, if it is no longer
        valid."""
        with self._store.transaction() as session:
            self._store.records.lock(session)
            row = find(session, DefragmentationRow, name)
            why = None
            if row.state not in IN_PROGRESS:
                others = in_state(session, *IN_PROGRESS)
                if others and row.state == "Proposed":
                    raise Conflict(f"defragmentation {others[0].name!r} is in progress; only one can run at a time")
                if row.state == "Proposed":
                    why = self._plans.stale_reason(session, row) or self._promised_node(session, row)
                if why is None:
                    row.move("Approved")
                    self._plans.sync_reserved_nodes(session, row)
                    self._runner.open(session, DEFRAGMENTATION.verb, row)
                else:
                    self._plans.end(session, row, "Stale", "StalePlan", why)
        if why is not None:
            raise StalePlan(f"{why}; request a new plan")
        return row.view()

    def _promised_node(self, session: Session, row: DefragmentationRow) -> str | None:
        """A node of the room or a move's target that has been promised to a reservation since the plan was made."""
        ledger, numbers = self._ledger.open(session), self._ledger.numbers
        nodes = [name for name in self._plans.nodes(session, row) if name not in {step.source for step in row.steps()}]
        promised = [name for name in nodes if is_promised(ledger, numbers[name], inf)]
        return f"{promised[0]} is promised to a reservation" if promised else None

    def cancel(self, name: str) -> DefragmentationView:
        """Stop after the current move. Repeated, or after the end, it changes nothing."""
        with self._store.transaction() as session:
            self._store.records.lock(session)
            row = find(session, DefragmentationRow, name)
            if row.state == "Running":
                row.cancelling = True
                for operation in self._runner.under_way(session, row):
                    if operation.state in FORWARD:
                        verbs.roll_back(operation, Cancelled(f"defragmentation {name!r} was cancelled"))
            elif row.state in ("Proposed", "Approved"):
                self._plans.end(session, row, "Cancelled", "Cancelled", "nothing was moved")
                self._runner.overtake(session, row, "its cancellation")
        return row.view()

    def delete(self, name: str) -> None:
        """Delete a defragmentation that is not in progress."""
        with self._store.transaction() as session:
            row = find(session, DefragmentationRow, name)
            if row.state in IN_PROGRESS:
                raise Conflict(f"defragmentation {name!r} is {row.state}; cancel it first")
            session.delete(row)

    def handle_refusal(self, name: str, reported: MoveRefused) -> DefragmentationView:
        """Handle a current move that cannot be carried out: plan again if something has changed, else fail."""
        with self._store.transaction() as session:
            self._store.records.lock(session)
            row = find(session, DefragmentationRow, name)
            step = row.current_step()
            reported_move = (reported.allocation, reported.node, reported.to)
            if row.state == "Running" and step is not None and (step.allocation, step.source, step.to) == reported_move:
                nodes = self._plans.nodes(session, row)
                if (
                    not move_started(step, nodes)
                    and blocking_reason(row, nodes, self._store.nodes_with_parts(session)) is None
                ):
                    text = f"{step.allocation} cannot move from {step.source} to {step.to}: {reported.message}"
                    self._plans.end(session, row, "Failed", reported.reason, text)
                    for operation in self._runner.under_way(session, row):
                        verbs.fail(operation, Conflict(text), self._clock.now())
        return row.view()
