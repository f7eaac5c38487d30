"""Watches of collections: changes as server-sent events, each once and in order, until the client disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse, format_sse_event

from matrixcommon.api.authorization import is_still_authorized
from matrixcommon.api.list_params import ListParams
from matrixcommon.api.watch_selection import Selection, version_of
from matrixcommon.model.errors import Gone
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.persistence.database_session import Change, Database

BOOKMARK_PERIOD_WALL_S = 15.0
"""The longest time without an event, so that a client can tell an idle service from a dead one."""
CHUNK_BYTES = 64 * 1024
"""How many bytes of events are joined before they are sent."""


def event_stream(request: Request, events: AsyncIterator[bytes]) -> StreamingResponse:
    """Stream server-sent events until the client disconnects (which the response notices) or its token is no longer
    valid."""
    return EventSourceResponse(_while_authorized(request, events), headers={"Cache-Control": "no-cache"})


async def _while_authorized(request: Request, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for each in events:
        if not is_still_authorized(request):
            return
        yield each


def event(type: str, rv: int, body: str) -> bytes:
    """A server-sent event: its type, the number of the change, and the view as JSON text."""
    return format_sse_event(event=type, id=str(rv), data_str=body)


async def changes_of_kind(
    params: ListParams, records: Database, kind: str, views: Callable[[], Iterable[Any]]
) -> AsyncIterator[bytes]:
    rv = params.resource_version
    selection = Selection(params) if params.selects else None
    if rv is None:
        rv = records.latest()
        for piece in joined_chunks(_initial_events(params, views(), rv, selection)):
            yield piece
    elif selection is not None:
        selection.resume(rv, views(), records.latest)
    yield event("BOOKMARK", rv, "{}")
    loop, period_s = asyncio.get_running_loop(), records.clock.loop_s(BOOKMARK_PERIOD_WALL_S)
    silent_since = loop.time()
    while True:
        try:
            changes, newest = records.read_changes(kind, rv)
        except Gone as gone:
            yield event("ERROR", rv, json.dumps(gone.problem()))
            return
        for piece in joined_chunks(_change_events(params, changes, selection)):
            yield piece
            silent_since = loop.time()
        if changes:
            rv = changes[-1].rv
        else:
            rv = max(rv, newest)  # there was nothing of this kind up to `newest`
            if loop.time() - silent_since >= period_s:
                yield event("BOOKMARK", rv, "{}")
                silent_since = loop.time()
            await records.changed(within_wall_s=period_s, since=newest)


def _initial_events(params: ListParams, views: Iterable[Any], rv: int, selection: Selection | None) -> Iterator[bytes]:
    for view in views:
        body = params.show(view.wire())
        if body is not None:
            if selection is not None:
                selection.add(body)
            yield event("ADDED", version_of(view) or rv, json.dumps(body))


def _change_events(params: ListParams, changes: Iterable[Change], selection: Selection | None) -> Iterator[bytes]:
    for change in changes:
        if params.selects_all:
            yield event(change.type, change.rv, change.body)
        elif selection is not None:
            if (selected := selection.event_for(change)) is not None:
                yield event(selected[0], change.rv, json.dumps(selected[1]))
        elif (shown := params.show(json.loads(change.body))) is not None:
            yield event(change.type, change.rv, json.dumps(shown))


def joined_chunks(events: Iterable[bytes]) -> Iterator[bytes]:
    """Join events into pieces of about CHUNK_BYTES: sending a piece costs about the same whatever its length, and a
    slow client still keeps at most one waiting."""
    found, size = list[bytes](), 0
    for each in events:
        found.append(each)
        size += len(each)
        if size >= CHUNK_BYTES:
            yield b"".join(found)
            found, size = [], 0
    if found:
        yield b"".join(found)


async def derived_changes(
    params: ListParams, records: Database, views: Callable[[], Iterable[ApiModel]]
) -> AsyncIterator[bytes]:
    def found() -> dict[str, dict[str, Any]]:
        bodies = [shown for view in views() if (shown := params.show(view.wire())) is not None]
        return {f"{body.get('project', '')}/{body['name']}": body for body in bodies}

    rv, shown = -1, dict[str, dict[str, Any]]()
    if params.resource_version is not None:
        rv = records.latest()
        if params.resource_version != rv:
            gone = Gone(
                f"this is derived from other resources, without a history: it is at {rv} now, and what it was at "
                f"{params.resource_version} is not known; watch it without resourceVersion to start with its present "
                "state"
            )
            yield event("ERROR", rv, json.dumps(gone.problem()))
            return
        shown = found()
        yield event("BOOKMARK", rv, "{}")
    while True:
        if rv == records.latest():
            await records.changed(within_wall_s=records.clock.loop_s(BOOKMARK_PERIOD_WALL_S), since=rv)
        rv, now = records.latest(), found()  # even if nothing was committed: some views depend on time
        for piece in joined_chunks(_difference_events(shown, now, rv)):
            yield piece
        shown = now
        yield event("BOOKMARK", rv, "{}")


def _difference_events(before: dict[str, Any], after: dict[str, Any], rv: int) -> Iterator[bytes]:
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name), after.get(name)
        if now is None:
            yield event("DELETED", rv, json.dumps(was))
        elif was != now:
            yield event("ADDED" if was is None else "MODIFIED", rv, json.dumps(now))
