"""What a resource is asked for with, out of a file that may be what `get NOUN NAME -o yaml` printed of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matrixcommon.model.errors import InvalidField
from services.matrixctl.output.noun import Noun


def asked_again(kind: Noun, fields: dict[str, Any], shown_now: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Those fields without what a service shows of a resource and nobody sets, such as its state. `shown_now` is what
    stands at a path behind the resource's own. Raises InvalidField for a change of what only follows from the
    request."""
    from services.matrixctl.explain.catalogue import rest_kind

    declared = rest_kind(kind)
    asked = {each.name for each in declared.settable}
    shown = {each.name for each in declared.fields} if asked else set[str]()
    is_view = not fields.keys() <= asked and bool(fields.get("etag"))
    if is_view and kind.request_beside and isinstance(fields.get("request"), dict):
        return _in_request(kind, fields, shown_now(""), asked)
    body = {name: value for name, value in fields.items() if name in asked or name not in shown}
    if is_view and kind.content:
        body = {name: value for name, value in shown_now(kind.content).items() if name in asked} | body
    return body


def _in_request(kind: Noun, fields: dict[str, Any], now: dict[str, Any], asked: set[str]) -> dict[str, Any]:
    """Of a view that has what was asked for in a field of its own."""
    beside = {name: fields[name] for name in kind.request_beside if name in fields}
    for name in sorted(asked & fields.keys() - beside.keys()):
        if now.get("etag") == fields["etag"] and fields[name] != now.get(name):
            raise InvalidField(
                f"{kind.name} show here what they have; change `request.{name}`, what is asked for", field=name
            )
    return fields["request"] | beside
