"""ComputeClient: MatrixCompute's verbs over HTTP, for the operator and matrixctl."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from matrixcompute.contract import InstanceRequest, InstanceView
from matrixresource.vocabulary.calls import WatchEvent, call, watch
from matrixresource.vocabulary.errors import NotFound


class ComputeClient:
    """Each verb raises the MatrixError that the service raised, or Unavailable."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ensure_instance(
        self, name: str, request: InstanceRequest, validate_only: bool = False, leaving: Sequence[str] = ()
    ) -> InstanceView:
        """With `validate_only` nothing is created; the view's members are where it would lie.

        `leaving` names the members that go where it shrinks.
        """
        params: dict[str, Any] = {"leaving": list(leaving)} if leaving else {}
        if validate_only:
            params["validateOnly"] = "true"
        answer = await call(self._http, "PUT", f"/v1/instances/{name}", body=request.wire(), params=params)
        return InstanceView.model_validate(answer)

    async def find_instance(self, name: str) -> InstanceView | None:
        try:
            return InstanceView.model_validate(await call(self._http, "GET", f"/v1/instances/{name}"))
        except NotFound:
            return None

    async def instances(self) -> list[InstanceView]:
        answer = await call(self._http, "GET", "/v1/instances")
        return [InstanceView.model_validate(item) for item in answer["items"]]

    async def delete_instance(self, name: str) -> bool:
        """Ask for deletion; True where there is no such instance (any more)."""
        try:
            await call(self._http, "DELETE", f"/v1/instances/{name}")
        except NotFound:
            return True
        return False

    async def events(self, instance: str) -> list[dict[str, Any]]:
        answer = await call(self._http, "GET", "/v1/events", params={"filter": f"instance={instance}"})
        return list(answer["items"])

    def watch(self, collection: str, since: int | None) -> AsyncIterator[WatchEvent]:
        """Events of `instances`, `operations` or `events`."""
        return watch(self._http, f"/v1/{collection}", since=since)
