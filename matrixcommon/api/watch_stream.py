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
from matrixcommon.api.watch_selection import InitialState, Selection, identity_of, seen_in, version_of
from matrixcommon.model.errors import Gone
from matrixcommon.persistence.change_feed import ChangeFeed
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
    feed = records.shared_by_watches(kind, lambda: ChangeFeed(records, kind))
    rv = params.resource_version
    selection = Selection(params) if params.selects else None
    started: InitialState | None = None
    if rv is None:
        rv = records.latest()
        present = [*views()]
        if (newest := records.latest()) > rv:  # another replica has written meanwhile
            started = InitialState({identity_of(view): version_of(view) for view in present}, newest)
        for piece in joined_chunks(_initial_events(params, present, rv, selection)):
            yield piece
        del present
    elif selection is not None:
        selection.resume(rv, views(), records.latest)
    yield event("BOOKMARK", rv, "{}")
    loop, period_s = asyncio.get_running_loop(), records.clock.loop_s(BOOKMARK_PERIOD_WALL_S)
    bookmark_at = loop.time() + period_s
    while True:
        try:
            changes, up_to = feed.read(rv)
        except Gone as gone:
            yield event("ERROR", rv, json.dumps(gone.problem()))
            return
        if started is not None:
            changes = [change for change in changes if not started.includes(change)]
            started = started if up_to < started.up_to else None
        for piece in joined_chunks(_change_events(params, changes, selection)):
            yield piece
            bookmark_at = loop.time() + period_s
        rv = up_to
        del changes  # so that a watch that waits keeps none
        if bookmark_at - loop.time() < 1e-3:  # a loop may wake a little early: less would be waited for again and again
            yield event("BOOKMARK", rv, "{}")
            bookmark_at = loop.time() + period_s
        await feed.changed(since=rv, within_s=bookmark_at - loop.time())


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
            yield _rendered(change, change.type, params, change.view)
        elif selection is not None:
            if (selected := selection.event_for(change)) is not None:
                yield _rendered(change, selected[0], params, selected[1])
        elif (seen := seen_in(change, params)) is not None:
            yield _rendered(change, change.type, params, seen)


def _rendered(change: Change, type: str, params: ListParams, shown: dict[str, Any]) -> bytes:
    """The event of that type for a change, rendered once for all readers who are shown the same of it."""
    whole = shown is change.view
    if not whole and shown is not change.rendered.get(params.viewer):
        return event(type, change.rv, json.dumps(shown))
    key = type, None if whole else params.viewer
    if key not in change.rendered:
        change.rendered[key] = event(type, change.rv, change.body if whole else json.dumps(shown))
    rendered: bytes = change.rendered[key]
    return rendered


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
