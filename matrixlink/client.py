"""LinkClient: MatrixLink's verbs over HTTP, for the other services and the agents."""

from __future__ import annotations

from matrixcommon.api.client import ServiceClient, at
from matrixlink.contract.slices import LinkReport, LinkReportAnswer, SliceRequest, SliceView
from matrixlink.fabric.condition.fabric_view import FabricView


class LinkClient(ServiceClient):
    """It also watches `slices`, `programs`, `links` and `communicators`."""

    async def admit(self, name: str, request: SliceRequest, validate_only: bool = False) -> SliceView:
        """Have a slice promised as requested; the same spec again is no news."""
        return await self._ask(SliceView, "PUT", at("slices", name), request, validate_only=validate_only)

    async def program(self, name: str) -> SliceView:
        """Have the members' agents asked for the present generation."""
        return await self._ask(SliceView, "POST", at("slices", name, ":program"))

    async def withdraw(self, name: str) -> bool:
        """Ask for withdrawal; True once the slice is gone."""
        return await self._delete(at("slices", name))

    async def find_slice(self, name: str) -> SliceView | None:
        return await self._find(SliceView, at("slices", name))

    async def slices(self, filter: str | None = None) -> list[SliceView]:
        return await self._all(SliceView, "slices", filter)

    async def fabric_view(self, instance: str) -> FabricView | None:
        """What an instance may use on all its planes now; None while it has no slice."""
        return await self._find(FabricView, at("fabric-views", instance))

    async def report(self, reports: list[LinkReport]) -> list[LinkReportAnswer]:
        return await self._report(LinkReportAnswer, "/v1/link-reports", reports)
