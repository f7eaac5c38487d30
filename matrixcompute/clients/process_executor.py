"""ProcessExecutor: the REST client of the executor that injects process faults for scenarios run by MatrixCompute.

If there is no executor, there are no services to inject faults into, and such a scenario is refused before anything is
changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from matrixcommon.api.client import call, list_all, resource_path
from matrixcommon.model.errors import InvalidField, NotFound

OWN_SERVICE = "compute"
FIELD_NAMES = {"kind": "fault"}
"""Fields of the executor's request, and their names in an action of a scenario."""


class ProcessExecutor:
    """`Processes` of scenarios, through the service of the emulated nodes."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def services(self) -> Sequence[str]:
        try:
            return [each["name"] for each in await list_all(self._http, "/v1/processes")]
        except NotFound:
            return []  # an earlier release

    async def check(self, kind: str, service: str, parameters: Mapping[str, str]) -> None:
        if service == OWN_SERVICE:
            raise InvalidField(
                f"{OWN_SERVICE} plays this run and could not look meanwhile; "
                "`matrixctl scenario run` strikes it from outside",
                field="target",
            )
        try:
            await self._put("preview", kind, service, parameters, {"validateOnly": "true"})
        except InvalidField as refused:
            refused.field = FIELD_NAMES.get(str(refused.field), refused.field)
            raise

    async def inject(self, name: str, kind: str, service: str, parameters: Mapping[str, str]) -> None:
        await self._put(name, kind, service, parameters, None)

    async def clear(self, name: str) -> None:
        try:
            await call(self._http, "DELETE", resource_path("process-faults", name))
        except NotFound:
            return

    async def injected(self) -> Sequence[str]:
        try:
            return [each["name"] for each in await list_all(self._http, "/v1/process-faults")]
        except NotFound:
            return []

    async def observe(self, service: str) -> dict[str, Any]:
        return await call(self._http, "GET", resource_path("processes", service))

    async def _put(
        self, name: str, kind: str, service: str, parameters: Mapping[str, str], params: dict[str, str] | None
    ) -> None:
        body = {"kind": kind, "target": service, "parameters": dict(parameters)}
        await call(self._http, "PUT", resource_path("process-faults", name), body=body, params=params)
