"""The conventions every collection keeps: paging, filter, order and watch, in one place.

A route hands over its views and its journal; what comes back is a page or a stream of server-sent events.

    GET /v1/nodes?pageSize=20&filter=state=Available AND cabinet!=sn0-c03&orderBy=name desc
    GET /v1/nodes?watch=true&resourceVersion=412
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.sse import EventSourceResponse, format_sse_event
from pydantic import BaseModel, Field, create_model

from matrixcommon.api.authorization import Caller, Scope, still_admitted
from matrixcommon.model.errors import Gone, InvalidField, NotYetSupported
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.persistence.database_session import Database, ResourceRow

PAGE_SIZE_MAX = 1000
"""The most that one page shows. Who asks for as many gets a token with them where there are more."""
BOOKMARK_PERIOD_WALL_S = 15.0
"""A watch is never silent for longer, so a client can tell a quiet service from a dead one."""


@dataclass
class ListParams:
    """The query of every list."""

    page_size: int
    page_token: str | None
    matches: Callable[[dict[str, Any]], bool]
    order_by: str | None
    watch: bool
    resource_version: int | None
    caller: Caller | None = None
    unchecked: tuple[tuple[str, str], ...] = ()
    """(parameter, field) of what is filtered and ordered by, where the kind has no declared view to know them from."""

    def show(self, item: dict[str, Any]) -> dict[str, Any] | None:
        """The item as its reader may see it, where it may and the filter lets it pass."""
        if self.caller is not None:
            if not _visible(self.caller, item):
                return None
            item = self.caller.hide(item)
        return item if self.matches(item) else None

    @property
    def shows_all(self) -> bool:
        return self.matches is _everything and (self.caller is None or self.caller.sees_all)


def _visible(caller: Caller, item: dict[str, Any]) -> bool:
    """Whether a list shows this item at all."""
    scope, project = caller.rule.scope, item.get("project")
    if scope is Scope.NODE and caller.principal.role == "agent":
        return caller.principal.reports_for(item.get("node") or item["name"])
    if scope is Scope.SHARED:
        return any(caller.sees(owner) for owner in item["projects"])
    if scope is Scope.MIXED:
        return project is None or caller.sees(project)
    return scope not in (Scope.PROJECT, Scope.ITSELF, Scope.NODE) or caller.sees(project)


async def _list_params(
    request: Request,
    page_size: Annotated[int, Query(alias="pageSize", ge=1, le=1000)] = 500,
    page_token: Annotated[str | None, Query(alias="pageToken")] = None,
    filter: Annotated[str | None, Query(description="terms joined by AND: field=value or field!=value")] = None,
    order_by: Annotated[
        str | None, Query(alias="orderBy", description="fields joined by ',', each with ' desc' where it goes down")
    ] = None,
    watch: bool = False,
    resource_version: Annotated[int | None, Query(alias="resourceVersion", ge=0)] = None,
) -> ListParams:
    # A coroutine, so that FastAPI does not send every list through its thread pool.
    caller: Caller | None = getattr(request.state, "caller", None)
    view = caller.rule.view if caller is not None else None
    known = None if view is None else frozenset(each.alias or name for name, each in view.model_fields.items())
    ordered = [path.split(".")[0] for path, _ in _order_by(order_by)] if order_by else []
    for field in ordered:
        if known is not None and field not in known:
            raise InvalidField(f"there is no field {field[:40]!r} to order by", field="orderBy")
    matches = parse_filter(filter, known)
    unchecked: list[tuple[str, str]] = []
    if known is None:
        filtered = [path[0] for path, _, _ in _filter_terms(filter)] if filter else []
        unchecked = [*(("filter", field) for field in filtered), *(("orderBy", field) for field in ordered)]
    page_size = min(page_size, PAGE_SIZE_MAX)
    return ListParams(page_size, page_token, matches, order_by, watch, resource_version, caller, tuple(unchecked))


Params = Annotated[ListParams, Depends(_list_params)]
IfMatch = Annotated[str | None, Header(alias="If-Match")]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="sent twice, one thing is made"),
]
ValidateOnly = Annotated[bool, Query(alias="validateOnly", description="run everything but the commit")]


def json_response(view: ApiModel, status: int = 200) -> Response:
    """A view of our own as an answer, encoded once and not checked against its own schema."""
    return Response(view.text(), status, media_type="application/json")


def _everything(view: dict[str, Any]) -> bool:
    return True


def parse_filter(text: str | None, known: Container[str] | None = None) -> Callable[[dict[str, Any]], bool]:
    """A filter as a predicate over views; raises InvalidField where it cannot be read, or names no `known` field."""
    if not text:
        return _everything
    terms = []
    for path, value, negated in _filter_terms(text):
        if known is not None and path[0] not in known:
            raise InvalidField(f"there is no field {'.'.join(path)[:40]!r} to filter by", field="filter")
        terms.append((path, value, negated))
    return lambda view: all((_text(_dig(view, path)) == value) != negated for path, value, negated in terms)


def _filter_terms(text: str) -> Iterator[tuple[list[str], str, bool]]:
    """Path, value and whether it is to be another, of each term. Raises InvalidField."""
    for part in text.split(" AND "):
        path, found, value = part.partition("=")
        negated = path.endswith("!")
        path = path.removesuffix("!").strip()
        if not found or not path:
            raise InvalidField(
                f"cannot read {part!r}; write field=value or field!=value, joined by AND", field="filter"
            )
        yield path.split("."), value.strip().strip('"'), negated


def _dig(view: Any, path: list[str]) -> Any:
    for step in path:
        view = view.get(step) if isinstance(view, dict) else None
    return view


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def described_page(view: type[ApiModel] | None) -> dict[int | str, dict[str, Any]]:
    """What the OpenAPI document says of a list: a page, or with `watch=true` a stream of events."""
    return {200: {"model": _page_of(view), "content": {"text/event-stream": {}}}}


@cache
def _page_of(view: type[ApiModel] | None) -> type[BaseModel]:
    of: Any = view or dict[str, Any]
    return create_model(
        f"{view.__name__}Page" if view else "Page",
        items=(list[of], ...),
        next_page_token=(str | None, Field(None, alias="nextPageToken")),
        resource_version=(int | None, Field(None, alias="resourceVersion")),
    )


def list_or_watch(
    request: Request,
    params: ListParams,
    records: Database | None,
    row: type[ResourceRow] | None,
    views: Callable[[], Iterable[ApiModel]],
) -> Response:
    """A page `{items, nextPageToken, resourceVersion}`, or with `watch=true` a stream of the changes of that kind of
    rows.

    What has no rows of its own is worked out from others': watched, it is worked out anew after every commit and at
    every bookmark, and told where it is not what it was. There is no journal of it to go on from, so a watch resumes
    from the present only.
    """
    if params.watch and records is not None:
        events = _differences(params, records, views)
        if row is not None:
            events = _events(params, records, row.kind, views)
        return event_stream(request, events)
    version = {} if records is None else {"resourceVersion": records.latest()}
    # The number before the views, so that a watch from there misses nothing.
    return JSONResponse(page([view.wire() for view in views()], params) | version)


def event_stream(request: Request, events: AsyncIterator[bytes]) -> StreamingResponse:
    """Server-sent events as they come, until who asked goes away (the response hears of it), or their token ends."""
    return EventSourceResponse(_while_admitted(request, events), headers={"Cache-Control": "no-cache"})


async def _while_admitted(request: Request, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for each in events:
        if not still_admitted(request):
            return
        yield each


def event(type: str, rv: int, body: str) -> bytes:
    """One of them: what happened, the number of the change, and the view as JSON text."""
    return format_sse_event(event=type, id=str(rv), data_str=body)


def page(items: list[dict[str, Any]], params: ListParams) -> dict[str, Any]:
    """One page of what matches and may be seen. The token is opaque and says after what the next one starts, so that
    nothing is left out because something before it has gone meanwhile. Raises NotYetSupported where it was to be
    watched."""
    if params.watch:
        raise NotYetSupported("this cannot be watched; list it again", field="watch")
    for parameter, asked in params.unchecked:
        if items and not any(asked in item for item in items):
            raise InvalidField(f"there is no field {asked[:40]!r}", field=parameter)
    order = [(path.split("."), backwards) for path, backwards in _order_by(params.order_by)]

    def place(item: dict[str, Any]) -> Place:
        keys = [_sort_key(_dig(item, path)) for path, _ in order]
        return [*keys, ["", 0.0, str(item.get("project", ""))], ["", 0.0, str(item.get("name", ""))]]

    def comes_after(one: Place, other: Place) -> bool:
        at = next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)
        if at is None:
            return False
        return one[at] < other[at] if at < len(order) and order[at][1] else one[at] > other[at]

    found = [(place(shown), shown) for item in items if (shown := params.show(item)) is not None]
    if params.page_token:
        after = _place_of(params.page_token, len(order))
        found = [each for each in found if comes_after(each[0], after)]
    found.sort(key=itemgetter(0))
    if any(backwards for _, backwards in order):
        for at in reversed(range(len(order))):
            found.sort(key=lambda each, at=at: each[0][at], reverse=order[at][1])  # type: ignore[misc]
    shown_here = found[: params.page_size]
    rest = {"nextPageToken": _token(shown_here[-1][0])} if len(found) > len(shown_here) else {}
    return {"items": [item for _, item in shown_here], **rest}


def names_on_page(names_after: Callable[[str], Iterable[str]], params: ListParams) -> tuple[list[str], dict[str, str]]:
    """The names that a page without filter shows, and `nextPageToken` where there are more. `names_after` has those
    after a name, in order; no more are looked at than are shown. Tokens are the same as those of `page`."""
    after = str(_place_of(params.page_token, 1)[-1][2]) if params.page_token else ""
    shown = [*islice(names_after(after), params.page_size + 1)]
    if len(shown) <= params.page_size:
        return shown, {}
    del shown[-1]
    return shown, {"nextPageToken": _token([_sort_key(shown[-1]), ["", 0.0, ""], ["", 0.0, shown[-1]]])}


def window(length: int, params: ListParams) -> tuple[slice, dict[str, str]]:
    """Which of that many items in order the page shows, and `nextPageToken` where there are more."""
    start = _start_of(params.page_token)
    stop = start + params.page_size
    return slice(start, stop), {"nextPageToken": _token(stop)} if stop < length else {}


Place = list[list[str | float]]
"""Where an item stands in its list's order: a key for each field, then project and name."""


def _sort_key(value: Any) -> list[str | float]:
    """Numbers first, then words."""
    if isinstance(value, int | float):
        return ["", float(value), ""]
    return ["~", 0.0, _text(value)]


def _order_by(text: str | None) -> list[tuple[str, bool]]:
    """`state, name desc` as its fields, and whether each goes down. Raises InvalidField."""
    found = []
    for part in (text or "name").split(","):
        field, _, direction = part.strip().partition(" ")
        if not field or direction.strip() not in ("", "asc", "desc"):
            raise InvalidField(
                f"cannot read {part[:40]!r}; write field or 'field desc', joined by ','", field="orderBy"
            )
        found.append((field, direction.strip() == "desc"))
    return found


def _token(place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read_token(token: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error):
        return None


def _start_of(token: str | None) -> int:
    start = _read_token(token) if token else 0
    if type(start) is not int or start < 0:
        raise _NotOurs
    return start


def _place_of(token: str, fields: int) -> Place:
    """What a token says, where it is one of a list in an order of as many fields."""
    place = _read_token(token)
    if isinstance(place, list) and len(place) == fields + 2:
        match [key for key in place if isinstance(key, list) and list(map(type, key)) == [str, float, str]]:
            case keys if len(keys) == len(place):
                return place
    raise _NotOurs


_NotOurs = InvalidField("not a token that this service gave out", field="pageToken")


async def _events(
    params: ListParams, records: Database, kind: str, views: Callable[[], Iterable[Any]]
) -> AsyncIterator[bytes]:
    rv = params.resource_version
    if rv is None:
        rv = records.latest()
        for view in views():
            body = params.show(view.wire())
            if body is not None:
                yield event("ADDED", int(view.etag.strip('"') or rv), json.dumps(body))
    yield event("BOOKMARK", rv, "{}")
    loop, period_s = asyncio.get_running_loop(), records.clock.loop_s(BOOKMARK_PERIOD_WALL_S)
    silent_since = loop.time()
    while True:
        try:
            changes, newest = records.read_changes(kind, rv)
        except Gone as gone:
            yield event("ERROR", rv, json.dumps(gone.problem()))
            return
        for change in changes:
            rv = change.rv
            if params.shows_all:
                yield event(change.type, rv, change.body)
            elif (shown := params.show(json.loads(change.body))) is not None:
                yield event(change.type, rv, json.dumps(shown))
            else:
                continue
            silent_since = loop.time()
        if not changes:
            rv = max(rv, newest)  # of this kind there was nothing up to there
            if loop.time() - silent_since >= period_s:
                yield event("BOOKMARK", rv, "{}")
                silent_since = loop.time()
            await records.changed(within_wall_s=period_s, since=newest)


async def _differences(
    params: ListParams, records: Database, views: Callable[[], Iterable[ApiModel]]
) -> AsyncIterator[bytes]:
    def found() -> dict[str, dict[str, Any]]:
        bodies = [shown for view in views() if (shown := params.show(view.wire())) is not None]
        return {f"{body.get('project', '')}/{body['name']}": body for body in bodies}

    rv, shown = -1, dict[str, dict[str, Any]]()
    if params.resource_version is not None:
        rv = records.latest()
        if params.resource_version != rv:
            gone = Gone(f"this is worked out from other resources, and is at {rv} now; list it again")
            yield event("ERROR", rv, json.dumps(gone.problem()))
            return
        shown = found()
        yield event("BOOKMARK", rv, "{}")
    while True:
        if rv == records.latest():
            await records.changed(within_wall_s=records.clock.loop_s(BOOKMARK_PERIOD_WALL_S), since=rv)
        rv, now = records.latest(), found()  # though nothing was committed: some of it comes with time
        for name in sorted(shown.keys() | now.keys()):
            before, after = shown.get(name), now.get(name)
            if after is None:
                yield event("DELETED", rv, json.dumps(before))
            elif before != after:
                yield event("ADDED" if before is None else "MODIFIED", rv, json.dumps(after))
        shown = now
        yield event("BOOKMARK", rv, "{}")
