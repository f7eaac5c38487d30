"""Peerings: which slices may reach one another, with whose consent, over which key.

Slices are islands: each has a partition key (or VNI) of its own, and no route leads from one to another. A peering of
two slices of a plane has a key of its own; every member's program then carries, beside the slice, the other side's
members with that key and the routes to them. It is Active once every agent on both sides has acknowledged that, and
gone once every one has acknowledged programs without it; its key is not given out before, nor while a node that fell
silent may still use it (a fence). Traffic between peers has no floor of its own: it takes its slice's share. A slice
that ends, or passes to a project that never consented, ends its peerings.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.errors import Conflict, Forbidden, InvalidField
from matrixcommon.model.hardware_names import checked_resource_name
from matrixcommon.model.planes import Plane
from matrixcommon.model.resource_key import project_of
from matrixcommon.persistence.database_session import find
from matrixlink.admission.slice_index import SliceState
from matrixlink.contract.peerings import PeeringRequest, PeeringView
from matrixlink.model.slice_states import ADMITTED, WITHDRAWING
from matrixlink.routing.routing import choose_routes
from matrixlink.slices.programs import routes_body
from matrixlink.slices.slice_controller import SliceController
from matrixlink.store.tables import PEERED, PEERING_DELETING, PENDING, PROGRAMMING_PEERS, PeeringRow, SliceRow


@dataclass(frozen=True, slots=True)
class ActivePeering:
    """A peering that members are asked to hold, seen from one of its slices."""

    name: str
    partner: str
    isolation_key: int
    rules: list[dict[str, Any]]


class Peerings:
    """The verbs over peerings."""

    def __init__(self, slice_controller: SliceController) -> None:
        self._slice_controller = slice_controller
        self._store = slice_controller.store
        self._promises = slice_controller.promises
        self._live: dict[str, list[ActivePeering]] = {}
        self._slices: set[str] = set()
        self._open = False
        self._promises.on_load.append(self.refresh)
        slice_controller.after_settle.append(self.reconcile)
        slice_controller.after_change.append(self.synchronise)
        slice_controller.extend_bodies = self.extend
        with self._store.reading() as session:
            self.refresh(session)

    # -- verbs --------------------------------------------------------------------------------------------------------

    def ensure(self, name: str, request: PeeringRequest) -> PeeringView:
        """Ask for a peering; the same again is no news, but for its labels. Raises InvalidField, Conflict.

        Of another project's slice nothing is looked at before that project accepts, not even whether it exists: who
        asks would learn of it.
        """
        checked_resource_name(name)
        with self._promises.changing() as session:
            row = session.get(PeeringRow, name)
            rules = [rule.wire() for rule in request.security_rules]
            if row is not None:
                if row.state == PEERING_DELETING:
                    raise Conflict(f"peering {name!r} is being deleted; wait until it is gone")
                if (row.slices, row.security_rules) != (sorted(request.slices), rules):
                    raise Conflict(f"peering {name!r} is of other slices or rules; delete it first", field="slices")
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
                session, isolation, self._promises.keys_taken(isolation), self._promises.fenced
            )
            session.add(row)
            if foreign is not None:
                row.message = f"waits for project {foreign} to accept"
            else:
                row.state = PROGRAMMING_PEERS
                self._promises.mark_stale()
                self._apply(session, row)
        return row.view()

    def accept(self, name: str, project: str) -> PeeringView:
        """A project's consent; given twice it is no news. Raises Forbidden for one that has no slice in it, and
        InvalidField where the slices cannot be joined."""
        with self._promises.changing() as session:
            row = find(session, PeeringRow, name)
            if row.state == PEERING_DELETING:
                raise Conflict(f"peering {name!r} is being deleted")
            owners = set(map(project_of, row.slices))
            if project not in owners:
                raise Forbidden(f"project {project} has no slice in peering {name}")
            if project in row.accepted_by:  # who asked, above all: it is told nothing of the other's slice
                return row.view()
            self._check_pair(*(self._slice(slice, at) for at, slice in enumerate(row.slices)))
            row.accepted_by = sorted({*row.accepted_by, project})
            if row.state == PENDING and owners <= set(row.accepted_by):
                row.state, row.message = PROGRAMMING_PEERS, ""
                self._promises.mark_stale()
                self._apply(session, row)
        return row.view()

    def delete(self, name: str) -> PeeringView | None:
        """Have both sides forget each other; None once it is gone."""
        with self._promises.changing() as session:
            row = find(session, PeeringRow, name)
            self._promises.mark_stale()
            if row.state == PENDING:  # nobody was asked to hold anything of it
                session.delete(row)
                session.flush()
                self.refresh(session)
            else:
                row.state = PEERING_DELETING
                self._apply(session, row)
            gone = session.get(PeeringRow, name) is None
        return None if gone else row.view()

    def get(self, name: str) -> PeeringView:
        with self._store.reading() as session:
            return find(session, PeeringRow, name).view()

    # -- what others do -----------------------------------------------------------------------------------------------

    def refresh(self, session: Session) -> None:
        """Know again which peerings members are to hold, and which keys peerings have."""
        live: defaultdict[str, list[ActivePeering]] = defaultdict(list)
        keys: defaultdict[str, set[int]] = defaultdict(set)
        rows = self._store.peerings(session)
        for row in rows:
            keys[row.isolation].add(row.isolation_key)
            for mine, other in (row.slices, row.slices[::-1]):
                if row.state in (PROGRAMMING_PEERS, PEERED):
                    live[mine].append(ActivePeering(row.name, other, row.isolation_key, row.security_rules))
        self._live = dict(live)
        self._slices = {name for row in rows for name in row.slices}
        self._open = any(row.state in (PROGRAMMING_PEERS, PEERING_DELETING) for row in rows)
        partners = {name: [self._promises.slices.get(each.partner) for each in found] for name, found in live.items()}
        self._promises.peering_keys = dict(keys)
        self._promises.peered = {
            name: tuple(dict.fromkeys(node for terms in found if terms for node in terms.members))
            for name, found in partners.items()
        }

    def synchronise(self, session: Session, slice: SliceRow) -> None:
        """A slice has changed: peers learn of its members; one that ends or changes hands ends its peerings."""
        if slice.name not in self._slices:
            return
        for row in self._store.peerings(session):
            if slice.name in row.slices:
                consents = slice.project in row.accepted_by
                if row.state == PENDING and not consents:
                    continue
                if slice.state == WITHDRAWING or not consents:
                    row.state = PEERING_DELETING
                self._promises.mark_stale()
                self._apply(session, row, but=slice.name)

    def extend(self, row: SliceRow, bodies: dict[str, dict[str, Any]]) -> None:
        """Add to a slice's programs what its members hold of its peerings."""
        for each in self._live.get(row.name, ()):
            partner = self._promises.slices.get(each.partner)
            if partner is None or partner.withdrawing:
                continue
            both = dict.fromkeys([*row.members, *partner.members])
            routes = choose_routes(self._promises.fabric, partner.plane, both)
            order = self._promises.fabric.ports
            ends = {*order.npus, *order.dies}
            kept = ends.union(partner.members, (f"{member}-{end}" for member in partner.members for end in ends))
            for node, body in bodies.items():
                current = routes_body(routes.nodes[node])
                current["detours"] = {key: way for key, way in current["detours"].items() if key in kept}
                peering = {"name": each.name, "slice": each.partner, "isolation_key": each.isolation_key}
                peers = [peer for peer in partner.members if peer != node]
                body.setdefault("peerings", []).append(
                    peering | current | {"peers": peers, "security_rules": each.rules}
                )  # fmt: skip

    def reconcile(self, session: Session) -> None:
        """Peerings that everybody holds are Active; those that nobody holds any more are gone."""
        if not self._open:
            return
        ended = False
        for row in self._store.peerings(session):
            if row.state == PROGRAMMING_PEERS and all(self._holds(session, row, name) for name in row.slices):
                row.state = PEERED
            if row.state == PEERING_DELETING and all(self._is_rid(session, row, name) for name in row.slices):
                for name in row.slices:
                    self._store.fence_also(session, name, row.isolation, row.isolation_key)
                session.delete(row)
                ended = True
        if ended:
            self._promises.mark_stale()
            self.refresh(session)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _checked(self, request: PeeringRequest) -> tuple[SliceState, str | None]:
        """A slice of the project that asks, and the other project whose consent it takes, if any."""
        one, other = request.slices
        if one == other:
            raise InvalidField("a slice reaches itself without a peering", field="slices[1]")
        own = [self._slice(name, at) for at, name in enumerate(request.slices) if project_of(name) == request.project]
        if not own:
            raise InvalidField(f"neither slice belongs to project {request.project}", field="slices")
        if request.security_rules and own[0].plane != Plane.VPC:
            raise InvalidField("only the VPC plane has security rules; a partition key is all or nothing",
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
        """InvalidField for two slices that no route can join."""
        if one.plane != other.plane:
            raise InvalidField(f"{one.name} is on {one.plane}, {other.name} on {other.plane}", field="slices[1]")
        ours, theirs = (self._promises.fabric.supernode_name(each.members[0]) for each in (one, other))
        if one.plane == Plane.UB and ours != theirs:
            raise InvalidField("no UB route leads from one supernode to another", field="slices[1]")

    def _apply(self, session: Session, row: PeeringRow, but: str = "") -> None:
        """Have the agents of both slices (`but` one, which is at it itself) hold what they are to hold now."""
        self.refresh(session)
        slices = [each for each in self._store.slices_named(session, row.slices) if each.name != but]
        for each in slices:
            if each.program_generation and each.state not in (ADMITTED, WITHDRAWING):
                self._slice_controller.reprogram(session, each)
        if slices:
            self._slice_controller.reconcile(session, slices)
        else:
            self.reconcile(session)

    def _holds(self, session: Session, row: PeeringRow, name: str) -> bool:
        programs = self._store.programs(session, name)
        return bool(programs) and all(
            program.action == "program" and program.state == "Programmed" and _has(program.body, row.name)
            for program in programs
        )

    def _is_rid(self, session: Session, row: PeeringRow, name: str) -> bool:
        """Whether every agent that can be asked is rid of this peering on this side: programs without it are
        acknowledged, or the slice has never been asked for, or is gone. Others are fenced."""
        return all(
            program.action == "program" and program.state == "Programmed" and not _has(program.body, row.name)
            for program in self._store.programs(session, name)
        )


def _has(body: dict[str, Any], peering: str) -> bool:
    return any(each["name"] == peering for each in body.get("peerings", ()))
