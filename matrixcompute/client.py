"""ComputeClient: MatrixCompute's verbs over HTTP, for the operator and matrixctl."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from matrixcommon.api.client import WatchEvent, at, call, list_all, watch
from matrixcommon.model.errors import NotFound
from matrixcommon.model.resource_key import name_of, project_of
from matrixcompute.contract import InstanceRequest, InstanceView


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
        answer = await call(self._http, "PUT", at("instances", name), body=request.wire(), params=params)
        return InstanceView.model_validate(answer)

    async def find_instance(self, name: str) -> InstanceView | None:
        try:
            return InstanceView.model_validate(await call(self._http, "GET", at("instances", name)))
        except NotFound:
            return None

    async def instances(self) -> list[InstanceView]:
        return [InstanceView.model_validate(item) for item in await list_all(self._http, "/v1/instances")]

    async def delete_instance(self, name: str) -> bool:
        """Ask for deletion; True where there is no such instance (any more)."""
        try:
            await call(self._http, "DELETE", at("instances", name))
        except NotFound:
            return True
        return False

    async def events(self, instance: str) -> list[dict[str, Any]]:
        named = {"project": project_of(instance)}
        return await list_all(self._http, "/v1/events", named, filter=f"instance={name_of(instance)}")

    def watch(self, collection: str, since: int | None) -> AsyncIterator[WatchEvent]:
        """Events of `instances`, `operations` or `events`."""
        return watch(self._http, f"/v1/{collection}", since=since)
