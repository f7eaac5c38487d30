"""MatrixLink's client with the verbs that only tests and benchmarks ask for."""

from __future__ import annotations

import contextlib
from typing import Any

from matrixcommon.api.client import call, list_all, resource_path
from matrixcommon.model.errors import NotFound
from matrixlink.client import LinkClient
from matrixlink.contract.communicators import (
    CommunicatorRequest,
    CommunicatorView,
    FlowChangeView,
    FlowView,
    ForwardingEntryView,
)
from matrixlink.contract.what_if import WhatIfRequest, WhatIfView
from matrixlink.fabric.condition.fabric_view import FabricView


class FullLinkClient(LinkClient):
    async def slice_fabric_view(self, slice: str) -> FabricView:
        return FabricView.model_validate(await call(self._http, "GET", resource_path("slices", slice, "/fabric-view")))

    async def ensure_communicator(
        self, name: str, request: CommunicatorRequest, validate_only: bool = False
    ) -> CommunicatorView:
        """Have named traffic of a slice as requested; the same spec again is no news."""
        path = resource_path("communicators", name)
        return await self._ask(CommunicatorView, "PUT", path, request, validate_only=validate_only)

    async def find_communicator(self, name: str) -> CommunicatorView | None:
        return await self._find(CommunicatorView, resource_path("communicators", name))

    async def communicators(self) -> list[CommunicatorView]:
        return await self._all(CommunicatorView, "communicators")

    async def delete_communicator(self, name: str) -> None:
        """Gone afterwards, whether it was there or not."""
        with contextlib.suppress(NotFound):
            await call(self._http, "DELETE", resource_path("communicators", name))

    async def communicator_flows(self, name: str) -> list[FlowView]:
        """Every flow with its path and rate, all pages."""
        return [
            FlowView.model_validate(item)
            for item in await list_all(self._http, resource_path("communicators", name, "/flows"))
        ]

    async def communicator_changes(self, name: str) -> list[FlowChangeView]:
        """The flows that the last event changed, all pages."""
        return [
            FlowChangeView.model_validate(item)
            for item in await list_all(self._http, resource_path("communicators", name, "/changes"))
        ]

    async def forwarding_entries(self, switch: str) -> list[ForwardingEntryView]:
        """The table of one UB chip, all pages."""
        items = await list_all(self._http, "/v1/forwarding-tables", {"switch": switch})
        return [ForwardingEntryView.model_validate(item) for item in items]

    async def links(self, plane: str | None = None, node: str | None = None) -> list[dict[str, Any]]:
        """Links by plane and node, as their views' JSON, all pages."""
        narrowed = {key: value for key, value in (("plane", plane), ("node", node)) if value}
        return await list_all(self._http, "/v1/links", narrowed)

    async def what_if(self, asked: WhatIfRequest) -> WhatIfView:
        """What would become of the slices; nothing changes."""
        return await self._ask(WhatIfView, "POST", "/v1/what-ifs", asked)
