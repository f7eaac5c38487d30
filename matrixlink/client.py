"""LinkClient: MatrixLink's verbs over HTTP, for the other services, the agents and matrixctl."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx

from matrixcommon.api.client import WatchEvent, at, call, list_all, watch
from matrixcommon.model.errors import NotFound
from matrixlink.contract.slices import LinkReport, LinkReportAnswer, SliceRequest, SliceView
from matrixlink.contract.what_if import WhatIfRequest, WhatIfView
from matrixlink.fabric.condition.fabric_view import FabricView


class LinkClient:
    """Each verb raises the MatrixError that the service raised, or Unavailable."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def admit(self, name: str, request: SliceRequest, validate_only: bool = False) -> SliceView:
        """Have a slice promised as requested; the same spec again is no news."""
        params = {"validateOnly": "true"} if validate_only else None
        return SliceView.model_validate(
            await call(self._http, "PUT", at("slices", name), body=request.wire(), params=params)
        )

    async def program(self, name: str) -> SliceView:
        """Have the members' agents asked for the present generation."""
        return SliceView.model_validate(await call(self._http, "POST", at("slices", name, ":program")))

    async def withdraw(self, name: str) -> bool:
        """Ask for withdrawal; True once the slice is gone."""
        try:
            return await call(self._http, "DELETE", at("slices", name)) == {}
        except NotFound:
            return True

    async def find_slice(self, name: str) -> SliceView | None:
        try:
            return SliceView.model_validate(await call(self._http, "GET", at("slices", name)))
        except NotFound:
            return None

    async def slices(self, filter: str | None = None) -> list[SliceView]:
        items = await list_all(self._http, "/v1/slices", filter=filter)
        return [SliceView.model_validate(item) for item in items]

    async def fabric_view(self, instance: str) -> FabricView | None:
        """What an instance may use on all its planes now; None while it has no slice."""
        try:
            return FabricView.model_validate(await call(self._http, "GET", at("fabric-views", instance)))
        except NotFound:
            return None

    async def links(self, plane: str | None = None, node: str | None = None) -> list[dict[str, Any]]:
        """Links by plane and node, as their views' JSON, all pages."""
        narrowed = {key: value for key, value in (("plane", plane), ("node", node)) if value}
        return await list_all(self._http, "/v1/links", narrowed)

    async def what_if(self, asked: WhatIfRequest) -> WhatIfView:
        """What would become of the slices; nothing changes."""
        return WhatIfView.model_validate(await call(self._http, "POST", "/v1/what-ifs", body=asked.wire()))

    async def report(self, reports: list[LinkReport]) -> list[LinkReportAnswer]:
        body = {"reports": [report.wire() for report in reports]}
        answer = await call(self._http, "POST", "/v1/link-reports", body=body)
        return [LinkReportAnswer.model_validate(item) for item in answer["answers"]]

    def watch(self, collection: str, since: int | None) -> AsyncIterator[WatchEvent]:
        """Changes of `slices`, `programs`, `links` or `communicators`; from the present state where `since` is None."""
        return watch(self._http, f"/v1/{collection}", since=since)
