"""Routes for supernodes, domains and topology versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse
from sqlalchemy.orm import Session

from matrixcommon.api.authorization import Caller
from matrixcommon.api.json_answer import JsonResponse
from matrixcommon.api.resource_routes import KindRoutes, ResourceRoutes
from matrixcommon.model.errors import InvalidField, NotFound
from matrixcommon.persistence.database_session import find
from matrixresource.api import access
from matrixresource.contract.nodes import SupernodeView
from matrixresource.contract.topology import (
    DomainRequest,
    DomainView,
    SupernodeRequest,
    SupernodeWiring,
    TopologyVersionView,
)
from matrixresource.store.maintenance_domains import DomainRow, allocations_by_domain
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow, SupernodeRow
from matrixresource.store.topology_versions import TopologyVersionRow, current_version, supernodes, topology_at
from matrixresource.supernodes.topology_manager import TopologyManager
from matrixresource.topology.observed_graph import graphml, node_link, observed_graph
from matrixresource.topology.supernode import Supernode

Drain = Annotated[bool, Query(description="ask allocations there to leave; MatrixResource moves none itself")]


def topology_routes(
    store: ResourceStore, topology_manager: TopologyManager, replenish: Callable[[], None]
) -> APIRouter:
    """The routes over one store. `replenish` wakes the watcher that refills spares."""
    api = ResourceRoutes(store.records)
    kind = api.of(access.SUPERNODES)
    _supernodes(kind, store)
    _changes_of_supernodes(kind, topology_manager, replenish)
    _drawings(kind, store)
    _versions(api.of(access.TOPOLOGY_VERSIONS), store)
    domains = api.of(access.DOMAINS)
    _domains(domains)
    _changes_of_domains(domains, topology_manager, replenish)
    return api.router


def _supernodes(kind: KindRoutes, store: ResourceStore) -> None:
    def views() -> list[SupernodeView]:
        with store.reading() as session:
            nodes: dict[str, list[NodeRow]] = defaultdict(list)
            for node in store.nodes(session):
                nodes[node.supernode].append(node)
            return [row.view_of(nodes[row.name]) for row in store.supernodes(session)]

    kind.list(views)

    def view(name: str) -> SupernodeView:
        with store.reading() as session:
            row = session.get(SupernodeRow, name)
            if row is None:
                raise NotFound(f"there is no supernode named {name!r}", field="name")
            return row.view_of([node for node in store.nodes(session) if node.supernode == name])

    kind.get(view)


def _changes_of_supernodes(kind: KindRoutes, topology_manager: TopologyManager, replenish: Callable[[], None]) -> None:
    @kind.change("PUT", after=replenish)
    def ensure_supernode(name: str, body: SupernodeRequest, caller: Caller) -> SupernodeView:
        """Add this supernode to the inventory, or update it."""
        return topology_manager.ensure_supernode(name, body, by=_who(caller))

    @kind.change("DELETE")
    def remove_supernode(name: str, caller: Caller) -> None:
        """Remove it from the inventory; refused while anything is held there."""
        topology_manager.remove_supernode(name, by=_who(caller))


def _drawings(kind: KindRoutes, store: ResourceStore) -> None:
    """A supernode's graph, for people and for programs."""

    @kind.ask("GET /topology")
    async def get_topology(
        name: str,
        format: Annotated[str, Query(description="node-link or graphml")] = "node-link",
        level: Annotated[str, Query(description="package, die, or model: the graph itself")] = "package",
        version: Annotated[str | None, Query(description="as of this topology version; by default the newest")] = None,
    ) -> Response:
        if level not in ("package", "die", "model"):
            raise InvalidField(f"{level!r} is not a level; use package, die or model", field="level")
        if format not in ("node-link", "graphml"):
            raise InvalidField(f"{format!r} is not a format; use node-link or graphml", field="format")
        with store.reading() as session:
            supernode, called = _supernode(session, name, version), version or current_version(session)
            graph = observed_graph(supernode, topology_at(session, version), called, level)
        if format == "graphml":
            return PlainTextResponse(graphml(graph), media_type="application/graphml+xml")
        return JsonResponse({"topologyVersion": called, "graph": node_link(graph)})

    @kind.ask("GET /wiring")
    async def get_wiring(name: str) -> SupernodeWiring:
        """Everything needed to draw this supernode's graph as it is now; MatrixLink and the agents read it here."""
        with store.reading() as session:
            supernode, version = _supernode(session, name, None), current_version(session)
            found = [each.unqualified(name).wire() for each in topology_at(session).restricted_to(name).deviations]
        ordered = sorted(found, key=lambda each: (each["kind"], each["part"]))
        return SupernodeWiring(supernode=name, topology_version=version, found=ordered, **supernode.topology.document())


def _versions(versions: KindRoutes, store: ResourceStore) -> None:
    versions.list(order_by="number", description="Oldest first, unless `orderBy` says otherwise.")

    def version_view(name: str) -> TopologyVersionView:
        with store.reading() as session:
            return find(session, TopologyVersionRow, current_version(session) if name == "current" else name).view()

    versions.get(version_view, description="One version; `current` is the newest.")


def _domains(domains: KindRoutes) -> None:
    domains.get()

    def shown(session: Session, rows: Sequence[DomainRow]) -> list[DomainView]:
        current = allocations_by_domain(session) if rows else {}
        return [row.view_of(current.get(row.name, [])) for row in sorted(rows, key=lambda row: row.name)]

    domains.list(rows_shown=shown)


def _changes_of_domains(domains: KindRoutes, topology_manager: TopologyManager, replenish: Callable[[], None]) -> None:
    @domains.change("POST :close")
    def close(name: str, caller: Caller, body: DomainRequest | None = None, drain: Drain = False) -> DomainView:
        """Close the domain: it accepts nothing new, and what runs there continues."""
        return topology_manager.close(name, by=_who(caller), reason=body.reason if body else "", drain=drain)

    @domains.change("POST :open", after=replenish)
    def open_domain(name: str, caller: Caller, body: DomainRequest | None = None) -> DomainView:
        """Open the domain for new work again."""
        return topology_manager.open(name, by=_who(caller), reason=body.reason if body else "")


def _supernode(session: Session, name: str, version: str | None) -> Supernode:
    supernode = supernodes(session, version).get(name)
    if supernode is None:
        raise NotFound(f"there is no supernode named {name!r}" + (f" in {version}" if version else ""), field="name")
    return supernode


def _who(caller: Caller) -> str:
    """The name of the calling token."""
    return caller.principal.name[:63]
