"""TopologyManager: what the machine consists of, which parts are closed, and how it is actually wired.

Supernodes are added and removed, and domains closed and opened, by request; differences in cables and switches are
found in what agents report of their ports. Every change makes the next version of the topology, in the same
transaction. Repeating a request changes nothing and makes no version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from itertools import product
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import Conflict, InvalidField
from matrixcommon.model.hardware_names import validate_supernode_name
from matrixcommon.model.quantities import pluralized
from matrixcommon.persistence.database_session import find
from matrixresource.contract.nodes import SupernodeView
from matrixresource.contract.topology import DomainView, SupernodeRequest
from matrixresource.store import node_inventories
from matrixresource.store.allocation_tables import AssignmentRow
from matrixresource.store.maintenance_domains import (
    DomainRow,
    allocations_in,
    allocations_on,
    closed_cabinets,
    new_domains,
)
from matrixresource.store.port_observations import ObservedPortsRow, adopt_settled, adoption_due, record_report
from matrixresource.store.reservations import reservations_on
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow, SupernodeRow
from matrixresource.store.topology_versions import (
    get_head,
    record_version,
    store_graph,
    supernode_at,
    supernodes,
    topology_at,
)
from matrixresource.topology.compiled import CompiledTopology, compile_spec
from matrixresource.topology.deviations import as_built, find_deviations
from matrixresource.topology.graph_document import compile_document
from matrixresource.topology.loading import parse_spec
from matrixresource.topology.spec import InvalidSpec, SupernodeSpec
from matrixresource.topology.supernode import Supernode
from matrixresource.topology.versions import Topology

SHARED_FIGURES = ("supernode.compute_cabinets", "cabinet.nodes", "node.npus", "node.cpus", "node.dram_gib")
"""Figures that the supernodes of one machine must share, because free capacity is counted in one shape."""


class TopologyManager:
    """The verbs on the machine. `spec` is the default spec of a supernode and `topology` its default graph; without a
    graph it is wired as the spec says."""

    def __init__(
        self, store: ResourceStore, clock: Clock, spec: SupernodeSpec, topology: CompiledTopology | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._spec = spec
        self._topology = topology or compile_spec(spec)

    # -- by request ----------------------------------------------------------------------------------------------

    def seed(self, names: Iterable[str]) -> None:
        """Add these supernodes to an empty database; otherwise keep what it has. Run at start."""
        with self._store.transaction() as session:
            head = get_head(session)
            if head.name:
                return
            built = [Supernode(name, topology=self._topology) for name in names]
            for supernode in built:
                self._enrol(session, supernode)
            record_version(session, head, Topology(self._fingerprints(session, built)), by="start")

    def ensure_supernode(self, name: str, request: SupernodeRequest, *, by: str) -> SupernodeView:
        """Add a supernode of that name, wired by that graph, with its nodes enrolled and empty; or update it. Raises
        Conflict if it exists with another spec, or if allocations hold nodes that the new graph lacks; InvalidField if
        spec, graph or name are not valid."""
        spec = self._spec if request.spec is None else _parse_spec(request.spec)
        topology = self._topology if request.spec is None else compile_spec(spec)
        if request.graph is not None:
            topology = compile_document(request.graph, spec)
        with self._store.transaction() as session:
            head, before = get_head(session), topology_at(session)
            row = session.get(SupernodeRow, name)
            if name in before.supernodes:
                assert row is not None
                built = supernode_at(session, name)
                if request.spec is not None and built.spec.fingerprint != spec.fingerprint:
                    raise Conflict(f"{name} exists with another spec; remove it first", field="spec")
                if "labels" in request.model_fields_set and row.labels != request.labels:
                    row.labels, row.generation = request.labels, row.generation + 1
                if request.graph is not None and topology.fingerprint != before.supernodes[name]:
                    emptied = self._redraw(session, built, Supernode(name, topology=topology))
                    after = {**before.supernodes, name: store_graph(session, topology)}
                    left, closed = before.deviations - before.restricted_to(name).deviations, before.closed - emptied
                    redrawn = replace(before, supernodes=after, closed=closed, deviations=left)
                    record_version(session, head, redrawn, by=by)
            else:
                _check_fits(name, spec, supernodes(session))
                added = Supernode(name, topology=topology)
                row = self._enrol(session, added)
                row.labels = request.labels
                after = {**before.supernodes, **self._fingerprints(session, [added])}
                record_version(session, head, replace(before, supernodes=after), by=by)
            nodes = [node for node in self._store.nodes(session) if node.supernode == name]
        return row.view_of(nodes)

    def _redraw(self, session: Session, before: Supernode, after: Supernode) -> set[str]:
        """Change nodes and domains to another graph of the same supernode. Return the cabinets that it no longer has.
        What was found of its ports is compared with the new graph and settles again: agents only report changes of
        ports, and would not repeat it."""
        if before.spec.fingerprint != after.spec.fingerprint:
            raise Conflict(f"{before.name} exists with another spec; remove it first", field="spec")
        gone = set(before.nodes()) - set(after.nodes())
        holders = [(node, holder) for node in sorted(gone) for holder in allocations_on(session, node)]
        if holders:
            blocking = [{"domain": node, "allocations": [holder]} for node, holder in holders]
            raise Conflict(
                f"{holders[0][1]} is placed on {holders[0][0]}, which the new graph lacks", blocking=blocking
            )
        _check_not_promised(session, before.name, gone, "the new graph lacks some of its nodes")
        for node in gone:
            session.delete(find(session, NodeRow, node))
        node_inventories.delete_inventories(session, gone)
        emptied = set(before.compute_cabinets()) - set(after.compute_cabinets())
        for cabinet in emptied:
            session.delete(find(session, DomainRow, cabinet))
        for row in session.scalars(select(ObservedPortsRow).where(ObservedPortsRow.supernode == before.name)):
            if row.node in gone:
                session.delete(row)
            else:
                otherwise = {port: each.seen for port, each in row.read().items() if not each.usual}
                row.write(record_report({}, otherwise, as_built(after.links(row.node)), self._clock.now()))
                row.digest = ""
        session.flush()
        self._enrol(session, after)
        return emptied

    def remove_supernode(self, name: str, *, by: str) -> None:
        """Remove a supernode in which nothing is held or promised. Raises Conflict with the holders in `blocking`.

        The assignments of its nodes are kept: if it ever returns, their generations continue, so that no agent mistakes
        an old spec for a new one.
        """
        with self._store.transaction() as session:
            head, before = get_head(session), topology_at(session)
            row = find(session, SupernodeRow, name)
            holders = allocations_in(session, name)
            if holders:
                blocking = [{"domain": name, "allocations": holders}]
                raise Conflict(
                    f"{name} holds {pluralized(len(holders), 'allocation')}; release or move what is placed there",
                    blocking=blocking,
                )
            inside: list[Any] = [node for node in self._store.nodes(session) if node.supernode == name]
            _check_not_promised(session, name, {node.name for node in inside}, "it is to be removed")
            for kind in (DomainRow, ObservedPortsRow):
                inside += session.scalars(select(kind).where(kind.supernode == name))
            node_inventories.delete_inventories(session, [each.name for each in inside if isinstance(each, NodeRow)])
            for each in (*inside, row):
                session.delete(each)
            mine = before.restricted_to(name)
            after = Topology(
                {other: spec for other, spec in before.supernodes.items() if other != name},
                before.closed - mine.closed,
                before.deviations - mine.deviations,
            )
            record_version(session, head, after, by=by)

    def close(self, name: str, *, by: str, reason: str = "", drain: bool = False) -> DomainView:
        """Accept nothing new in a cabinet or supernode; with `drain`, allocations there are to leave."""
        return self._set_domain_state(name, "Draining" if drain else "Closed", by, reason)

    def open(self, name: str, *, by: str, reason: str = "") -> DomainView:
        """Accept new work again."""
        return self._set_domain_state(name, "Open", by, reason)

    def _set_domain_state(self, name: str, state: str, by: str, reason: str) -> DomainView:
        with self._store.transaction() as session:
            head, before = get_head(session), topology_at(session)
            row = find(session, DomainRow, name)
            if state == "Draining" and not allocations_in(session, name):
                state = "Drained"
            if row.state != state:
                row.state, row.closed, row.reason, row.by = state, state != "Open", reason, by
                row.generation += 1
                session.flush()
                closed_names = closed_cabinets(session)
                for node in self._store.nodes(session):
                    if node.supernode == row.supernode:
                        node.domain_closed = node.node_name.cabinet in closed_names
            closed = before.closed | {name} if row.closed else before.closed - {name}
            record_version(session, head, replace(before, closed=closed), by=by)
            allocations = row.view().allocations
        return row.view_of(allocations)

    def finish_drains(self) -> list[str]:
        """Mark draining domains as Drained once no allocation is left in them, so that their watchers learn of it. Runs
        periodically."""
        draining = [row.name for row in self._store.records.query_unless_known_empty(DomainRow, _draining_domains)]
        if not draining:
            return []
        with self._store.reading() as session:
            empty = {name for name in draining if not allocations_in(session, name)}
        if not empty:
            return []
        with self._store.transaction() as session:
            done = [
                row for row in _draining_domains(session) if row.name in empty and not allocations_in(session, row.name)
            ]
            for row in done:
                row.state = "Drained"
            return sorted(row.name for row in done)

    # -- by what agents report -----------------------------------------------------------------------------------

    def observe(self, session: Session, node: str, ports: Mapping[str, str | None]) -> None:
        """Record the neighbours of a node's ports (None: dark). Differences make a version once they have settled
        (`reconcile`).

        Ports are named as in the layout (`ub-p3-k11`, `npu5-die1-p2`); nothing is concluded from a port that is left
        out. An unknown node is ignored.
        """
        row = session.get(ObservedPortsRow, node)
        digest = hashlib.sha256(json.dumps(sorted(ports.items())).encode()).hexdigest()
        if row is not None and row.digest == digest:
            return
        known = session.get(NodeRow, node)
        if known is None:
            return
        if row is None:
            row = ObservedPortsRow(node=node, supernode=known.supernode, ports={})
            session.add(row)
        built = supernode_at(session, known.supernode)
        row.digest = digest
        row.write(record_report(row.read(), ports, as_built(built.links(node)), self._clock.now()))

    def reconcile(self) -> str | None:
        """Make a version of the changes that have been stable for long enough. Return its name, or None. Runs
        periodically."""
        now = self._clock.now()
        with self._store.reading() as session:
            if not adoption_due(_unsettled_ports(session), now):
                return None
        with self._store.transaction() as session:
            head, before = get_head(session), topology_at(session)
            moving = session.scalars(select(ObservedPortsRow).where(ObservedPortsRow.moving)).all()
            for row in moving:
                row.write(adopt_settled(row.read(), now))
            session.flush()
            found = before.deviations
            built = supernodes(session)
            for name in sorted({row.supernode for row in moving}):
                found = found - before.restricted_to(name).deviations | _observed_deviations(session, built[name])
            earlier, name = head.name, record_version(session, head, replace(before, deviations=found), by="agents")
            return name if name != earlier else None

    # -- parts of verbs ------------------------------------------------------------------------------------------

    def _enrol(self, session: Session, supernode: Supernode) -> SupernodeRow:
        """Insert the rows of a supernode, its nodes and its domains that do not exist yet."""
        node = supernode.spec.node
        row = session.get(SupernodeRow, supernode.name)
        if row is None:
            row = SupernodeRow(name=supernode.name, state="Active", topology_version="")
            session.add(row)
        row.cabinets = len(supernode.cabinets())
        row.npus_per_node, row.cpus_per_node = node.npus, node.cpus
        added = []
        for name in supernode.nodes():
            if session.get(NodeRow, name) is not None:
                continue
            desired = session.get(AssignmentRow, name)
            if desired is None:
                desired = AssignmentRow(name=name, generation=1, state="Wanted", desired_role="Clean", parts=[])
                session.add(desired)
            added.append(_new_node(name, supernode, desired.generation))
        session.add_all(domain for domain in new_domains(supernode) if session.get(DomainRow, domain.name) is None)
        session.flush()
        closed = closed_cabinets(session)
        for each in added:
            each.domain_closed = each.node_name.cabinet in closed
        session.add_all(added)
        session.flush()
        return row

    def _fingerprints(self, session: Session, built: Iterable[Supernode]) -> dict[str, str]:
        return {supernode.name: store_graph(session, supernode.topology) for supernode in built}


def _new_node(name: str, supernode: Supernode, generation: int) -> NodeRow:
    return NodeRow(
        name=name,
        supernode=supernode.name,
        npus=supernode.spec.node.npus,
        cpus=supernode.spec.node.cpus,
        state="Enrolled",
        agent="Lost",
        desired_role="Clean",
        wanted_generation=generation,
        assignment_generation=generation,
    )


def _check_not_promised(session: Session, supernode: str, nodes: Set[str], why: str) -> None:
    """Raises Conflict if any of these nodes of a supernode is promised to a reservation, which would lose it."""
    reservations = reservations_on(session, nodes)
    if reservations:
        blocking = [{"domain": supernode, "reservations": reservations}]
        text = f"reservation {reservations[0]} is promised nodes of {supernode}, and {why}; delete the reservation"
        raise Conflict(text, blocking=blocking)


def _draining_domains(session: Session) -> list[DomainRow]:
    return list(session.scalars(select(DomainRow).where(DomainRow.state == "Draining")))


def _unsettled_ports(session: Session) -> list[Any]:
    rows = session.scalars(select(ObservedPortsRow).where(ObservedPortsRow.moving))
    return [port for row in rows for port in row.read().values() if port.moving]


def _observed_deviations(session: Session, supernode: Supernode) -> frozenset[Any]:
    rows = session.scalars(select(ObservedPortsRow).where(ObservedPortsRow.supernode == supernode.name)).all()
    connected = select(NodeRow.name).where(NodeRow.supernode == supernode.name, NodeRow.agent == "Connected")
    return find_deviations(supernode, {row.node: row.adopted_peers() for row in rows}, set(session.scalars(connected)))


def _parse_spec(document: Mapping[str, Any]) -> SupernodeSpec:
    try:
        return parse_spec(document)
    except InvalidSpec as wrong:
        raise InvalidField(wrong.message, field=f"spec.{wrong.field}".rstrip(".")) from wrong


def _check_fits(name: str, spec: SupernodeSpec, others: Mapping[str, Supernode]) -> None:
    """Raises InvalidField for a name or spec that this machine cannot have."""
    validate_supernode_name(name)
    for other, path in product(others.values(), SHARED_FIGURES):
        figure, other_figure = _figure(spec, path), _figure(other.spec, path)
        if figure != other_figure:
            raise InvalidField(
                f"{figure} differs from the {other_figure} of {other.name}; all supernodes must be alike",
                field=f"spec.{path}",
            )


def _figure(spec: SupernodeSpec, path: str) -> int:
    section, _, figure = path.partition(".")
    return int(getattr(getattr(spec, section), figure))
