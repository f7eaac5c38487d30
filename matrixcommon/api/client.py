"""Calling a service: one JSON request, or a watch that continues where it stopped.

A refusal comes back as the error class it was raised as; a service that is away is Unavailable, which is retryable.
The httpx client is passed in (over the network in a process, over ASGI in a test).
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
"""The most that a service puts on one."""


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
    """The JSON answer ({} where it is empty). `text`: a body that is JSON already. Raises the MatrixError that the
    problem document names."""
    import httpx  # a sixth of the start of a command that asks nobody

    path, params = target(path, params)
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
        refused = refusal_in(answer)
        if isinstance(refused, StaleLeader) and (fence := FENCE.get()) is not None:
            fence.refused()
        raise refused
    return orjson.loads(answer.content) if answer.content else {}


def at(collection: str, key: str, verb: str = "") -> str:
    """Where a resource is, for `call`: its path, with its project where the key names one. Raises InvalidField for what
    a path takes for its collection or for what is above."""
    name = name_of(key)
    if name in ("", ".", ".."):
        raise InvalidField(f"{name!r} is no name", field="name")
    named = f"?project={project_of(key)}" if "/" in key else ""
    return f"/v1/{collection}/{quote(name, safe='')}{verb}{named}"


def target(path: str, params: dict[str, Any] | None) -> tuple[str, dict[str, Any] | None]:
    """A path of `at`, with its project among the parameters."""
    path, _, project = path.partition("?project=")
    return path, {**(params or {}), "project": project} if project else params


URLS_MAX = 1024
_urls: dict[tuple[str, str, str], httpx.URL] = {}
"""Of what was asked for lately: the same few things are asked for over and over, and working out their URLs takes as
long as all else that sending a request does."""


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
    """Every item of a collection, page after page."""
    path, params = target(path, params)
    asked: dict[str, Any] = {"pageSize": PAGE_SIZE, **(params or {}), **({"filter": filter} if filter else {})}
    items: list[dict[str, Any]] = []
    while True:
        answer = await call(http, "GET", path, params=asked)
        items += answer["items"]
        if not answer.get("nextPageToken"):
            return items
        asked["pageToken"] = answer["nextPageToken"]


def refusal_in(answer: httpx.Response) -> MatrixError:
    """What an answer of 400 or more says, as the error it was raised as."""
    try:
        document = answer.json()
    except ValueError:
        document = {"detail": answer.text[:200] or f"HTTP {answer.status_code}"}
    return from_problem(document if isinstance(document, dict) else {"detail": str(document)[:200]}, answer.status_code)


@dataclass(frozen=True)
class WatchEvent:
    """ADDED, MODIFIED, DELETED with the resource's view, or BOOKMARK with an empty one."""

    type: str
    rv: int
    view: dict[str, Any]


class EventReader:
    """Reads the server-sent events of a watch, line by line."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def take(self, line: str) -> WatchEvent | None:
        """The event that this line completes, if it does. Raises what the stream ended with."""
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
    """Events after `since` (from the present state where None) until the stream ends.

    Raises Gone where the history no longer reaches back (list again), Unavailable where the service goes away.
    """
    import httpx

    query = {**(params or {}), "watch": "true"}
    if since is not None:
        query["resourceVersion"] = str(since)
    try:
        async with http.stream("GET", path, params=query, timeout=httpx.Timeout(5.0, read=60.0)) as answer:
            if answer.status_code >= 400:
                await answer.aread()
                raise refusal_in(answer)
            events = EventReader()
            async for line in answer.aiter_lines():
                if event := events.take(line):
                    yield event
    except httpx.HTTPError as wrong:
        raise Unavailable(f"watch {path}: {type(wrong).__name__}: {wrong}") from wrong


class ServiceClient:
    """What the clients of all services have in common. Each verb raises the MatrixError that the service raised, or
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
        """Ask for its end; True once it is gone."""
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
        """Changes of a collection; from the present state where `since` is None."""
        return watch(self._http, f"/v1/{collection}", since=since)


class Collection:
    """One collection of a service, with the verbs that most have. `part`: what follows a resource's path."""

    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self._http, self._name = http, name

    async def ensure(self, key: str, body: dict[str, Any], part: str = "") -> dict[str, Any]:
        return await call(self._http, "PUT", at(self._name, key, part), body=body)

    async def find(self, key: str, part: str = "") -> dict[str, Any] | None:
        """None where there is none of that name."""
        try:
            return await call(self._http, "GET", at(self._name, key, part))
        except NotFound:
            return None

    async def delete(self, key: str, part: str = "") -> bool:
        """True once there is none of that name."""
        try:
            await call(self._http, "DELETE", at(self._name, key, part))
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
    "at",
    "call",
    "list_all",
    "refusal_in",
    "target",
    "watch",
]
