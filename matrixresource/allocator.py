"""Allocator: reserve, bind, resize, replace, release. Who holds which node is decided here and nowhere else.

Every verb is idempotent: asked twice with the same wish it finds what it did. A verb is one transaction, so it happens
whole or not at all; what the agents then do is watched, and `settle` moves states on as reports come in.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.orm import Session

from matrixresource.contract import AllocationRequest, AllocationView, NodeView
from matrixresource.moving import Held, Move, begun, plan_move
from matrixresource.placement import Wish, place
from matrixresource.store import AllocationRow, AssignmentRow, NodeRow, ResourceStore
from matrixresource.vocabulary.clock import Clock
from matrixresource.vocabulary.errors import Conflict, InsufficientCapacity, NotYetSupported
from matrixresource.vocabulary.names import NodeName, checked_resource_name
from matrixresource.vocabulary.records import check_etag
from matrixresource.vocabulary.wire import condition

NPUS_PER_NODE = 8
"""CloudMatrix384 paper (arXiv 2506.12708): eight Ascend 910C packages a node."""


class Allocator:
    """The verbs over nodes and allocations."""

    def __init__(self, store: ResourceStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    # -- verbs ---------------------------------------------------------------------------------------------------

    def reserve(
        self, name: str, request: AllocationRequest, *, if_match: str | None = None, validate_only: bool = False
    ) -> AllocationView:
        """Hold nodes for `name`, or grow and shrink what it holds. Raises InsufficientCapacity, Conflict."""
        checked_resource_name(name)
        nodes = whole_nodes(request)
        with self._store.transaction(dry=validate_only) as session:
            held = session.get(AllocationRow, name)
            check_etag(held, if_match)
            if held is None:
                held = self._reserved(session, name, request, nodes)
            else:
                self._resized(session, held, request, nodes)
            self._settle(session, held)
            view = held.view()
        return view if validate_only else held.view()

    def bind(self, name: str) -> AllocationView:
        """Ask the agents of all members to deploy, and of all spares to stand ready."""
        with self._store.transaction() as session:
            held = self._store.allocation(session, name)
            if held.state == "Releasing":
                raise Conflict(f"allocation {name!r} is being released")
            held.bound = True
            if held.state == "Reserved":
                held.move("Binding")
            for node in self._store.held_by(session, name):
                self._wish(session, node, _wished_of(node.role), held)
            self._settle(session, held)
        return held.view()

    def move(self, name: str, request: AllocationRequest, *, validate_only: bool = False) -> AllocationView:
        """Take successors for the members that would lie elsewhere under `request`; everything held stays held.

        Asked again it finds the move it began; with another wish it begins that one instead. With `validate_only` the
        view is of the allocation as it would be in the end.
        """
        nodes = whole_nodes(request)
        with self._store.transaction(dry=validate_only) as session:
            held = self._store.allocation(session, name)
            if held.state == "Releasing":
                raise Conflict(f"allocation {name!r} is being released")
            current = {node.node_name: node for node in self._store.held_by(session, name)}
            move = self._planned(session, held, request, nodes)
            for node in list(current.values()):
                if node.role == "successor" and move.coming.get(node.node_name) != node.rank:
                    self._let_go(session, node)
                    current.pop(node.node_name)
            for coming, rank in move.coming.items():
                if current.get(coming) is None:
                    self._take(session, held, coming, "successor", rank)
            session.flush()
            if validate_only:
                self._changed_over(session, held, request, move.ranks)
            self._settle(session, held)
            view = held.view()
        return view if validate_only else held.view()

    def change_over(self, name: str, request: AllocationRequest) -> AllocationView:
        """Successors become members, and who they follow is let go, all at once. Raises Conflict before all are ready.

        Asked again it changes nothing: nobody has a successor any more.
        """
        nodes = whole_nodes(request)
        with self._store.transaction() as session:
            held = self._store.allocation(session, name)
            ranks = begun(self._held(session, held, nodes))
            if len(ranks) != nodes:
                raise Conflict(f"{len(ranks)} of {nodes} ranks have somebody to take them over; move again")
            for node in self._store.held_by(session, name):
                if node.role == "successor" and not node.ready:
                    raise Conflict(f"{node.name} is not ready to take over rank {node.rank}")
            self._changed_over(session, held, request, ranks)
            self._settle(session, held)
        return held.view()

    def stay(self, name: str) -> AllocationView:
        """Give a move up: its successors are let go."""
        with self._store.transaction() as session:
            held = self._store.allocation(session, name)
            self._give_up_move(session, held)
            self._settle(session, held)
        return held.view()

    def replace(self, name: str, node: NodeName, reason: str) -> AllocationView:
        """Give up one member and let a spare, else a free node, take its rank; the rest stay where they are.

        Asked again for a node that is no longer a member, it changes nothing. Raises InsufficientCapacity when there
        is neither spare nor free node; the member is then kept.
        """
        with self._store.transaction() as session:
            held = self._store.allocation(session, name)
            if held.state == "Releasing":
                raise Conflict(f"allocation {name!r} is being released")
            gone = next((each for each in self._store.held_by(session, name) if each.name == node), None)
            if gone is not None:
                if gone.role == "member":
                    self._step_in(session, held, gone)
                self._let_go(session, gone)
                held.generation += 1
                if held.bound and held.state in ("Bound", "Degraded"):
                    held.move("Binding")
                held.labels = {**held.labels, "cloudmatrix.io/last-replacement": f"{node}.{reason}"[:63]}
                session.flush()
                self._replenish(session, held)
                self._settle(session, held)
        return held.view()

    def replenish(self) -> int:
        """Take free nodes for allocations short of spares; returns how many. Run when nodes come back."""
        taken = 0
        with self._store.transaction() as session:
            for held in self._store.allocations(session):
                if held.state != "Releasing":
                    taken += self._replenish(session, held)
                    self._settle(session, held)
        return taken

    def release(self, name: str, *, if_match: str | None = None) -> AllocationView | None:
        """Let everything go: agents clean, then the nodes are free and the allocation is gone (None)."""
        with self._store.transaction() as session:
            held = self._store.allocation(session, name)
            check_etag(held, if_match)
            if held.state != "Releasing":
                held.move("Releasing")
                held.generation += 1
                for node in self._store.held_by(session, name):
                    self._wish(session, node, "Clean", held)
            view = held.view()
            return None if self._settle(session, held) else view

    def cordon(self, name: NodeName, cordoned: bool, *, if_match: str | None = None) -> NodeView:
        """Keep new work off a node, or let it come again; what runs there goes on."""
        with self._store.transaction() as session:
            node = self._store.node(session, name)
            check_etag(node, if_match)
            node.cordoned = cordoned
        return node.view()

    def settle(self, session: Session, names: set[str]) -> None:
        """Move allocations on after their nodes' reports changed."""
        for name in sorted(names):
            held = session.get(AllocationRow, name)
            if held is not None:
                self._settle(session, held)

    # -- parts of verbs ------------------------------------------------------------------------------------------

    def _reserved(self, session: Session, name: str, request: AllocationRequest, nodes: int) -> AllocationRow:
        snapshot = self._store.snapshot(session)
        placed = place(
            snapshot.without(request.exclude_nodes, "Excluded"),
            Wish(nodes, request.spares, **request.placement.model_dump()),
        )
        held = AllocationRow(
            name=name,
            project=request.project,
            labels=request.labels,
            state="Reserved",
            nodes=nodes,
            spares=request.spares,
            placement=request.placement.wire(),
            topology_version=snapshot.topology_version,
            bound=False,
            generation=1,
            conditions=[],
            members=[],
        )
        session.add(held)
        for rank, node in enumerate(placed.members):
            self._take(session, held, node, "member", rank)
        for node in placed.spares:
            self._take(session, held, node, "spare", None)
        return held

    def _resized(self, session: Session, held: AllocationRow, request: AllocationRequest, nodes: int) -> None:
        if held.state == "Releasing":
            raise Conflict(f"allocation {held.name!r} is being released; wait until it is gone")
        if request.placement.wire() != held.placement:
            raise Conflict("an allocation moves to another placement by PUT .../move", field="placement")
        self._give_up_move(session, held)
        held.labels = {**held.labels, **request.labels}
        if (nodes, request.spares) == (held.nodes, held.spares):
            return
        current = self._store.held_by(session, held.name)
        members = [node for node in current if node.role == "member"]
        spares = [node for node in current if node.role == "spare"]
        if nodes > len(members):
            placed = place(
                self._store.snapshot(session).without(request.exclude_nodes, "Excluded"),
                Wish(
                    nodes - len(members),
                    max(0, request.spares - len(spares)),
                    **request.placement.model_dump(),
                    near=tuple(node.node_name for node in current),
                ),
            )
            used = {node.rank for node in members}
            ranks = [rank for rank in range(nodes + len(members)) if rank not in used]
            for rank, name in zip(ranks, placed.members, strict=False):
                self._take(session, held, name, "member", rank)
            for name in placed.spares:
                self._take(session, held, name, "spare", None)
        for node in members[nodes:]:
            self._let_go(session, node)
        for node in spares[request.spares :]:
            self._let_go(session, node)
        held.nodes, held.spares = nodes, request.spares
        held.generation += 1
        if held.state in ("Bound", "Degraded"):
            held.move("Binding")
        session.flush()
        self._replenish(session, held)

    def _planned(self, session: Session, held: AllocationRow, request: AllocationRequest, nodes: int) -> Move:
        snapshot = self._store.snapshot(session).without(request.exclude_nodes, "Excluded")
        return plan_move(snapshot, self._held(session, held, nodes), Wish(nodes, **request.placement.model_dump()))

    def _held(self, session: Session, held: AllocationRow, nodes: int) -> Held:
        """Who holds, or will hold, the ranks that there will be."""
        ranks: dict[str | None, dict[NodeName, int]] = {"member": {}, "successor": {}}
        fit = set()
        for node in self._store.held_by(session, held.name):
            if node.role in ranks and node.rank is not None and node.rank < nodes:
                ranks[node.role][node.node_name] = node.rank
                if node.agent == "Connected" and node.health != "Unhealthy":
                    fit.add(node.node_name)
        return Held(ranks["member"], ranks["successor"], frozenset(fit))

    def _changed_over(
        self, session: Session, held: AllocationRow, request: AllocationRequest, ranks: Mapping[NodeName, int]
    ) -> None:
        changed = False
        for node in self._store.held_by(session, held.name):
            if node.node_name in ranks:
                changed |= (node.role, node.rank) != ("member", ranks[node.node_name])
                node.role, node.rank = "member", ranks[node.node_name]
                if held.bound:
                    self._wish(session, node, "Member", held)
            elif node.role != "spare":
                self._let_go(session, node)
                changed = True
        spares = [node for node in self._store.held_by(session, held.name) if node.role == "spare"]
        for node in spares[request.spares :]:
            self._let_go(session, node)
        held.placement, held.nodes = request.placement.wire(), len(ranks)
        held.labels = {**held.labels, **request.labels}
        changed |= held.spares != request.spares
        held.spares = request.spares
        if changed:
            held.generation += 1
            if held.state in ("Bound", "Degraded"):
                held.move("Binding")
        session.flush()
        self._replenish(session, held)

    def _give_up_move(self, session: Session, held: AllocationRow) -> None:
        for node in self._store.held_by(session, held.name):
            if node.role == "successor":
                self._let_go(session, node)

    def _step_in(self, session: Session, held: AllocationRow, gone: NodeRow) -> None:
        follows = [
            node
            for node in self._store.held_by(session, held.name)
            if node.role == "successor" and node.rank == gone.rank and node.agent == "Connected"
        ]
        if follows:
            follows[0].role = "member"
            return
        spares = [node for node in self._store.held_by(session, held.name) if node.role == "spare"]
        fit = [node for node in spares if node.agent == "Connected" and node.health != "Unhealthy"]
        # The spare that is ready soonest: already prepared, then in the lost node's own cabinet.
        fit.sort(key=lambda node: (not node.ready, node.node_name.cabinet != gone.node_name.cabinet, node.name))
        if fit:
            fit[0].role, fit[0].rank = "member", gone.rank
            if held.bound:
                self._wish(session, fit[0], "Member", held)
            return
        placement = {**held.placement, "required": False}
        near = tuple(node.node_name for node in self._store.held_by(session, held.name))
        placed = place(self._store.snapshot(session), Wish(1, near=near, **placement))
        self._take(session, held, placed.members[0], "member", gone.rank)

    def _replenish(self, session: Session, held: AllocationRow) -> int:
        current = self._store.held_by(session, held.name)
        missing = held.spares - sum(node.role == "spare" for node in current)
        taken = 0
        for _ in range(missing):
            try:
                near = tuple(node.node_name for node in current)
                placed = place(self._store.snapshot(session), Wish(1, near=near))
            except InsufficientCapacity:
                break
            self._take(session, held, placed.members[0], "spare", None)
            session.flush()
            taken += 1
        return taken

    def _take(self, session: Session, held: AllocationRow, name: NodeName, role: str, rank: int | None) -> None:
        node = self._store.node(session, name)
        if node.holder not in (None, held.name):
            raise Conflict(f"{name} is held by {node.holder}")  # the snapshot of this transaction says otherwise: a bug
        node.holder, node.role, node.rank = held.name, role, rank
        if held.bound:
            self._wish(session, node, _wished_of(role), held)
        node.read_state()

    def _let_go(self, session: Session, node: NodeRow) -> None:
        node.holder = node.role = node.rank = None
        self._wish(session, node, "Clean", None)
        node.read_state()

    def _wish(self, session: Session, node: NodeRow, wanted: str, held: AllocationRow | None) -> None:
        """One generation on, unless that is already what is wished of the node."""
        row = session.get(AssignmentRow, node.name)
        allocation = held.name if held is not None and wanted != "Clean" else None
        if row is None:
            row = AssignmentRow(name=node.name, generation=0, state="Wanted")
            session.add(row)
        elif (row.wanted, row.allocation, row.rank) == (wanted, allocation, node.rank):
            return
        row.wanted, row.allocation, row.rank = wanted, allocation, node.rank
        row.generation += 1
        node.wanted, node.wanted_generation = wanted, row.generation
        node.read_state()

    def _settle(self, session: Session, held: AllocationRow) -> bool:
        """Read the allocation's state off its nodes. True when it was released and is gone."""
        session.flush()
        nodes = self._store.held_by(session, held.name)
        if held.state == "Releasing":
            # A node that cannot answer is fenced by its generation and quarantined until it proves to be clean.
            for node in nodes:
                if node.ready or node.agent == "Lost":
                    node.holder = node.role = node.rank = None
                    node.read_state()
            session.flush()
            if not self._store.held_by(session, held.name):
                session.delete(held)
                return True
        members = [node for node in nodes if node.role == "member"]
        spares = [node for node in nodes if node.role == "spare"]
        ready = sum(node.ready for node in members)
        broken = [node for node in members if node.agent == "Lost" or node.health == "Unhealthy"]
        if held.state in ("Binding", "Degraded") and ready == len(members) and not broken:
            held.move("Bound")
        elif held.state in ("Binding", "Bound") and broken:
            held.move("Degraded")
        now, generation = self._clock.now(), held.generation
        conditions = condition(
            held.conditions or [],
            "NodesReady",
            held.bound and ready == len(members),
            "NotBound" if not held.bound else "AllReady" if ready == len(members) else "Waiting",
            f"{ready if held.bound else 0} of {len(members)} members are active",
            generation=generation,
            now=now,
        )
        ready_spares = sum(node.ready for node in spares) if held.bound else 0
        held.conditions = condition(
            conditions,
            "SparesAvailable",
            ready_spares >= held.spares,
            "SparesReady" if ready_spares >= held.spares else "SparesMissing",
            f"{ready_spares} of {held.spares} spares stand ready",
            generation=generation,
            now=now,
        )
        held.members = [node.member_view().wire() for node in nodes]
        return False


def _wished_of(role: str | None) -> str:
    """What a node's agent is asked for: a successor is deployed as the member it is going to be."""
    return "Spare" if role == "spare" else "Member"


def whole_nodes(request: AllocationRequest) -> int:
    """The nodes a request means. Raises NotYetSupported for a number of NPUs that is no whole number of nodes."""
    if request.nodes is not None:
        return request.nodes
    assert request.npus is not None
    if request.npus % NPUS_PER_NODE:
        raise NotYetSupported(
            f"{request.npus} NPUs is no whole number of nodes; parts of a node are not there yet: "
            f"ask for a multiple of {NPUS_PER_NODE}",
            field="npus",
        )
    return request.npus // NPUS_PER_NODE
