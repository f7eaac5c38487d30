"""Peerings: which slices may reach one another, with whose consent, and with which key.

Slices are isolated: each has a partition key (or VNI) of its own, and no route leads from one to another. A peering of
two slices of a plane has its own key; every member's program then includes, besides the slice, the other side's members
with that key and the routes to them. The peering is Active once every agent on both sides has acknowledged that, and
gone once every agent has acknowledged programs without it; its key is not reused before, nor while a node that fell
silent may still use it (a fence). Traffic between peers has no floor of its own: it uses its slice's share. A slice
that ends, or passes to a project that never consented, ends its peerings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.errors import Conflict, Forbidden, InvalidField
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import project_of
from matrixcommon.persistence.database_session import find
from matrixlink.admission.slice_index import SliceState
from matrixlink.contract.peerings import PeeringRequest, PeeringView
from matrixlink.model.slice_states import ADMITTED, WITHDRAWING
from matrixlink.peering.peer_routes import PeerRoutes
from matrixlink.peering.peering_index import PeeringIndex
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import PEERED, PEERING_DELETING, PENDING, PROGRAMMING_PEERS, PeeringRow, SliceRow


class Peerings:
    """The verbs on peerings."""

    def __init__(self, slice_controller: SliceController) -> None:
        self._slice_controller = slice_controller
        self._store = slice_controller.store
        self._promises = slice_controller.promises
        self._index = PeeringIndex()
        self._routes = PeerRoutes(self._promises)
        self._promises.peering_keys = self._index.keys
        self._promises.on_load.append(self.refresh)
        slice_controller.on_settled.append(self.reconcile)
        slice_controller.on_slice_changed.append(self.synchronise)
        slice_controller.extend_bodies = self.extend
        with self._store.reading() as session:
            self.refresh(session)

    # -- verbs --------------------------------------------------------------------------------------------------------

    def ensure(self, name: str, request: PeeringRequest) -> PeeringView:
        """Request a peering; repeating it changes nothing except labels. Raises InvalidField, Conflict.

        A slice of another project is not looked at before that project accepts, not even to see whether it exists: the
        requester would learn of it.
        """
        validate_resource_name(name)
        with self._promises.transaction() as session:
            row = session.get(PeeringRow, name)
            rules = [rule.wire() for rule in request.security_rules]
            if row is not None:
                if row.state == PEERING_DELETING:
                    raise Conflict(f"peering {name!r} is being deleted; wait until it is gone")
                if (row.slices, row.security_rules) != (sorted(request.slices), rules):
                    raise Conflict(
                        f"peering {name!r} exists with other slices or rules; delete it first", field="slices"
                    )
                row.labels = request.labels
                return row.view()
            one, foreign = self._checked(request)
            isolation = "vni" if one.plane == Plane.VPC else "partitionKey"
            row = PeeringRow(
                name=name, project=request.project, labels=request.labels, slices=sorted(request.slices),
                plane=str(one.plane), security_rules=rules, accepted_by=[request.project], isolation=isolation,
                state=PENDING,
            )  # fmt: skip
            row.isolation_key = self._store.free_key(
                session, isolation, self._promises.used_keys(isolation), self._promises.fenced
            )
            session.add(row)
            self._promises.mark_stale()
            if foreign is not None:
                row.message = f"waiting for project {foreign} to accept"
                self._index.put(row)
            else:
                row.state = PROGRAMMING_PEERS
                self._apply(session, [row])
        return row.view()

    def accept(self, name: str, project: str) -> PeeringView:
        """Record a project's consent; giving it again changes nothing. Raises Forbidden for a project without a slice
        in it, and InvalidField if the slices cannot be joined."""
        with self._promises.transaction() as session:
            row = find(session, PeeringRow, name)
            if row.state == PEERING_DELETING:
                raise Conflict(f"peering {name!r} is being deleted")
            owners = set(map(project_of, row.slices))
            if project not in owners:
                raise Forbidden(f"project {project} has no slice in peering {name}")
            if project in row.accepted_by:  # first of all the requester, who must learn nothing about the other's slice
                return row.view()
            self._check_pair(*(self._slice(slice, at) for at, slice in enumerate(row.slices)))
            row.accepted_by = sorted({*row.accepted_by, project})
            if row.state == PENDING and owners <= set(row.accepted_by):
                row.state, row.message = PROGRAMMING_PEERS, ""
                self._promises.mark_stale()
                self._apply(session, [row])
        return row.view()

    def delete(self, name: str) -> PeeringView | None:
        """Have both sides remove the peering; None once it is gone."""
        with self._promises.transaction() as session:
            row = find(session, PeeringRow, name)
            self._promises.mark_stale()
            if row.state == PENDING:  # no agent was asked to hold any of it
                session.delete(row)
                session.flush()
                self._index.drop(name)
            else:
                row.state = PEERING_DELETING
                self._apply(session, [row])
            gone = session.get(PeeringRow, name) is None
        return None if gone else row.view()

    def get(self, name: str) -> PeeringView:
        with self._store.reading() as session:
            return find(session, PeeringRow, name).view()

    # -- what others do -----------------------------------------------------------------------------------------------

    def refresh(self, session: Session) -> None:
        """Reload which peerings members must hold, and which keys peerings have."""
        self._index.replace(self._store.peerings(session))
        self._promises.peered_members = {}
        self._update_peered(self._index.slices())

    def synchronise(self, session: Session, slice: SliceRow) -> None:
        """React to a change of a slice: update its peers about its members, and end its peerings if it ends or changes
        projects."""
        changed = []
        for row in self._store.peerings_named(session, self._index.of(slice.name)):
            consents = slice.project in row.accepted_by
            if row.state == PENDING and not consents:
                continue
            if slice.state == WITHDRAWING or not consents:
                if row.state != PEERING_DELETING:
                    self._record_end(session, row, slice)
                row.state = PEERING_DELETING
            changed.append(row)
        if changed:
            self._promises.mark_stale()
            self._apply(session, changed, but=slice.name)

    def extend(self, row: SliceRow, bodies: dict[str, dict[str, Any]]) -> None:
        """Add to a slice's programs what its members hold of its peerings."""
        for each in self._index.active(row.name):
            partner = self._promises.slices.get(each.partner)
            if partner is None or partner.withdrawing:
                continue
            ways = self._routes.between(row.name, each.partner, partner.plane, row.members, partner.members)
            peering = {"name": each.name, "slice": each.partner, "isolation_key": each.isolation_key}
            for node, body in bodies.items():
                body.setdefault("peerings", []).append(peering | ways[node] | {"security_rules": each.rules})

    def reconcile(self, session: Session) -> None:
        """Activate peerings that all members hold, and remove those that none holds any more."""
        for row in self._store.peerings_named(session, self._index.open):
            if row.state == PROGRAMMING_PEERS and all(self._holds(session, row, name) for name in row.slices):
                self._promises.mark_stale()
                row.state = PEERED
                self._index.put(row)
            if row.state == PEERING_DELETING and all(self._is_removed(session, row, name) for name in row.slices):
                for name in row.slices:
                    self._store.fence_key(session, name, row.isolation, row.isolation_key)
                self._promises.mark_stale()
                session.delete(row)
                self._index.drop(row.name)

    def _record_end(self, session: Session, row: PeeringRow, ended: SliceRow) -> None:
        """Tell both projects that a peering ends with one of its slices."""
        why = "is withdrawn" if ended.state == WITHDRAWING else f"passed to project {ended.project}"
        text = f"peering {row.name} ends because slice {ended.name} {why}; when both slices exist, request it again"
        for name in row.slices:
            if project_of(name) in row.accepted_by:
                now = self._slice_controller.clock.now()
                self._store.record_event(
                    session, name, "PeeringEnded", text, now, warning=True, project=project_of(name)
                )

    # -- parts --------------------------------------------------------------------------------------------------------

    def _checked(self, request: PeeringRequest) -> tuple[SliceState, str | None]:
        """The requester's slice, and the other project whose consent is needed, if any."""
        one, other = request.slices
        if one == other:
            raise InvalidField("a slice does not need a peering with itself", field="slices[1]")
        own = [self._slice(name, at) for at, name in enumerate(request.slices) if project_of(name) == request.project]
        if not own:
            raise InvalidField(f"neither slice belongs to project {request.project}", field="slices")
        if request.security_rules and own[0].plane != Plane.VPC:
            raise InvalidField("security rules are only for the VPC plane; a partition key permits all traffic or none",
                               field="securityRules")  # fmt: skip
        if len(own) == 2:
            self._check_pair(*own)
            return own[0], None
        return own[0], ({*map(project_of, request.slices)} - {request.project}).pop()

    def _slice(self, name: str, at: int) -> SliceState:
        terms = self._promises.slices.get(name)
        if terms is None or terms.withdrawing:
            raise InvalidField(f"there is no slice named {name[:80]!r}", field=f"slices[{at}]")
        return terms

    def _check_pair(self, one: SliceState, other: SliceState) -> None:
        """Raises InvalidField for two slices that no route can join."""
        if one.plane != other.plane:
            raise InvalidField(f"{one.name} is on {one.plane}, {other.name} on {other.plane}", field="slices[1]")
        ours, theirs = (self._promises.fabric.supernode_name(each.members[0]) for each in (one, other))
        if one.plane == Plane.UB and ours != theirs:
            raise InvalidField("no UB route leads from one supernode to another", field="slices[1]")

    def _apply(self, session: Session, rows: list[PeeringRow], but: str = "") -> None:
        """Have the agents of both slices of each peering (except slice `but`, which is programmed by the caller) hold
        what they must hold now."""
        for row in rows:
            self._index.put(row)
        both = dict.fromkeys(name for row in rows for name in row.slices)
        self._update_peered(both)
        slices = self._store.slices_named(session, [name for name in both if name != but])
        for each in slices:
            if each.program_generation and each.state not in (ADMITTED, WITHDRAWING):
                self._slice_controller.reprogram(session, each)
        if slices:
            self._slice_controller.reconcile(session, slices)
        else:
            self.reconcile(session)

    def _update_peered(self, slices: Iterable[str]) -> None:
        """Update AdmissionState with the members that these slices reach by their peerings."""
        for name in slices:
            partners = {each.partner: None for each in self._index.active(name)}
            self._routes.keep(name, {*partners})
            reached = (self._promises.slices.get(partner) for partner in partners)
            if partners:
                nodes = dict.fromkeys(node for terms in reached if terms for node in terms.members)
                self._promises.peered_members[name] = tuple(nodes)
            else:
                self._promises.peered_members.pop(name, None)

    def _holds(self, session: Session, row: PeeringRow, name: str) -> bool:
        programs = self._store.programs(session, name)
        return bool(programs) and all(
            program.action == "program" and program.state == "Programmed" and _has_peering(program.body, row.name)
            for program in programs
        )

    def _is_removed(self, session: Session, row: PeeringRow, name: str) -> bool:
        """Whether every reachable agent on this side has removed this peering: programs without it are acknowledged, or
        the slice was never programmed, or is gone. Other agents are fenced."""
        return all(
            program.action == "program" and program.state == "Programmed" and not _has_peering(program.body, row.name)
            for program in self._store.programs(session, name)
        )


def _has_peering(body: dict[str, Any], peering: str) -> bool:
    return any(each["name"] == peering for each in body.get("peerings", ()))
