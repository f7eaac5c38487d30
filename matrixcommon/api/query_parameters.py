"""Refuse query parameters that a route does not declare, repeated parameters, and bodies that the route does not read.

An undeclared parameter would be ignored, and a typo such as `?validateonly=true` would commit what should only be
validated. Such a request is refused before the handler runs, but after authorization, with a list of the parameters
that the route takes. A body that the route does not read is refused too; its content belongs in the query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Any, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel

from matrixcommon.api.declared_fields import wire_fields
from matrixcommon.model.errors import Malformed

NAMED_MAX = 5
"""How many unknown parameters a refusal names: a query may have thousands, and finding close matches takes time."""


class QueryParameters:
    """The parameters of a router's routes, each worked out when a query is first sent to it."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], dict[str, bool]] = {}

    async def refuse_unknown(self, request: Request) -> None:
        """A dependency of every route. Raises Malformed for unknown or repeated parameters."""
        if not request.scope["query_string"]:
            return
        taken, sent = self._of(request), request.query_params
        if not taken.keys() >= sent.keys():
            refuse_parameters([name for name in sent if name not in taken], taken)
        names = [name for name, _ in sent.multi_items()]
        if len(names) > len(sent):
            _refuse_repeated(name for name in sent if not taken[name] and names.count(name) > 1)

    async def refuse_unread_body(self, request: Request) -> None:
        """A dependency of every route. Raises Malformed for a body that the route does not read."""
        headers = request.headers
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            return
        if request.scope["route"].body_field is None and has_content(await request.body()):
            asked = f"{request.method} {request.url.path}"
            raise Malformed(
                f"{asked} reads no body; {_describe_accepted(self._of(request))} in the query", field="body"
            )

    def _of(self, request: Request) -> dict[str, bool]:
        """The parameters of the request's route, each with whether it may be repeated."""
        route = request.scope["route"]
        asked = request.scope["method"], route.path
        if (taken := self._taken.get(asked)) is None:
            taken = self._taken[asked] = dict(_declared_parameters(route.dependant))
        return taken


def refuse_parameters(unknown: Iterable[str], taken: Iterable[str] = ()) -> None:
    """Raises Malformed if there are unknown parameters, and names the first few."""
    lines = []
    for name in islice(unknown, NAMED_MAX):
        near = get_close_matches(name[:40], taken, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        if name == "project":
            meant = ", as this is of no project"
        lines.append({"field": f"query.{name[:40]}", "message": f"unknown parameter {name[:40]!r}{meant}"})
    if lines:
        message = "; ".join(line["message"] for line in lines)
        raise Malformed(
            f"{message}{'' if message.endswith('?') else ';'} {_describe_accepted(taken)}",
            field=lines[0]["field"],
            blocking=lines,
        )


def has_content(body: bytes | None) -> bool:
    """Whether a body has content; many clients send `{}` for none."""
    return body is not None and body.strip() not in (b"", b"{}")


def _describe_accepted(taken: Iterable[str]) -> str:
    return f"it takes {names}" if (names := ", ".join(sorted(taken))) else "it takes no parameters"


def _refuse_repeated(names: Iterable[str]) -> None:
    """Raises Malformed for the first of them, since all but one of its values would be ignored."""
    for name in names:
        raise Malformed(f"{name!r} may be given only once", field=f"query.{name}")


def declared_names(dependant: Dependant) -> Iterator[str]:
    """The names of the query parameters of a route and its dependencies."""
    return (name for name, _ in _declared_parameters(dependant))


def _declared_parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """The same, each with whether it is a list, whose entries are repeated parameters."""
    for each in dependant.query_params:
        model = each.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from ((name, _is_list(field.annotation)) for name, field in wire_fields(model).items())
        else:
            yield each.alias, _is_list(model)
    for dependency in dependant.dependencies:
        yield from _declared_parameters(dependency)


def _is_list(annotation: Any) -> bool:
    """Whether the annotation is, or may be, a collection of any kind."""
    origins = (get_origin(each) for each in (annotation, *get_args(annotation)))
    return any(isinstance(each, type) and issubclass(each, Collection) for each in origins)
