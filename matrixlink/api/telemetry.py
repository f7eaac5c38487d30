"""Routes for telemetry: rates by link, switch, node, plane, slice or project; the busiest of them; and as a stream.

GET /v1/telemetry?by=link&top=10&filter=plane=ub
GET /v1/telemetry?by=slice&orderBy=droppedGbps desc
GET /v1/telemetry?by=plane&watch=true
GET /v1/planes/ub/matrix?supernode=sn0
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Hashable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from matrixcommon.api.json_answer import JsonResponse
from matrixcommon.api.list_params import ListParams, Params
from matrixcommon.api.listing import page
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.api.watch_stream import BOOKMARK_PERIOD_WALL_S, event, event_stream
from matrixcommon.model.errors import InvalidField
from matrixlink.api.access import PLANES, TELEMETRY
from matrixlink.contract.telemetry import LinkMatrixView
from matrixlink.telemetry.views import GROUPS, Telemetry

POLL_PERIOD_WALL_S = 0.25
"""How often a stream checks whether reports brought anything new."""
TOP_BY = "utilisation desc"


def telemetry_routes(telemetry: Telemetry) -> APIRouter:
    api = ResourceRoutes()
    rendered: dict[tuple[int, Hashable], bytes] = {}
    """Events of the newest version, by what their readers asked for."""

    @api.of(PLANES).ask("GET /matrix", summary="Every link of a plane of one supernode, with its state and utilisation")
    async def get_matrix(name: str, supernode: Annotated[str, Query(max_length=63)] = "sn0") -> LinkMatrixView:
        return telemetry.matrix(name, supernode)

    @api.of(TELEMETRY).ask("LIST")
    async def show(
        request: Request,
        params: Params,
        by: Annotated[str, Query(description=", ".join(GROUPS))] = "link",
        top: Annotated[int | None, Query(ge=1, le=1000, description="limit to this many, busiest first")] = None,
    ) -> Response:
        if by not in GROUPS:
            raise InvalidField(f"cannot group by {by[:40]!r}; use one of {', '.join(GROUPS)}", field="by")
        if params.watch:
            return event_stream(request, _stream(params, by, top))
        return JsonResponse(_shown(params, by, top))

    def _shown(params: ListParams, by: str, top: int | None) -> dict[str, Any]:
        if top is not None:
            params.order_by, params.page_size, params.page_token = params.order_by or TOP_BY, top, None
        found = page([view.wire() for view in telemetry.by(by)], params)
        if top is not None:
            found.pop("nextPageToken", None)
        return found | {"by": by, "resourceVersion": telemetry.rates.version}

    async def _stream(params: ListParams, by: str, top: int | None) -> AsyncIterator[bytes]:
        """The present state, and again whenever reports changed it; a bookmark after each, and when nothing changed for
        long."""
        loop, sent, silent_since = asyncio.get_running_loop(), -1, 0.0
        while True:
            version = telemetry.rates.version
            if version != sent:
                sent, silent_since = version, -math.inf
                yield _rendered(version, params, by, top)
            if loop.time() - silent_since >= BOOKMARK_PERIOD_WALL_S:
                silent_since = loop.time()
                yield event("BOOKMARK", version, "{}")
            await asyncio.sleep(POLL_PERIOD_WALL_S)

    def _rendered(version: int, params: ListParams, by: str, top: int | None) -> bytes:
        """The event of this version, rendered once for all who watch the same."""
        key = version, params.watched
        if key not in rendered:
            for older in [each for each in rendered if each[0] != version]:
                del rendered[older]
            body = json.dumps(_shown(replace(params, watch=False), by, top))
            rendered[key] = event("MODIFIED", version, body)
        return rendered[key]

    return api.router
