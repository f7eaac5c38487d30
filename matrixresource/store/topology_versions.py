"""The history of the topology: one row per version, immutable except for being superseded, and deleted some time after
that.

Each version holds the whole content, and specs are stored by fingerprint, so any version can be rebuilt from its own
row. A version is recorded in the transaction of the change that makes it. `topology_head` is the single row that names
the newest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import JSON, Integer, String, Text, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from matrixcommon.model.errors import NotFound, StaleTopology
from matrixcommon.model.hardware_names import SupernodeName
from matrixcommon.persistence.database_session import ResourceRow, find
from matrixresource.contract.topology import TopologyVersionView
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.defragmentations import DefragmentationRow
from matrixresource.store.tables import Base, SupernodeRow
from matrixresource.topology.compiled import GRAPHS_KEPT, CompiledTopology, compile_stored
from matrixresource.topology.spec import SupernodeSpec
from matrixresource.topology.supernode import Supernode
from matrixresource.topology.versions import Topology, is_valid_on, list_changes, summarise_changes


class TopologyHeadRow(Base):
    """The newest version's number and name; number 0 and no name before the first."""

    __tablename__ = "topology_head"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(Integer)
    name: Mapped[str] = mapped_column(String(63))


class SpecRow(Base):
    """A graph by its fingerprint: the numbers of its spec, and how its drawing deviates from them. The sources of the
    figures stay in the original file."""

    __tablename__ = "topology_specs"

    fingerprint: Mapped[str] = mapped_column(String(12), primary_key=True)
    numbers: Mapped[str] = mapped_column(Text)
    drawn: Mapped[str] = mapped_column(Text, default="[]")


class TopologyVersionRow(ResourceRow, Base):
    """One version."""

    __tablename__ = "topology_versions"
    kind = "topology-version"

    number: Mapped[int] = mapped_column(Integer, unique=True)
    by: Mapped[str] = mapped_column(String(63))
    changes: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    topology: Mapped[dict[str, Any]] = mapped_column(JSON)

    def view(self) -> TopologyVersionView:
        return self.view_as(TopologyVersionView, summary=summarise_changes(self.changes))


def current_version(session: Session) -> str:
    """The name of the newest version; empty before the first."""
    head = session.get(TopologyHeadRow, 1)
    return "" if head is None else head.name


def checked_version(session: Session, requested: str | None) -> str:
    """The name of the newest version. Raises StaleTopology if `requested` is a version with different content."""
    current = current_version(session)
    if not is_valid_on(requested, current):
        text = f"the topology is now {current!r}; plan again on that version"
        raise StaleTopology(text, field="topologyVersion")
    return current


def topology_at(session: Session, version: str | None = None) -> Topology:
    """The content of a version, by default the newest. Raises NotFound."""
    if version is not None:
        row = session.get(TopologyVersionRow, version)
        if row is None:
            raise NotFound(f"there is no topology version {version[:80]!r}", field="version")
        return Topology.parse(row.topology)
    global _newest
    name = current_version(session)
    if not name:
        return Topology()
    if _newest[0] != name:
        _newest = name, Topology.parse(find(session, TopologyVersionRow, name).topology)
    return _newest[1]


_newest: tuple[str, Topology] = ("", Topology())
"""A cache of the version last read as the newest. A name includes the digest of the content, so it is valid for any
database; with many supernodes the content would otherwise be read for every report."""


def supernode_at(session: Session, name: str) -> Supernode:
    """One existing supernode, as it is built now."""
    return Supernode(name, topology=graph_of(session, topology_at(session).supernodes[name]))


def supernodes(session: Session, version: str | None = None) -> dict[str, Supernode]:
    """The supernodes of a version, by default the newest, in the order of their numbers. Raises NotFound."""
    specs = topology_at(session, version).supernodes
    ordered = sorted(specs, key=lambda name: SupernodeName(name).part("supernode"))
    return {name: Supernode(name, topology=graph_of(session, specs[name])) for name in ordered}


def observed_supernodes(session: Session, version: str | None = None) -> dict[str, Supernode]:
    """The same, with the deviations that agents found."""
    topology = topology_at(session, version)
    built = supernodes(session, version)
    return {
        name: supernode.with_deviations(topology.restricted_to(name).deviations) for name, supernode in built.items()
    }


def spec_at(session: Session, supernode: str) -> SupernodeSpec:
    """The spec of an existing supernode."""
    return graph_of(session, topology_at(session).supernodes[supernode]).spec


def specs_at(session: Session, supernodes: Iterable[str]) -> dict[str, SupernodeSpec]:
    """The specs of these supernodes, each looked up once."""
    return {name: spec_at(session, name) for name in dict.fromkeys(supernodes)}


def get_head(session: Session) -> TopologyHeadRow:
    """The head row. A writer holds the change log's lock, so nobody else changes the topology meanwhile."""
    head = session.get(TopologyHeadRow, 1)
    if head is None:
        head = TopologyHeadRow(id=1, number=0, name="")
        session.add(head)
    return head


def record_version(session: Session, head: TopologyHeadRow, after: Topology, *, by: str) -> str:
    """Make the next version, unless nothing changed. Return the name of the newest version."""
    before = topology_at(session)
    if head.name and after == before:
        return head.name
    if head.name:
        find(session, TopologyVersionRow, head.name).state = "Superseded"
    number = head.number + 1
    name = after.version_name(number)
    session.add(
        TopologyVersionRow(
            name=name,
            number=number,
            state="Current",
            by=by,
            changes=list_changes(before, after),
            topology=after.wire(),
        )
    )
    head.number, head.name = number, name
    for row in session.scalars(select(SupernodeRow)):
        row.topology_version = name
    session.flush()
    return name


def delete_superseded_versions(session: Session, before: float) -> int:
    """Delete versions that had been superseded by then (s, emulated), except those on which allocations or
    defragmentations were made, and graphs that no version has any more. Return how many versions."""
    old = select(TopologyVersionRow.name).where(
        TopologyVersionRow.state == "Superseded",
        TopologyVersionRow.updated_at < before,
        TopologyVersionRow.name.not_in(select(AllocationRow.topology_version)),
        TopologyVersionRow.name.not_in(select(DefragmentationRow.topology_version)),
    )
    names = session.scalars(old).all()
    for name in names:
        session.delete(find(session, TopologyVersionRow, name))
    if names:
        session.flush()
        versions = session.scalars(select(TopologyVersionRow.topology)).yield_per(100)
        needed = {graph for version in versions for graph in version["supernodes"].values()}
        for row in session.scalars(select(SpecRow).where(SpecRow.fingerprint.not_in(needed))):
            session.delete(row)
    return len(names)


def store_graph(session: Session, topology: CompiledTopology) -> str:
    """Store a graph; return its fingerprint."""
    if session.get(SpecRow, topology.fingerprint) is None:
        document = topology.document()
        numbers, drawn = json.dumps(document["spec"]), json.dumps(document["drawn"])
        session.add(SpecRow(fingerprint=topology.fingerprint, numbers=numbers, drawn=drawn))
    return topology.fingerprint


def graph_of(session: Session, fingerprint: str) -> CompiledTopology:
    """The compiled graph of that fingerprint, shared by all identical supernodes."""
    if (known := _graphs.pop(fingerprint, None)) is not None:
        return _graphs.setdefault(fingerprint, known)  # the last to go
    row = session.get(SpecRow, fingerprint)
    assert row is not None, f"no spec {fingerprint} in the database"
    graph = compile_stored({"spec": json.loads(row.numbers), "drawn": json.loads(row.drawn)})
    while len(_graphs) >= GRAPHS_KEPT:
        del _graphs[next(iter(_graphs))]
    return _graphs.setdefault(fingerprint, graph)


_graphs: dict[str, CompiledTopology] = {}
"""By fingerprint, which identifies the content: valid for any database."""
