"""The conventions of all collections: pages, their order, and the start of watches.

A route passes its views and its journal; the result is a page or a stream of server-sent events.

    GET /v1/nodes?pageSize=20&filter=state=Available AND cabinet!=sn0-c03&orderBy=name desc
    GET /v1/nodes?watch=true&resourceVersion=412
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, Field, create_model

from matrixcommon.api.derived_watch import derived_changes
from matrixcommon.api.filters import as_text, field_at
from matrixcommon.api.json_answer import JsonResponse
from matrixcommon.api.list_params import ListParams, order_fields
from matrixcommon.api.watch_stream import changes_of_kind, event_stream
from matrixcommon.model.errors import InvalidField, NotYetSupported
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.persistence.database_session import Database, ResourceRow


def json_response(view: ApiModel, status: int = 200) -> Response:
    """A view as a response, encoded once and not validated against its own schema again."""
    return Response(view.text(), status, media_type="application/json")


def page_responses(view: type[ApiModel] | None) -> dict[int | str, dict[str, Any]]:
    """The responses of a list for the OpenAPI document: a page, or with `watch=true` a stream of events."""
    return {200: {"model": _page_model(view), "content": {"text/event-stream": {}}}}


@cache
def _page_model(view: type[ApiModel] | None) -> type[BaseModel]:
    of: Any = view or dict[str, Any]
    return create_model(
        f"{view.__name__}Page" if view else "Page",
        items=(list[of], Field(description="resources on this page that match the filter, in the order asked for")),
        next_page_token=(
            str | None,
            Field(None, alias="nextPageToken", description="send it as pageToken for the next page; none on the last"),
        ),
        resource_version=(
            int | None,
            Field(
                None,
                alias="resourceVersion",
                description="number of the service's last change; a watch may start after it",
            ),
        ),
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

    Views without rows of their own are derived from others'. A watch computes them again after every commit and at
    every bookmark, and sends the differences. They have no journal, so a watch can only resume from the present.
    """
    if params.watch and records is not None:
        params.refuse_paging()
        events = derived_changes(params, records, views)
        if row is not None:
            events = changes_of_kind(params, records, row.kind, views)
        return event_stream(request, events)
    return list_page(params, records, views)


def list_page(params: ListParams, records: Database | None, views: Callable[[], Iterable[ApiModel]]) -> Response:
    """A page, without watches."""
    version = {} if records is None else {"resourceVersion": records.latest()}
    # Take the number before the views, so that a watch from there misses nothing.
    return JsonResponse(page([view.wire() for view in views()], params) | version)


def page(items: list[dict[str, Any]], params: ListParams) -> dict[str, Any]:
    """One page of the items that match and are visible. The token is opaque and contains the last item's position, so
    that no item is skipped if earlier ones are deleted meanwhile. Raises NotYetSupported for a watch."""
    if params.watch:
        raise NotYetSupported("this cannot be watched; list it again", field="watch")
    for parameter, asked in params.undeclared_fields:
        if items and not any(asked in item for item in items):
            raise InvalidField(f"there is no field {asked[:40]!r}", field=parameter)
    order = [(path.split("."), backwards) for path, backwards in order_fields(params.order_by)]

    def place(item: dict[str, Any]) -> Position:
        keys = [_sort_key(field_at(item, path)) for path, _ in order]
        return [*keys, ["", 0.0, str(item.get("project", ""))], ["", 0.0, str(item.get("name", ""))]]

    def comes_after(one: Position, other: Position) -> bool:
        at = next((at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)
        if at is None:
            return False
        return one[at] < other[at] if at < len(order) and order[at][1] else one[at] > other[at]

    found = [(place(shown), shown) for item in items if (shown := params.show(item)) is not None]
    if params.page_token:
        after = _position_in_token(params, len(order))
        found = [each for each in found if comes_after(each[0], after)]
    found.sort(key=itemgetter(0))
    if any(backwards for _, backwards in order):
        for at in reversed(range(len(order))):
            found.sort(key=lambda each, at=at: each[0][at], reverse=order[at][1])  # type: ignore[misc]
    shown_here = found[: params.page_size]
    rest = {"nextPageToken": _page_token(params, shown_here[-1][0])} if len(found) > len(shown_here) else {}
    return {"items": [item for _, item in shown_here], **rest}


def names_on_page(names_after: Callable[[str], Iterable[str]], params: ListParams) -> tuple[list[str], dict[str, str]]:
    """The names on a page without filter, and `nextPageToken` if there are more. `names_after` yields the names after a
    given one, in order; only one more than the page shows is read. Tokens are the same as those of `page`."""
    after = str(_position_in_token(params, 1)[-1][2]) if params.page_token else ""
    shown = [*islice(names_after(after), params.page_size + 1)]
    if len(shown) <= params.page_size:
        return shown, {}
    del shown[-1]
    return shown, {"nextPageToken": _page_token(params, [_sort_key(shown[-1]), ["", 0.0, ""], ["", 0.0, shown[-1]]])}


def window(length: int, params: ListParams) -> tuple[slice, dict[str, str]]:
    """The slice of `length` ordered items that is on the page, and `nextPageToken` if there are more."""
    start = _start_in_token(params)
    stop = start + params.page_size
    return slice(start, stop), {"nextPageToken": _page_token(params, stop)} if stop < length else {}


Position = list[list[str | float]]
"""An item's position in the list's order: a sort key for each field, then project and name."""


def _sort_key(value: Any) -> list[str | float]:
    """A sort key that puts numbers before texts."""
    if isinstance(value, int | float):
        return ["", float(value), ""]
    return ["~", 0.0, as_text(value)]


def _page_token(params: ListParams, place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps([params.digest, place]).encode()).decode()


def _parse_token(params: ListParams) -> Any:
    """The position in the token that was sent. Raises InvalidField if it is not a token, or one of another list, whose
    positions mean nothing in this one."""
    try:
        token = json.loads(base64.urlsafe_b64decode((params.page_token or "").encode()))
    except (ValueError, binascii.Error):
        token = None
    match token:
        case [str(of), place]:
            if of != params.digest:
                raise InvalidField(
                    "this token belongs to another list: send it with the same parameters (except pageSize) as the "
                    "request that returned it",
                    field="pageToken",
                )
            return place
    raise _INVALID_TOKEN


def _start_in_token(params: ListParams) -> int:
    start = _parse_token(params) if params.page_token else 0
    if type(start) is not int or start < 0:
        raise _INVALID_TOKEN
    return start


def _position_in_token(params: ListParams, fields: int) -> Position:
    """The position in the token. Raises InvalidField unless it has that many order fields."""
    place = _parse_token(params)
    if isinstance(place, list) and len(place) == fields + 2:
        match [key for key in place if isinstance(key, list) and list(map(type, key)) == [str, float, str]]:
            case keys if len(keys) == len(place):
                return place
    raise _INVALID_TOKEN


_INVALID_TOKEN = InvalidField("not a page token of this service", field="pageToken")
