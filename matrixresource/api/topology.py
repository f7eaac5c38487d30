"""Supernodes, domains and topology versions over HTTP: one call in, one view out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from matrixcommon.api.listing import IfMatch, Params, ValidateOnly, list_or_watch
from matrixcommon.model.errors import InvalidField, NotFound
from matrixcommon.persistence.database_session import find
from matrixresource.contract.nodes import SupernodeView
from matrixresource.contract.topology import (
    DomainRequest,
    DomainView,
    SupernodeRequest,
    SupernodeWiring,
    TopologyVersionView,
)
from matrixresource.store.maintenance_domains import DomainRow, lying
from matrixresource.store.store import ResourceStore
from matrixresource.store.tables import NodeRow, SupernodeRow
from matrixresource.store.topology_versions import (
    TopologyVersionRow,
    current_version,
    supernodes,
    topology_at,
    versions,
)
from matrixresource.supernodes.topology_manager import TopologyManager
from matrixresource.topology.observed_graph import graph_as_found, graphml, node_link
from matrixresource.topology.supernode import Supernode

Drain = Annotated[bool, Query(description="whoever lies there is to leave; nobody is moved by MatrixResource itself")]


def topology_routes(store: ResourceStore, surveyor: TopologyManager, replenish: Callable[[], None]) -> APIRouter:
    """The routes over one store. `replenish` nudges the watcher that refills spares."""
    api = APIRouter(prefix="/v1")

    @api.get("/supernodes")
    async def list_supernodes(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "supernode", _supernodes)

    def _supernodes() -> list[SupernodeView]:
        with store.reading() as session:
            nodes: dict[str, list[NodeRow]] = defaultdict(list)
            for node in store.nodes(session):
                nodes[node.supernode].append(node)
            return [row.view_of(nodes[row.name]) for row in store.supernodes(session)]

    @api.get("/supernodes/{name}")
    async def get_supernode(name: str) -> SupernodeView:
        with store.reading() as session:
            row = session.get(SupernodeRow, name)
            if row is None:
                raise NotFound(f"there is no supernode named {name!r}", field="name")
            return row.view_of([node for node in store.nodes(session) if node.supernode == name])

    @api.put("/supernodes/{name}")
    async def ensure_supernode(
        request: Request,
        name: str,
        body: SupernodeRequest,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> Response:
        """Have this supernode in the inventory. With `validateOnly` 204: it could be had."""
        surveyor.ensure_supernode(name, body, by=_who(request), if_match=if_match, dry=validate_only)
        if validate_only:
            return Response(status_code=204)
        replenish()
        return JSONResponse((await get_supernode(name)).wire())

    @api.delete("/supernodes/{name}", status_code=204)
    async def remove_supernode(
        request: Request, name: str, if_match: IfMatch = None, validate_only: ValidateOnly = False
    ) -> None:
        """Take it out of the inventory; refused while anything is held there."""
        surveyor.remove_supernode(name, by=_who(request), if_match=if_match, dry=validate_only)

    @api.get("/supernodes/{name}/topology")
    async def get_topology(
        name: str,
        format: Annotated[str, Query(description="node-link or graphml")] = "node-link",
        level: Annotated[str, Query(description="package, die, or model: the graph itself")] = "package",
        version: Annotated[str | None, Query(description="as of this topology version; without it, now")] = None,
    ) -> Response:
        if level not in ("package", "die", "model"):
            raise InvalidField(f"{level!r} is no level; use package, die or model", field="level")
        if format not in ("node-link", "graphml"):
            raise InvalidField(f"{format!r} is no format; use node-link or graphml", field="format")
        with store.reading() as session:
            graph, called = _graph(session, name, level, version)
        if format == "graphml":
            return PlainTextResponse(graphml(graph), media_type="application/graphml+xml")
        return JSONResponse({"topologyVersion": called, "graph": node_link(graph)})

    @api.get("/supernodes/{name}/wiring")
    async def get_wiring(name: str) -> SupernodeWiring:
        """All that it takes to draw this supernode's graph as it is now: how MatrixLink and the agents learn it."""
        with store.reading() as session:
            supernode, version = _supernode(session, name, None), current_version(session)
            found = [each.local(name).wire() for each in topology_at(session).of(name).deviations]
        ordered = sorted(found, key=lambda each: (each["kind"], each["part"]))
        return SupernodeWiring(supernode=name, topology_version=version, found=ordered, **supernode.topology.document())

    def _graph(session: Session, name: str, level: str, version: str | None) -> tuple[Any, str]:
        supernode = _supernode(session, name, version)
        called = version or current_version(session)
        return graph_as_found(supernode, topology_at(session, version), called, level), called

    def _supernode(session: Session, name: str, version: str | None) -> Supernode:
        supernode = supernodes(session, version).get(name)
        if supernode is None:
            raise NotFound(
                f"there is no supernode named {name!r}" + (f" in {version}" if version else ""), field="name"
            )
        return supernode

    @api.get("/topology-versions")
    async def list_versions(request: Request, params: Params) -> Response:
        """The oldest first, unless `orderBy` says otherwise."""
        params.order_by = params.order_by or "number"
        return list_or_watch(request, params, store.records, "topology-version", _versions)

    def _versions() -> list[TopologyVersionView]:
        with store.reading() as session:
            return [row.view() for row in versions(session)]

    @api.get("/topology-versions/{name}")
    async def get_version(name: str) -> TopologyVersionView:
        """One version; `current` is the newest."""
        with store.reading() as session:
            return find(session, TopologyVersionRow, current_version(session) if name == "current" else name).view()

    @api.get("/domains")
    async def list_domains(request: Request, params: Params) -> Response:
        return list_or_watch(request, params, store.records, "domain", _domains)

    def _domains() -> list[DomainView]:
        with store.reading() as session:
            current = lying(session)
            rows = session.scalars(select(DomainRow).order_by(DomainRow.name))
            return [row.view_of(current.get(row.name, [])) for row in rows]

    @api.get("/domains/{name}")
    async def get_domain(name: str) -> DomainView:
        with store.reading() as session:
            return find(session, DomainRow, name).view()

    @api.post("/domains/{name}:close")
    async def close(
        request: Request,
        name: str,
        body: DomainRequest | None = None,
        drain: Drain = False,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> DomainView:
        """Take nothing new there; what runs continues."""
        reason = body.reason if body else ""
        by = _who(request)
        return surveyor.close(name, by=by, reason=reason, drain=drain, if_match=if_match, dry=validate_only)

    @api.post("/domains/{name}:open")
    async def open_domain(
        request: Request,
        name: str,
        body: DomainRequest | None = None,
        if_match: IfMatch = None,
        validate_only: ValidateOnly = False,
    ) -> DomainView:
        """Take newcomers there again."""
        reason = body.reason if body else ""
        view = surveyor.open(name, by=_who(request), reason=reason, if_match=if_match, dry=validate_only)
        replenish()
        return view

    return api


def _who(request: Request) -> str:
    """The name of the token that asks."""
    principal = getattr(request.state, "principal", None)
    return str(principal.name)[:63] if principal is not None else "anyone"
