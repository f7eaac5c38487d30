"""Communicators: create, show and delete named traffic, and keep it in step with slices and ports.

Only the spec is stored; everything else is computed: ranks from the slice's members, paths from the forwarding tables,
rates from all flows together. `synchronise` needs no input and may be called at any time: it removes communicators
whose slice is gone and brings flows to the present members and ports, so a restart, a failed transaction or a missed
trigger leaves nothing to repair. Ranks that are not members of the slice neither send nor receive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.hardware_names import NodeName, validate_resource_name
from matrixcommon.model.planes import Plane
from matrixcommon.persistence.database_session import ResourceRow, find
from matrixlink.communicators.groups import TrafficGroup, check_terms, group_of
from matrixlink.communicators.patterns import ceilings
from matrixlink.communicators.ub_traffic import UbTraffic
from matrixlink.communicators.views import count_cut_transfers, traffic_view
from matrixlink.contract.communicators import FLOWS_MAX, CommunicatorRequest, CommunicatorView
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.forwarding.path_policies import SPRAY, Transfers
from matrixlink.model.slice_states import WITHDRAWING
from matrixlink.store.communicators import CommunicatorRow, communicators_in
from matrixlink.store.store import LinkStore
from matrixlink.store.tables import SliceRow

FLOWING, CUT, IDLE, OVERSIZED = "Flowing", "Cut", "Idle", "Oversized"
"""Every transfer has a path; some have none; the slice has fewer than two of its ranks, or is being withdrawn; the
slice has grown so far that a supernode cannot follow its flows in addition to those of smaller ones."""


DesiredGroup = tuple[TrafficGroup, float | None, str, int]
"""A communicator's transfers, the offer of a rank, the routing and the seed."""


class Communicators:
    """The verbs. There is one plane of tables and flows per supernode, created on first use."""

    def __init__(self, store: LinkStore, fabric: Fabric, clock: Clock) -> None:
        self.store = store
        self.fabric = fabric
        self._clock = clock
        self._traffic: dict[str, UbTraffic] = {}
        self._groups: dict[str, TrafficGroup] = {}
        self._oversized: frozenset[str] = frozenset()
        self._look_again = True
        store.records.before_commit.append(self._note)

    # -- verbs ---------------------------------------------------------------------------------------------------------

    def ensure(self, name: str, request: CommunicatorRequest) -> CommunicatorView:
        """Create a communicator or change it; repeating the same spec changes nothing. Raises InvalidField,
        Conflict."""
        validate_resource_name(name)
        self.synchronise()
        with self.store.transaction() as session:
            row = session.get(CommunicatorRow, name)
            slice, desired = self._validated_slice(session, request), _desired(name, request)
            group = self._group(desired, slice.members)
            self._check_flow_limit(name, group, desired.routing)
            if row is not None and row.slice != desired.slice:
                raise Conflict(f"communicator {name!r} belongs to slice {row.slice}; delete it first", field="slice")
            if row is None:
                desired.state = FLOWING if len(group.source) else IDLE
                row = desired
                session.add(row)
            elif row.spec != desired.spec:
                for column in ("project", "labels", "pattern", "routing", "ranks", "offered_gbps", "shift", "holders",
                               "seed"):  # fmt: skip
                    setattr(row, column, getattr(desired, column))
                row.generation += 1
        return row.view()

    def delete(self, name: str) -> None:
        with self.store.transaction() as session:
            session.delete(find(session, CommunicatorRow, name))

    def get(self, name: str) -> CommunicatorView:
        """One communicator with its current flows. Raises NotFound."""
        self.synchronise()
        with self.store.reading() as session:
            return self._shown(find(session, CommunicatorRow, name))

    def all(self) -> list[CommunicatorView]:
        self.synchronise()
        with self.store.reading() as session:
            return [self._shown(row) for row in communicators_in(session)]

    def traffic_and_group(self, name: str) -> tuple[UbTraffic, TrafficGroup | None]:
        """The plane with a communicator's flows, and its group, None while it is idle. Raises NotFound."""
        self.synchronise()
        group = self._groups.get(name)
        if group is not None:
            return self._traffic[group.supernode], group
        with self.store.reading() as session:
            row = find(session, CommunicatorRow, name)
            return self._traffic_at(find(session, SliceRow, row.slice).members[0]), None

    def plane(self, supernode: str) -> UbTraffic:
        """The tables and flows of a supernode for the present ports. KeyError if there is no such supernode."""
        if supernode not in self._traffic:
            made = UbTraffic(self.fabric.supernodes[supernode], self.fabric)
            made.synchronise(self.fabric, self._clock.now())
            made.events = 0
            self._traffic[supernode] = made
        return self._traffic[supernode]

    def _traffic_at(self, node: str) -> UbTraffic:
        """For the supernode that a node belongs to, whether or not it is in its graph (any more)."""
        return self.plane(NodeName(node).supernode)

    # -- following -----------------------------------------------------------------------------------------------------

    async def watch(self) -> str:
        """Synchronise, and record which communicators were cut or restored."""
        followed = self.synchronise()
        if self.store.records.query_unless_known_empty(CommunicatorRow, communicators_in):
            with self.store.transaction() as session:
                for row in communicators_in(session):
                    if row.state != (state := self._state(row.name)):
                        row.state = state
        return followed

    def synchronise(self) -> str:
        """Bring flows to the present ports and slices."""
        for gone in [name for name in self._traffic if name not in self.fabric.supernodes]:
            del self._traffic[gone]
        changes = [traffic.synchronise(self.fabric, self._clock.now()) for traffic in self._traffic.values()]
        if self._look_again:
            self._look_again = False
            try:
                self._update_groups()
            except BaseException:
                self._look_again = True
                raise
        return f"{sum(len(change.repathed) for change in changes if change)} flows changed paths"

    def _note(self, session: Session, rows: Sequence[ResourceRow], newest: int) -> None:
        """Slices or communicators are about to change. If the commit fails, checking again does no harm."""
        self._look_again = self._look_again or any(isinstance(row, SliceRow | CommunicatorRow) for row in rows)

    def _update_groups(self) -> None:
        """Bring the groups of flows to what the tables say."""
        wanted, orphans = {}, []
        with self.store.reading() as session:
            for row in communicators_in(session):
                slice = session.get(SliceRow, row.slice)
                if slice is None:
                    orphans.append(row.name)
                elif slice.state != WITHDRAWING:
                    group = self._group(row, slice.members)
                    if len(group.source):
                        wanted[row.name] = (group, row.offered_gbps, row.routing, row.seed)
        self._apply_groups(self._within_limit(wanted))
        if orphans:
            with self.store.transaction() as session:
                for name in orphans:
                    orphan = session.get(CommunicatorRow, name)
                    if orphan is not None and session.get(SliceRow, orphan.slice) is None:
                        session.delete(orphan)

    def _within_limit(self, wanted: dict[str, DesiredGroup]) -> dict[str, DesiredGroup]:
        """As many as can be followed, the smallest first: one whose slice has grown displaces no other."""
        flows = {name: self._flows(group, routing) for name, (group, _, routing, _) in wanted.items()}
        total: Counter[str] = Counter()
        kept = set()
        for name in sorted(wanted, key=lambda name: (flows[name], name)):
            supernode = wanted[name][0].supernode
            if total[supernode] + flows[name] <= FLOWS_MAX:
                total[supernode] += flows[name]
                kept.add(name)
        self._oversized = frozenset(wanted.keys() - kept)
        return {name: each for name, each in wanted.items() if name in kept}

    def _flows(self, group: TrafficGroup, routing: str) -> int:
        shape = self.plane(group.supernode).shape
        return len(group.source) * shape.sub_planes * (shape.chips if routing == SPRAY else 1)

    def _apply_groups(self, wanted: dict[str, DesiredGroup]) -> None:
        current = self._groups
        gone = [name for name, group in current.items() if name not in wanted or not wanted[name][0].same(group)]
        for supernode, traffic in self._traffic.items():
            leaving = [name for name in gone if current[name].supernode == supernode]
            for name in leaving:
                traffic.changes.pop(name, None)
            if leaving:
                traffic.flows.remove(leaving)
        fresh: dict[str, dict[str, Transfers]] = {}
        for name, (group, offered, routing, seed) in wanted.items():
            if name not in current or name in gone:
                most = ceilings(group.source, offered)
                source, target = group.ends[group.source], group.ends[group.target]
                shape = self.plane(group.supernode).shape
                made = Transfers.of(shape, source, target, policy=routing, ceiling=most, seed=seed)
                fresh.setdefault(group.supernode, {})[name] = made
        for supernode, groups in fresh.items():
            self.plane(supernode).flows.put(groups)
        self._groups = {name: group for name, (group, *_) in wanted.items()}

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _validated_slice(self, session: Session, request: CommunicatorRequest) -> SliceRow:
        """The slice of a valid spec; InvalidField for an invalid one."""
        slice = session.get(SliceRow, request.slice)
        if slice is None:
            raise InvalidField(f"there is no slice named {request.slice[:80]!r}", field="slice")
        if slice.plane != Plane.UB:
            raise InvalidField(
                f"slice {slice.name!r} is on plane {slice.plane}; communicators need a ub slice", field="slice"
            )
        if slice.state == WITHDRAWING:
            raise Conflict(f"slice {slice.name!r} is being withdrawn", field="slice")
        members = set(slice.members)
        for at, rank in enumerate(request.ranks or ()):
            node = str(rank.npu.node)
            if node not in members:
                raise InvalidField(f"{rank} is not on a member of slice {slice.name!r}", field=f"ranks[{at}]")
            if rank not in self._traffic_at(node).end_number:
                raise InvalidField(f"there is no die {rank}", field=f"ranks[{at}]")
        twice = {rank: at for at, rank in enumerate(request.ranks or ())}
        for at, rank in enumerate(request.ranks or ()):
            if twice[rank] != at:
                raise InvalidField(f"{rank} is listed twice", field=f"ranks[{twice[rank]}]")
        check_terms(request)
        return slice

    def _group(self, row: CommunicatorRow, members: list[str]) -> TrafficGroup:
        """Members that are not in any graph (any more) have no ranks."""
        return group_of(row, [node for node in members if self.fabric.has(node)], self._traffic_at(members[0]))

    def _check_flow_limit(self, name: str, group: TrafficGroup, routing: str) -> None:
        traffic = self.plane(group.supernode)
        flows = self._flows(group, routing)
        current = traffic.flows.flows_of(name) if name in traffic.flows.groups else slice(0, 0)
        others = len(traffic.flows) - (current.stop - current.start)
        if flows + others > FLOWS_MAX:
            raise InvalidField(
                f"{flows:,} flows plus {others:,} of other communicators; a supernode can follow {FLOWS_MAX:,}",
                field="pattern",
            )

    def _state(self, name: str) -> str:
        group = self._groups.get(name)
        if group is None:
            return OVERSIZED if name in self._oversized else IDLE
        return CUT if count_cut_transfers(self._traffic[group.supernode], name) else FLOWING

    def _shown(self, row: CommunicatorRow) -> CommunicatorView:
        view = row.view()
        group = self._groups.get(row.name)
        if group is None:
            return view.model_copy(update={"state": self._state(row.name)})
        traffic = self._traffic[group.supernode]
        reported = traffic_view(traffic, row.name, group)
        return view.model_copy(update={"state": self._state(row.name), "traffic": reported})


def _desired(name: str, request: CommunicatorRequest) -> CommunicatorRow:
    desired: dict[str, Any] = {
        "project": request.project, "labels": request.labels, "slice": request.slice, "pattern": str(request.pattern),
        "routing": str(request.routing), "ranks": None if request.ranks is None else [str(r) for r in request.ranks],
        "offered_gbps": request.offered_gbps, "shift": request.shift, "holders": request.holders, "seed": request.seed,
    }  # fmt: skip
    return CommunicatorRow(name=name, generation=1, **desired)
