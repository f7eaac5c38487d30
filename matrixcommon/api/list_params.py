"""The query of every list: which resources, in which order, which page of them, or a watch of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request

from matrixcommon.api.authorization import Caller, Scope
from matrixcommon.model.errors import InvalidField

PAGE_SIZE_MAX = 1000
"""The most that one page shows. Who asks for as many gets a token with them where there are more."""

Term = tuple[list[str], str, bool]
"""A field of a view (its path), a text, and whether the field is to be another than that."""


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
    terms: tuple[Term, ...] = ()
    """Of the filter."""
    unchecked: tuple[tuple[str, str], ...] = ()
    """(parameter, field) of what is filtered and ordered by, where the kind has no declared view to know them from."""

    def seen(self, item: dict[str, Any]) -> dict[str, Any] | None:
        """The item as its reader may see it, where it may at all; whatever the filter."""
        if self.caller is None:
            return item
        return self.caller.hide(item) if _visible(self.caller, item) else None

    def show(self, item: dict[str, Any]) -> dict[str, Any] | None:
        """The same, where the filter lets it pass."""
        seen = self.seen(item)
        return seen if seen is not None and self.matches(seen) else None

    @property
    def selects(self) -> bool:
        """Whether there is a filter."""
        return self.matches is not _everything

    @property
    def shows_all(self) -> bool:
        return not self.selects and (self.caller is None or self.caller.sees_all)

    def narrowed(self, **fields: str | None) -> ListParams:
        """The same, of the resources alone in which each of the fields that are not None is that."""
        terms = self.terms + tuple(([name], value, False) for name, value in fields.items() if value is not None)
        return replace(self, terms=terms, matches=_predicate(terms))


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
    watch: Annotated[
        bool,
        Query(
            description="server-sent events instead of a page: what is there and a bookmark, or the changes after "
            "`resourceVersion`; what comes to match `filter` is ADDED, what no longer does is DELETED"
        ),
    ] = False,
    resource_version: Annotated[int | None, Query(alias="resourceVersion", ge=0)] = None,
) -> ListParams:
    # A coroutine, so that FastAPI does not send every list through its thread pool.
    caller: Caller | None = getattr(request.state, "caller", None)
    view = caller.rule.view if caller is not None else None
    known = None if view is None else frozenset(each.alias or name for name, each in view.model_fields.items())
    ordered = [path.split(".")[0] for path, _ in order_fields(order_by)] if order_by else []
    for field in ordered:
        if known is not None and field not in known:
            raise InvalidField(f"there is no field {field[:40]!r} to order by", field="orderBy")
    terms = _filter_terms(filter, known)
    unchecked: list[tuple[str, str]] = []
    if known is None:
        unchecked = [*(("filter", path[0]) for path, _, _ in terms), *(("orderBy", field) for field in ordered)]
    page_size = min(page_size, PAGE_SIZE_MAX)
    return ListParams(
        page_size, page_token, _predicate(terms), order_by, watch, resource_version, caller, terms, tuple(unchecked)
    )


Params = Annotated[ListParams, Depends(_list_params)]
IfMatch = Annotated[str | None, Header(alias="If-Match")]
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="sent twice, one thing is made"),
]
ValidateOnly = Annotated[bool, Query(alias="validateOnly", description="run everything but the commit")]


def _everything(view: dict[str, Any]) -> bool:
    return True


def parse_filter(text: str | None, known: Container[str] | None = None) -> Callable[[dict[str, Any]], bool]:
    """A filter as a predicate over views; raises InvalidField where it cannot be read, or names no `known` field."""
    return _predicate(_filter_terms(text, known))


def _predicate(terms: tuple[Term, ...]) -> Callable[[dict[str, Any]], bool]:
    if not terms:
        return _everything
    return lambda view: all((as_text(field_at(view, path)) == value) != negated for path, value, negated in terms)


def _filter_terms(text: str | None, known: Container[str] | None) -> tuple[Term, ...]:
    """Raises InvalidField where it cannot be read, or names no `known` field."""
    terms = tuple(_read_terms(text)) if text else ()
    for path, _, _ in terms:
        if known is not None and path[0] not in known:
            raise InvalidField(f"there is no field {'.'.join(path)[:40]!r} to filter by", field="filter")
    return terms


ANOTHER_TERM = re.compile(r"(,\s*|\s+and\s+|\s*&&\s*)[A-Za-z][\w.]*!?=")
"""What would be the next term, were it not joined as nobody here joins terms; without quotes it is in no value."""


def _read_terms(text: str) -> Iterator[Term]:
    """Raises InvalidField."""
    for part in text.split(" AND "):
        path, found, value = part.partition("=")
        negated = path.endswith("!")
        path = path.removesuffix("!").strip()
        other = ANOTHER_TERM.search(value) if not value.strip().startswith('"') else None
        if not found or not path or other:
            raise InvalidField(
                f"cannot read {part!r}; write field=value or field!=value, joined by AND", field="filter"
            )
        yield path.split("."), value.strip().strip('"'), negated


def field_at(view: Any, path: list[str]) -> Any:
    for step in path:
        view = view.get(step) if isinstance(view, dict) else None
    return view


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def order_fields(text: str | None) -> list[tuple[str, bool]]:
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
