"""The request for a resource, from a file that may be the output of `get NOUN NAME -o yaml`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import InvalidField
from services.matrixctl.output.listed_kind import ListedKind


def request_from_view(
    kind: ListedKind, fields: dict[str, Any], read_current: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """Return the fields without the read-only ones, such as the state. `read_current` reads a path below the resource's
    own. Raises InvalidField for a change to a field that is derived from the request."""
    from services.matrixctl.explain.catalogue import rest_kind

    declared = rest_kind(kind)
    asked = {each.name for each in declared.settable}
    shown = {each.name for each in declared.fields} if asked else set[str]()
    is_view = not fields.keys() <= asked and bool(fields.get("etag"))
    if is_view and kind.request_beside and isinstance(fields.get("request"), dict):
        return _request_of_view(kind, fields, read_current(""), asked)
    body = {name: value for name, value in fields.items() if name in asked or name not in shown}
    if is_view and kind.content:
        body = {name: value for name, value in read_current(kind.content).items() if name in asked} | body
    return body


def _request_of_view(kind: ListedKind, fields: dict[str, Any], now: dict[str, Any], asked: set[str]) -> dict[str, Any]:
    """The request from a view that holds it in a field of its own."""
    beside = {name: fields[name] for name in kind.request_beside if name in fields}
    for name in sorted(asked & fields.keys() - beside.keys()):
        if now.get("etag") == fields["etag"] and fields[name] != now.get(name):
            raise InvalidField(
                f"in {kind.name} this field is read-only and shows what it has; change `request.{name}` instead",
                field=name,
            )
    return fields["request"] | beside
