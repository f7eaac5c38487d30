"""LinkClient: MatrixLink's verbs over HTTP, for the other services and the agents."""

from __future__ import annotations

from matrixcommon.api.client import ServiceClient, list_all, resource_path
from matrixlink.contract.drains import DrainView
from matrixlink.contract.link_reports import LinkReport, LinkReportAnswer
from matrixlink.contract.slices import SliceRequest, SliceView
from matrixlink.contract.what_if import WhatIfView
from matrixlink.fabric.condition.fabric_view import FabricView


class LinkClient(ServiceClient):
    """It also provides watches of `slices`, `programs`, `links` and `communicators`."""

    async def admit(self, name: str, request: SliceRequest, validate_only: bool = False) -> SliceView:
        """Admit a slice or change it; repeating the same spec changes nothing."""
        return await self._ask(SliceView, "PUT", resource_path("slices", name), request, validate_only=validate_only)

    async def program(self, name: str) -> SliceView:
        """Have the members' agents program the present generation."""
        return await self._ask(SliceView, "POST", resource_path("slices", name, ":program"))

    async def withdraw(self, name: str) -> bool:
        """Request the withdrawal; return True once the slice is gone."""
        return await self._delete(resource_path("slices", name))

    async def find_slice(self, name: str) -> SliceView | None:
        return await self._find(SliceView, resource_path("slices", name))

    async def slices(self, filter: str | None = None) -> list[SliceView]:
        return await self._all(SliceView, "slices", filter)

    async def knows_switch(self, name: str) -> bool:
        return bool(await list_all(self._http, "/v1/switches", filter=f"name={name}"))

    async def evaluate_drain(self, elements: list[str]) -> WhatIfView:
        """The effect on slices of draining these elements; nothing is changed."""
        return await self._ask(WhatIfView, "POST", "/v1/what-ifs", {"drain": elements})

    async def ensure_drain(self, name: str, elements: list[str], reason: str) -> DrainView:
        """Take these elements out of use, make before break."""
        return await self._ask(
            DrainView, "PUT", resource_path("drains", name), {"elements": elements, "reason": reason}
        )

    async def find_drain(self, name: str) -> DrainView | None:
        return await self._find(DrainView, resource_path("drains", name))

    async def delete_drain(self, name: str) -> bool:
        """Return the drain's elements to service; True once the drain is gone."""
        return await self._delete(resource_path("drains", name))

    async def fabric_view(self, instance: str) -> FabricView | None:
        """What an instance may use on all its planes now; None while it has no slice."""
        return await self._find(FabricView, resource_path("fabric-views", instance))

    async def report(self, reports: list[LinkReport]) -> list[LinkReportAnswer]:
        return await self._report(LinkReportAnswer, "/v1/link-reports", reports)
