"""Conductor: ensure, retry, delete, and tend. The life of an instance is decided here.

A verb writes the wish and opens the saga in one transaction, so a crash finds both or neither. `tend` looks at what the
neighbours show, writes it into each instance, and opens the saga that the difference calls for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sqlalchemy.orm import Session

from matrixcompute.composition import LIES_BY, compose, lies_otherwise
from matrixcompute.contract import InstanceRequest, InstanceView
from matrixcompute.draining import lying_in, who_can_leave
from matrixcompute.instance import Observed, conditions_of
from matrixcompute.loss import Loss, living, loss_of
from matrixcompute.neighbours import Neighbours
from matrixcompute.recovery import Recovery, RecoveryPolicy, plan_recovery
from matrixcompute.saga import GIVE_WAY, MOVE, RELOCATE, REPAIR, SagaRunner
from matrixcompute.sagas.create_instance import RETRY_S
from matrixcompute.store import ComputeStore, InstanceRow
from matrixresource.contract import AllocationView
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.errors import Conflict, InvalidField
from matrixresource.vocabulary.names import checked_resource_name
from matrixresource.vocabulary.quantities import from_timestamp
from matrixresource.vocabulary.records import check_etag
from matrixresource.vocabulary.wire import condition

INSTANCE_NAME_LENGTH_MAX = 58
"""So that `<instance>-rdma` is still a legal name."""


def change_verb(instance: InstanceRow) -> str:
    """The saga that brings an instance to its wish: a move where its place changes, or a move has not come to its end.

    How far that one got, only MatrixResource knows; a move finds out, and where nothing is to be moved it scales.
    """
    moving = instance.generation != instance.observed_generation and (instance.operation or "").startswith(MOVE)
    held = InstanceRequest.model_validate(instance.applied) if instance.applied else instance.shape
    return MOVE if moving or lies_otherwise(instance.shape, held) else "scale-instance"


class Conductor:
    """The verbs over instances."""

    def __init__(
        self,
        store: ComputeStore,
        neighbours: Neighbours,
        runner: SagaRunner,
        clock: Clock,
        policy: RecoveryPolicy,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called after a saga was opened, for the runner to take it up at once."""
        self._store = store
        self._neighbours = neighbours
        self._runner = runner
        self._clock = clock
        self._policy = policy
        self._wake = wake

    # -- verbs ---------------------------------------------------------------------------------------------------

    async def ensure(
        self, name: str, request: InstanceRequest, *, if_match: str | None = None, validate_only: bool = False
    ) -> InstanceView:
        """Create an instance or change its shape. With `validate_only` MatrixResource is asked too: would it fit?"""
        checked_resource_name(name)
        if len(name) > INSTANCE_NAME_LENGTH_MAX:
            raise Conflict(
                f"{name!r} is too long: its slices are named after it; use {INSTANCE_NAME_LENGTH_MAX} letters"
            )
        for field in ("near", "apart"):
            wish = getattr(request, field)
            if wish is not None and name in wish.instances:
                raise InvalidField(f"{name} cannot be {field} itself", field=f"{field}.instances")
        planned: AllocationView | None = None
        if validate_only:
            planned = await self._planned(name, request)
        with self._store.transaction(dry=validate_only) as session:
            instance = session.get(InstanceRow, name)
            check_etag(instance, if_match)
            if instance is None:
                instance = self._created(session, name, request)
            else:
                self._changed(session, instance, request)
            view = instance.view()
        if planned is not None:
            return view.model_copy(update={"members": planned.members, "preempts": planned.preempts})
        self._wake()
        return instance.view()

    async def _planned(self, name: str, request: InstanceRequest) -> AllocationView:
        """Where it would lie; what is held stays as far as it can."""
        wish = compose(name, request).allocation
        held = living(await self._neighbours.allocation(name))
        if held is not None and any(getattr(held, field) != getattr(wish, field) for field in LIES_BY):
            return await self._neighbours.move(name, wish, validate_only=True)
        return await self._neighbours.reserve(name, wish, validate_only=True)

    def _created(self, session: Session, name: str, request: InstanceRequest) -> InstanceRow:
        instance = InstanceRow(
            name=name,
            project=request.project,
            labels=request.labels,
            spec=request.wire(),
            state="Pending",
            generation=1,
            conditions=[],
            observed_generation=0,
            retry_at=0.0,
            repairs=0,
            members=[],
            slices=[],
            ready_nodes=0,
        )
        session.add(instance)
        self._store.say(
            session, name, "Requested", f"{request.nodes} nodes, {request.spares} spares", self._clock.now()
        )
        self._open(session, "create-instance", instance, "Provisioning", "Creating")
        return instance

    def _changed(self, session: Session, instance: InstanceRow, request: InstanceRequest) -> None:
        if instance.state == "Deleting":
            raise Conflict(f"instance {instance.name!r} is being deleted; wait until it is gone")
        held = instance.shape
        if request.project != held.project:
            raise Conflict("an instance stays in its project", field="project")
        if request == held:
            return
        shape_changed = request.model_copy(update={"labels": held.labels}) != held
        instance.spec, instance.labels = request.wire(), request.labels
        if not shape_changed:
            return
        instance.generation += 1
        instance.retry_at = 0.0
        self._store.say(
            session,
            instance.name,
            "Changed",
            f"generation {instance.generation}: {request.nodes} nodes, {request.spares} spares",
            self._clock.now(),
        )
        if instance.state == "Active":
            self._open_change(session, instance)

    def delete(self, name: str, *, if_match: str | None = None) -> InstanceView:
        """Give everything back and forget the instance. Overtakes whatever was under way; asked again, it goes on."""
        with self._store.transaction() as session:
            instance = self._store.instance(session, name)
            check_etag(instance, if_match)
            if instance.state != "Deleting":
                self._delete(session, instance, "Deleting", "everything is given back")
        self._wake()
        return instance.view()

    def _delete(self, session: Session, instance: InstanceRow, reason: str, message: str) -> None:
        instance.generation += 1
        self._store.say(session, instance.name, reason, message, self._clock.now())
        self._open(session, "delete-instance", instance, "Deleting", "Deleting")

    async def renew(self, name: str, lease_s: float) -> InstanceView:
        """Let an instance's lease start again, for this long. Raises Conflict where it has none."""
        with self._store.reading() as session:
            if self._store.instance(session, name).shape.lease_s is None:
                raise Conflict(f"instance {name!r} has no lease", field="leaseS")
        held = await self._neighbours.renew(name, lease_s)
        with self._store.transaction() as session:
            instance = self._store.instance(session, name)
            instance.expires_at = from_timestamp(held.expires_at) if held.expires_at else None
        return instance.view()

    def retry(self, name: str) -> InstanceView:
        """Try now what was refused, instead of when its time comes."""
        with self._store.transaction() as session:
            instance = self._store.instance(session, name)
            instance.retry_at = 0.0
        self._wake()
        return instance.view()

    def relocate(self, name: str, about: dict[str, str]) -> bool:
        """Move one member to a node that is named, as a defragmentation asks: `about` is a `RelocateRequest`.

        False while something else is under way, or when the instance is to be something else than it is.
        """
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state != "Active" or instance.applied is None:
                return False
            settled = instance.generation == instance.observed_generation and self._clock.now() >= instance.retry_at
            if not settled or self._store.open_sagas(session, name):
                return False
            self._open(session, RELOCATE, instance, "Updating", "Moving", about)
        self._wake()
        return True

    def _open_change(self, session: Session, instance: InstanceRow) -> None:
        verb = change_verb(instance)
        self._open(session, verb, instance, "Updating", "Moving" if verb == MOVE else "Scaling")

    def _open(
        self,
        session: Session,
        verb: str,
        instance: InstanceRow,
        state: str,
        reason: str,
        about: dict[str, str] | None = None,
    ) -> None:
        self._runner.open(session, verb, instance, about)
        instance.move(state)
        instance.conditions = condition(
            instance.conditions or [],
            "Progressing",
            True,
            reason,
            f"{verb} generation {instance.generation}",
            generation=instance.generation,
            now=self._clock.now(),
        )

    # -- tending -------------------------------------------------------------------------------------------------

    async def tend(self) -> str:
        """Look at everything once: write down what is seen, and open the sagas that it calls for."""
        with self._store.reading() as session:
            if not self._store.instances(session):
                return "no instances"
        allocations = {each.name: each for each in await self._neighbours.allocations()}
        slices = await self._neighbours.slices()
        draining = await self._neighbours.draining()
        lost = [m.node for each in allocations.values() for m in each.members if m.agent == "Lost"]
        opened = 0
        gone_spares: list[tuple[str, str]] = []
        to_leave: dict[str, list[str]] = {}
        losses: dict[str, Loss] = {}
        with self._store.transaction() as session:
            for instance in self._store.instances(session):
                observed = Observed(allocations.get(instance.name), tuple(slices.get(instance.name, ())))
                recovery = Recovery("keep")
                if observed.allocation is not None:
                    recovery = plan_recovery(observed.allocation.members, lost, self._policy)
                self._write(instance, observed, recovery)
                loss = self._loss(instance, observed.allocation, allocations.values())
                if loss is not None:
                    losses[instance.name] = loss
                elif not self._decide(session, instance, observed, recovery, gone_spares):
                    self._look_for_leavers(session, instance, observed, draining, to_leave, gone_spares)
                else:
                    opened += 1
        for name, loss in losses.items():
            opened += await self._give_up(name, loss, allocations.values())
        for name, nodes in to_leave.items():
            opened += await self._leave(name, nodes)
        for name, node in gone_spares:
            await self._neighbours.replace(name, node, "SpareGone")
        if opened:
            self._wake()
        self._runner.nudge()
        return f"{opened} sagas opened"

    def _write(self, instance: InstanceRow, observed: Observed, recovery: Recovery) -> None:
        instance.ready_nodes = observed.ready_nodes
        held = living(observed.allocation)
        if held is not None:
            instance.expires_at = from_timestamp(held.expires_at) if held.expires_at else None
        instance.members = [m.wire() for m in observed.allocation.members] if observed.allocation is not None else []
        instance.slices = [each.wire() for each in observed.slices]
        instance.conditions = conditions_of(
            instance.conditions or [],
            observed,
            recovery,
            state=instance.state,
            nodes=instance.shape.nodes,
            generation=instance.generation,
            now=self._clock.now(),
        )

    def _decide(
        self,
        session: Session,
        instance: InstanceRow,
        observed: Observed,
        recovery: Recovery,
        gone_spares: list[tuple[str, str]],
    ) -> int:
        """Open at most one saga for an instance that has none under way."""
        if self._store.open_sagas(session, instance.name):
            return 0
        now = self._clock.now()
        if instance.state == "Deleting":
            self._runner.open(session, "delete-instance", instance)
            return 1
        if recovery.action == "hold":
            self._store.say(session, instance.name, recovery.reason, recovery.message, now, "Warning")
            return 0
        repair_refused = (instance.operation or "").startswith(REPAIR)
        if now < instance.retry_at and (recovery.action != "replace" or repair_refused):
            return 0  # a refused change of shape does not keep a lost member from being replaced
        if instance.state in ("Pending", "Provisioning"):
            self._open(session, "create-instance", instance, "Provisioning", "Creating")
            return 1
        if instance.state in ("Updating", "Repairing"):  # its saga ended without a word: bring it home
            self._runner.open(session, change_verb(instance), instance)
            return 1
        if recovery.action == "replace":
            assert observed.allocation is not None
            members = {m.node for m in observed.allocation.members if m.role == "member"}
            if members & set(recovery.nodes):
                self._store.say(session, instance.name, recovery.reason, recovery.message, now, "Warning")
                instance.repairs += 1
                self._open(session, REPAIR, instance, "Repairing", "Repairing")
                return 1
            gone_spares += [(instance.name, node) for node in recovery.nodes]
            return 0
        if instance.generation != instance.observed_generation or not self._whole(observed):
            self._open_change(session, instance)
            return 1
        instance.conditions = condition(
            instance.conditions or [],
            "Progressing",
            False,
            "Settled",
            "nothing is under way",
            generation=instance.generation,
            now=now,
        )
        return 0

    # -- what was taken back ---------------------------------------------------------------------------------------

    def _loss(
        self, instance: InstanceRow, held: AllocationView | None, everybody: Iterable[AllocationView]
    ) -> Loss | None:
        """What became of an instance's nodes, if that calls for something else than the saga under way."""
        loss = loss_of(instance.name, held, everybody, instance.expires_at, self._clock.now())
        if loss is None or instance.state == "Deleting":
            return None
        serving = instance.state in ("Active", "Updating", "Repairing")
        return loss if serving or (loss.reason == "LeaseEnded" and instance.expires_at is not None) else None

    async def _give_up(self, name: str, loss: Loss, everybody: Iterable[AllocationView]) -> int:
        """Open what a loss calls for, when it still is one: between two looks a saga may have taken nodes."""
        held = await self._neighbours.allocation(name)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or self._loss(instance, held, everybody) is None:
                return 0
            now, generation = self._clock.now(), instance.generation
            if loss.reason == "LeaseEnded":
                self._delete(session, instance, loss.reason, loss.message)
            else:
                self._store.say(session, name, loss.reason, loss.message, now, "Warning")
                self._open(session, GIVE_WAY, instance, "Pending", loss.reason)
                instance.conditions = condition(
                    instance.conditions, "Scheduled", False, loss.reason, loss.message, generation=generation, now=now
                )
            if loss.reason != "TakenBack":
                instance.conditions = condition(
                    instance.conditions, loss.reason, True, loss.reason, loss.message, generation=generation, now=now
                )
        return 1

    # -- what is to leave ------------------------------------------------------------------------------------------

    def _look_for_leavers(
        self,
        session: Session,
        instance: InstanceRow,
        observed: Observed,
        draining: Sequence[str],
        to_leave: dict[str, list[str]],
        gone_spares: list[tuple[str, str]],
    ) -> None:
        """Note the members of a settled instance that stand in a domain that drains; its spares there when none is."""
        busy = instance.state != "Active" or self._store.open_sagas(session, instance.name)
        if observed.allocation is None or busy or self._clock.now() < instance.retry_at:
            return
        nodes = lying_in(observed.allocation.members, draining)
        if nodes:
            to_leave[instance.name] = nodes
        else:
            spares = lying_in(observed.allocation.members, draining, "spare")
            gone_spares += [(instance.name, node) for node in spares]

    async def _leave(self, name: str, nodes: Sequence[str]) -> int:
        """Move whoever can leave a domain that drains; say who cannot, and why."""
        with self._store.reading() as session:
            wish = compose(name, self._store.instance(session, name).shape).allocation
        leaving, refused = await who_can_leave(self._neighbours, name, wish, nodes)
        with self._store.transaction() as session:
            instance = session.get(InstanceRow, name)
            if instance is None or instance.state != "Active" or self._store.open_sagas(session, name):
                return 0
            now = self._clock.now()
            if refused is not None:
                left = ", ".join(node for node in nodes if node not in leaving)
                self._store.say(
                    session, name, "DrainBlocked", f"{left} cannot leave: {refused.message}", now, "Warning"
                )
            if not leaving:
                instance.retry_at = now + RETRY_S
                return 0
            self._store.say(session, name, "Draining", f"{', '.join(leaving)} move out of a closed domain", now)
            self._open(session, MOVE, instance, "Updating", "Draining")
        return 1

    def _whole(self, observed: Observed) -> bool:
        """Whether everything an instance takes is still there."""
        return observed.allocation is not None and observed.allocation.bound and len(observed.slices) == 3
