"""ServiceClients: the services as a scenario uses them, over REST. Snapshot: what they showed at one moment.

A snapshot reads each collection once, however many conditions use it. A service that does not answer raises
Unavailable; conditions on it are then neither true nor false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import httpx

from matrixcommon.api.client import call, list_all, resource_path
from matrixcommon.model.errors import NotFound, Unavailable


class Processes(Protocol):
    """Injects faults into the control plane's own processes, if the stack is ours: matrixctl itself, or an executor
    called over REST. A fault is injected and cleared under the same name."""

    async def services(self) -> Sequence[str]:
        """The services into which faults can be injected; may be empty."""

    async def check(self, kind: str, service: str, parameters: Mapping[str, str]) -> None:
        """Raises InvalidField if this fault cannot be injected; the field is one of the parameters, or `fault`."""

    async def inject(self, name: str, kind: str, service: str, parameters: Mapping[str, str]) -> None: ...

    async def clear(self, name: str) -> None:
        """Clear the fault. Idempotent."""

    async def injected(self) -> Sequence[str]:
        """The names of faults not cleared yet, including those that an earlier process left."""

    async def observe(self, service: str) -> dict[str, Any]:
        """The real status of a service, in the fields that conditions may name."""


class ServiceClients:
    """`http`: clients by service (resource, link, compute, agents). Without `processes`, services cannot be faulted."""

    def __init__(self, http: Mapping[str, httpx.AsyncClient], processes: Processes | None = None) -> None:
        self._http = http
        self.processes = processes

    async def services(self) -> Sequence[str]:
        """The services into which faults can be injected; none without `processes`."""
        return [] if self.processes is None else await self.processes.services()

    def _client(self, service: str) -> httpx.AsyncClient:
        if service not in self._http:
            raise Unavailable(f"there is no {service} in this stack")
        return self._http[service]

    async def list_all(self, service: str, collection: str) -> list[dict[str, Any]]:
        return await list_all(self._client(service), f"/v1/{collection}")

    async def find(self, service: str, collection: str, key: str) -> dict[str, Any] | None:
        try:
            return await call(self._client(service), "GET", resource_path(collection, key))
        except NotFound:
            return None

    async def put(
        self, service: str, collection: str, key: str, body: dict[str, Any], *, validate_only: bool = False
    ) -> dict[str, Any]:
        params = {"validateOnly": "true"} if validate_only else None
        return await call(self._client(service), "PUT", resource_path(collection, key), body=body, params=params)

    async def delete(self, service: str, collection: str, key: str) -> None:
        """Delete a resource. Idempotent."""
        try:
            await call(self._client(service), "DELETE", resource_path(collection, key))
        except NotFound:
            return

    async def ready(self, service: str) -> bool:
        try:
            return (await self._client(service).get("/readyz")).status_code == 200
        except httpx.HTTPError:
            return False


class Snapshot:
    """Collections as read at one moment, each once."""

    def __init__(self, clients: ServiceClients) -> None:
        self.clients = clients
        self._collections: dict[tuple[str, str], list[dict[str, Any]]] = {}

    async def list_all(self, service: str, collection: str, *, refresh: bool = False) -> list[dict[str, Any]]:
        key = service, collection
        if refresh or key not in self._collections:
            self._collections[key] = await self.clients.list_all(service, collection)
        return self._collections[key]
