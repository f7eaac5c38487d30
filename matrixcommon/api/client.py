"""Calling a service: one JSON request, or a watch that continues where it stopped.

A refusal comes back as the error class it was raised as; a service that is away is Unavailable, which is retryable.
The httpx client is passed in (over the network in a process, over ASGI in a test).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from matrixcommon.model.errors import Gone, Unavailable, from_problem
from matrixcommon.model.resource_key import DEFAULT_PROJECT, name_of, project_of

PAGE_SIZE = 1000
"""The most that a service puts on one."""


async def call(
    http: httpx.AsyncClient,
    method: str,
    path: str,
    *,
    body: Any = None,
    params: dict[str, Any] | None = None,
    if_match: str | None = None,
    timeout_s: float | None = None,
) -> dict[str, Any]:
    """The JSON answer ({} where it is empty). Raises the MatrixError that the problem document names."""
    path, params = target(path, params)
    headers = {"If-Match": if_match} if if_match else {}
    extra: dict[str, Any] = {} if timeout_s is None else {"timeout": timeout_s}
    if body is not None:
        extra["json"] = body
    try:
        answer = await http.request(method, path, params=params, headers=headers, **extra)
    except httpx.HTTPError as wrong:
        raise Unavailable(f"{method} {path}: {type(wrong).__name__}: {wrong}") from wrong
    if answer.status_code >= 400:
        raise from_problem(_document(answer), answer.status_code)
    return answer.json() if answer.content else {}


def at(collection: str, key: str, verb: str = "") -> str:
    """Where a resource is, for `call`: its path, with its project where that is not the default one."""
    project = project_of(key)
    named = "" if project == DEFAULT_PROJECT else f"?project={project}"
    return f"/v1/{collection}/{quote(name_of(key), safe='')}{verb}{named}"


def target(path: str, params: dict[str, Any] | None) -> tuple[str, dict[str, Any] | None]:
    """A path of `at`, with its project among the parameters."""
    path, _, project = path.partition("?project=")
    return path, {**(params or {}), "project": project} if project else params


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


def _document(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {"detail": answer.text[:200] or f"HTTP {answer.status_code}"}
    return document if isinstance(document, dict) else {"detail": str(document)[:200]}


@dataclass(frozen=True)
class WatchEvent:
    """ADDED, MODIFIED, DELETED with the resource's view, or BOOKMARK with an empty one."""

    type: str
    rv: int
    view: dict[str, Any]


async def watch(
    http: httpx.AsyncClient, path: str, *, since: int | None, params: dict[str, Any] | None = None
) -> AsyncIterator[WatchEvent]:
    """Events after `since` (from the present state where None) until the stream ends.

    Raises Gone where the history no longer reaches back (list again), Unavailable where the service goes away.
    """
    query = {**(params or {}), "watch": "true"}
    if since is not None:
        query["resourceVersion"] = str(since)
    try:
        async with http.stream("GET", path, params=query, timeout=httpx.Timeout(5.0, read=60.0)) as answer:
            if answer.status_code >= 400:
                await answer.aread()
                raise from_problem(_document(answer), answer.status_code)
            fields: dict[str, str] = {}
            async for line in answer.aiter_lines():
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.strip()
                elif fields:
                    if fields.get("event") == "ERROR":
                        problem = json.loads(fields["data"])
                        raise from_problem(problem, int(problem.get("status", 410)))
                    if "data" in fields:
                        yield WatchEvent(fields["event"], int(fields["id"]), json.loads(fields["data"]))
                    fields = {}
    except httpx.HTTPError as wrong:
        raise Unavailable(f"watch {path}: {type(wrong).__name__}: {wrong}") from wrong


__all__ = ["Gone", "WatchEvent", "at", "call", "list_all", "target", "watch"]
