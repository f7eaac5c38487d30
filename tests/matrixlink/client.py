"""MatrixLink's client with the verbs that only tests and benchmarks ask for."""

from __future__ import annotations

import contextlib

from matrixcommon.api.client import at, call, list_all
from matrixcommon.model.errors import NotFound
from matrixlink.client import LinkClient
from matrixlink.contract.communicators import (
    CommunicatorRequest,
    CommunicatorView,
    FlowChangeView,
    FlowView,
    ForwardingEntryView,
)
from matrixlink.fabric.condition.fabric_view import FabricView


class WholeLinkClient(LinkClient):
    async def slice_fabric_view(self, slice: str) -> FabricView:
        return FabricView.model_validate(await call(self._http, "GET", at("slices", slice, "/fabric-view")))

    async def ensure_communicator(
        self, name: str, request: CommunicatorRequest, validate_only: bool = False
    ) -> CommunicatorView:
        """Have named traffic of a slice as requested; the same spec again is no news."""
        params = {"validateOnly": "true"} if validate_only else None
        answer = await call(self._http, "PUT", at("communicators", name), body=request.wire(), params=params)
        return CommunicatorView.model_validate(answer)

    async def find_communicator(self, name: str) -> CommunicatorView | None:
        try:
            return CommunicatorView.model_validate(await call(self._http, "GET", at("communicators", name)))
        except NotFound:
            return None

    async def communicators(self) -> list[CommunicatorView]:
        items = await list_all(self._http, "/v1/communicators")
        return [CommunicatorView.model_validate(item) for item in items]

    async def delete_communicator(self, name: str) -> None:
        """Gone afterwards, whether it was there or not."""
        with contextlib.suppress(NotFound):
            await call(self._http, "DELETE", at("communicators", name))

    async def communicator_flows(self, name: str) -> list[FlowView]:
        """Every flow with its path and rate, all pages."""
        return [
            FlowView.model_validate(item) for item in await list_all(self._http, at("communicators", name, "/flows"))
        ]

    async def communicator_changes(self, name: str) -> list[FlowChangeView]:
        """The flows that the last event changed, all pages."""
        return [
            FlowChangeView.model_validate(item)
            for item in await list_all(self._http, at("communicators", name, "/changes"))
        ]

    async def forwarding_entries(self, switch: str) -> list[ForwardingEntryView]:
        """The table of one UB chip, all pages."""
        items = await list_all(self._http, "/v1/forwarding-tables", {"switch": switch})
        return [ForwardingEntryView.model_validate(item) for item in items]
