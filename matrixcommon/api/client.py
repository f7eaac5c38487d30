"""The HTTP client of services: JSON requests, lists, and watches that can be continued.

A refusal is raised as the error class that the service raised; an unreachable service is Unavailable, which is
retryable. The httpx client is passed in (over the network in a process, over ASGI in a test).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import orjson

from matrixcommon.model.errors import Gone, InvalidField, MatrixError, NotFound, StaleLeader, Unavailable, from_problem
from matrixcommon.model.fencing import FENCE
from matrixcommon.model.resource_key import name_of, project_of
from matrixcommon.model.resource_model import ApiModel

if TYPE_CHECKING:
    import httpx

View = TypeVar("View", bound=ApiModel)

PAGE_SIZE = 1000
"""The most items that a service returns on a page."""


async def call(
    http: httpx.AsyncClient,
    method: str,
    path: str,
    *,
    body: Any = None,
    text: str | None = None,
    params: dict[str, Any] | None = None,
    if_match: str | None = None,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """Send a request and return the JSON answer ({} if empty). `text`: a body that is already JSON. Raises the
    MatrixError that the problem document represents."""
    import httpx  # late: a sixth of the startup time of a command that sends no request

    path, params = split_project(path, params)
    headers = {"If-Match": if_match} if if_match else {}
    extra: dict[str, Any] = {} if timeout_s is None else {"timeout": timeout_s}
    if body is not None:
        extra["json"] = body
    if text is not None:
        extra["content"], headers["Content-Type"] = text, "application/json"
    try:
        answer = await http.request(method, _url(http, path, params), headers=headers, **extra)
    except httpx.HTTPError as wrong:
        raise Unavailable(f"{method} {path}: {type(wrong).__name__}: {wrong}") from wrong
    if answer.status_code >= 400:
        refused = error_from(answer)
        if isinstance(refused, StaleLeader) and (fence := FENCE.get()) is not None:
            fence.refused()
        raise refused
    return orjson.loads(answer.content) if answer.content else {}


def resource_path(collection: str, key: str, verb: str = "") -> str:
    """The path of a resource for `call`, with its project if the key has one. Raises InvalidField for names that would
    make it the path of the collection or its parent."""
    name = name_of(key)
    if name in ("", ".", ".."):
        raise InvalidField(f"{name!r} is not a valid name", field="name")
    named = f"?project={project_of(key)}" if "/" in key else ""
    return f"/v1/{collection}/{quote(name, safe='')}{verb}{named}"


def split_project(path: str, params: dict[str, Any] | None) -> tuple[str, dict[str, Any] | None]:
    """Split a path from `at` into the bare path and parameters that include its project."""
    path, _, project = path.partition("?project=")
    return path, {**(params or {}), "project": project} if project else params


URLS_MAX = 1024
_urls: dict[tuple[str, str, str], httpx.URL] = {}
"""URLs of recent requests: the same few are sent over and over, and building the URL takes as long as the rest of
sending the request."""


def _url(http: httpx.AsyncClient, path: str, params: dict[str, Any] | None) -> httpx.URL:
    key = str(http.base_url), path, repr(params)
    if (found := _urls.get(key)) is None:
        if len(_urls) >= URLS_MAX:
            _urls.clear()
        found = _urls[key] = http.build_request("GET", path, params=params).url
    return found


async def list_all(
    http: httpx.AsyncClient, path: str, params: dict[str, Any] | None = None, filter: str | None = None
) -> list[dict[str, Any]]:
    """Return every item of a collection, fetched page by page."""
    path, params = split_project(path, params)
    asked: dict[str, Any] = {"pageSize": PAGE_SIZE, **(params or {}), **({"filter": filter} if filter else {})}
    items: list[dict[str, Any]] = []
    while True:
        answer = await call(http, "GET", path, params=asked)
        items += answer["items"]
        if not answer.get("nextPageToken"):
            return items
        asked["pageToken"] = answer["nextPageToken"]


def error_from(answer: httpx.Response) -> MatrixError:
    """The error in an answer with status 400 or more."""
    try:
        document = answer.json()
    except ValueError:
        document = {"detail": answer.text[:200] or f"HTTP {answer.status_code}"}
    return from_problem(document if isinstance(document, dict) else {"detail": str(document)[:200]}, answer.status_code)


@dataclass(frozen=True)
class WatchEvent:
    """An event of a watch: ADDED, MODIFIED or DELETED with the resource's view, or BOOKMARK with an empty one."""

    type: str
    rv: int
    view: dict[str, Any]


class EventReader:
    """Reads the server-sent events of a watch, line by line."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def take(self, line: str) -> WatchEvent | None:
        """Return the event that this line completes, if any. Raises the error that the stream ended with."""
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.strip()
            return None
        fields, self._fields = self._fields, {}
        if fields.get("event") == "ERROR":
            problem = orjson.loads(fields["data"])
            raise from_problem(problem, int(problem.get("status", 410)))
        if "data" not in fields:
            return None
        return WatchEvent(fields["event"], int(fields["id"]), orjson.loads(fields["data"]))


async def watch(
    http: httpx.AsyncClient, path: str, *, since: int | None, params: dict[str, Any] | None = None
) -> AsyncIterator[WatchEvent]:
    """Events after `since` (if None, starting with the present state) until the stream ends.

    Raises Gone if the history no longer reaches back (list again), Unavailable if the connection is lost.
    """
    import httpx

    query = {**(params or {}), "watch": "true"}
    if since is not None:
        query["resourceVersion"] = str(since)
    try:
        async with http.stream("GET", path, params=query, timeout=httpx.Timeout(5.0, read=60.0)) as answer:
            if answer.status_code >= 400:
                await answer.aread()
                raise error_from(answer)
            events = EventReader()
            async for line in answer.aiter_lines():
                if event := events.take(line):
                    yield event
    except httpx.HTTPError as wrong:
        raise Unavailable(f"watch {path}: {type(wrong).__name__}: {wrong}") from wrong


class ServiceClient:
    """Base of the clients of all services. Each verb raises the MatrixError that the service raised, or
    Unavailable."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def _ask(
        self,
        view: type[View],
        method: str,
        path: str,
        body: ApiModel | dict[str, Any] | None = None,
        *,
        validate_only: bool = False,
        params: dict[str, Any] | None = None,
    ) -> View:
        asked = {**(params or {}), **({"validateOnly": "true"} if validate_only else {})}
        sent = body.wire() if isinstance(body, ApiModel) else body
        return view.from_stored(await call(self._http, method, path, body=sent, params=asked))

    async def _find(self, view: type[View], path: str) -> View | None:
        try:
            return await self._ask(view, "GET", path)
        except NotFound:
            return None

    async def _all(self, view: type[View], collection: str, filter: str | None = None) -> list[View]:
        items = await list_all(self._http, f"/v1/{collection}", filter=filter)
        return [view.from_stored(item) for item in items]

    async def _delete(self, path: str) -> bool:
        """Request deletion; return True once it is gone."""
        try:
            return await call(self._http, "DELETE", path) == {}
        except NotFound:
            return True

    async def _report(self, answer: type[View], path: str, reports: Iterable[ApiModel]) -> list[View]:
        found = await call(
            self._http, "POST", path, text=f'{{"reports":[{",".join(each.text() for each in reports)}]}}'
        )
        return [answer.from_stored(item) for item in found["answers"]]

    def watch(self, collection: str, since: int | None) -> AsyncIterator[WatchEvent]:
        """Changes of a collection; if `since` is None, starting with the present state."""
        return watch(self._http, f"/v1/{collection}", since=since)


class Collection:
    """One collection of a service, with the usual verbs. `part`: a suffix of the resource's path."""

    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self._http, self._name = http, name

    async def ensure(self, key: str, body: dict[str, Any], part: str = "") -> dict[str, Any]:
        return await call(self._http, "PUT", resource_path(self._name, key, part), body=body)

    async def find(self, key: str, part: str = "") -> dict[str, Any] | None:
        """The resource, or None if there is none of that name."""
        try:
            return await call(self._http, "GET", resource_path(self._name, key, part))
        except NotFound:
            return None

    async def delete(self, key: str, part: str = "") -> bool:
        """Request deletion; return True once there is none of that name."""
        try:
            await call(self._http, "DELETE", resource_path(self._name, key, part))
        except NotFound:
            return True
        return await self.find(key, part) is None

    async def all(self, **params: str | list[str]) -> list[dict[str, Any]]:
        return await list_all(self._http, f"/v1/{self._name}", params)

    def watch(self, since: int | None) -> AsyncIterator[WatchEvent]:
        return watch(self._http, f"/v1/{self._name}", since=since)


__all__ = [
    "Collection",
    "EventReader",
    "Gone",
    "ServiceClient",
    "WatchEvent",
    "resource_path",
    "call",
    "list_all",
    "error_from",
    "split_project",
    "watch",
]
