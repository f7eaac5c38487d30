"""The query parameters of every list: filter, order, page, or watch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from matrixcommon.api.authorization import Caller, Scope
from matrixcommon.api.declared_fields import require_field
from matrixcommon.api.filters import Term, filter_terms, match_all, predicate
from matrixcommon.model.errors import InvalidField

PAGE_SIZE_MAX = 1000
"""The largest page. If there are more resources, the page has a token for the next one."""


@dataclass
class ListParams:
    """The parsed query of a list."""

    page_size: int
    page_token: str | None
    matches: Callable[[dict[str, Any]], bool]
    order_by: str | None
    watch: bool
    resource_version: int | None
    caller: Caller | None = None
    terms: tuple[Term, ...] = ()
    """The terms of the filter."""
    undeclared_fields: tuple[tuple[str, str], ...] = ()
    """(parameter, field) of the filter and the order, where the kind declares no view to check them against."""
    path: str = ""
    query: tuple[tuple[str, str], ...] = ()
    """The parameters as sent, sorted by name."""

    @property
    def viewer(self) -> Hashable:
        """Equal for callers who see the same of the resources of this list."""
        if self.caller is None:
            return None
        principal = self.caller.principal
        return self.path, self.caller.named, principal.role, principal.project, principal.nodes

    @property
    def watched(self) -> Hashable:
        """Equal for watches that show the same, wherever they begin."""
        asked = tuple(each for each in self.query if each[0] != "resourceVersion")
        return self.path, asked, str(self.terms), self.viewer

    def seen(self, item: dict[str, Any]) -> dict[str, Any] | None:
        """The item as the caller may see it, or None if it may not; ignores the filter."""
        if self.caller is None:
            return item
        return self.caller.hide(item) if _is_visible(self.caller, item) else None

    def show(self, item: dict[str, Any]) -> dict[str, Any] | None:
        """The item as the caller may see it, or None if it may not or the filter does not match."""
        seen = self.seen(item)
        return seen if seen is not None and self.matches(seen) else None

    @property
    def selects(self) -> bool:
        """Whether there is a filter."""
        return self.matches is not match_all

    def refuse_paging(self) -> None:
        """Raises InvalidField if a watch was sent parameters that only pages have."""
        for name, _ in self.query:
            if name in ("pageSize", "pageToken", "orderBy"):
                raise InvalidField(f"a watch has neither pages nor an order: leave {name} out", field=name)

    @property
    def digest(self) -> str:
        """A hash of what determines the resources of the list and their order. A page token is valid for that alone."""
        decides = [each for each in self.query if each[0] not in ("pageSize", "pageToken")]
        return hashlib.sha256(repr((self.path, decides)).encode()).hexdigest()[:12]

    @property
    def selects_all(self) -> bool:
        return not self.selects and (self.caller is None or self.caller.can_see_all)

    def restricted_to(self, **fields: str | None) -> ListParams:
        """The same query, restricted to resources whose `fields` have these values; None does not restrict."""
        terms = self.terms + tuple(([name], value, False) for name, value in fields.items() if value is not None)
        return replace(self, terms=terms, matches=predicate(terms))


def _is_visible(caller: Caller, item: dict[str, Any]) -> bool:
    """Whether lists show this item to the caller."""
    scope, project = caller.rule.scope, item.get("project")
    if scope is Scope.NODE and caller.principal.role == "agent":
        return caller.principal.may_report_for(item.get("node") or item["name"])
    if scope is Scope.SHARED:
        return any(caller.sees(owner) for owner in item["projects"])
    if scope is Scope.MIXED:
        return project is None or caller.sees(project)
    return scope not in (Scope.PROJECT, Scope.ITSELF, Scope.NODE) or caller.sees(project)


class ListQuery(BaseModel):
    """The query as sent. A single parameter for FastAPI, which examines every parameter of every route."""

    model_config = ConfigDict(alias_generator=to_camel)

    page_size: Annotated[int, Field(ge=1, le=1000, description="the most resources on a page")] = 500
    page_token: Annotated[
        str | None, Field(description="`nextPageToken` of the previous page, with the same filter and order as then")
    ] = None
    filter: Annotated[
        str | None,
        Field(description="terms joined by AND: field=value or field!=value; a list matches if any entry does"),
    ] = None
    order_by: Annotated[
        str | None, Field(description="fields separated by ',', each followed by ' desc' for descending order")
    ] = None
    watch: Annotated[
        bool,
        Field(
            description="server-sent events instead of a page: the present resources and a bookmark, or the changes "
            "after `resourceVersion`; a resource is ADDED when it begins to match `filter`, DELETED when it ceases to"
        ),
    ] = False
    resource_version: Annotated[
        int | None, Field(ge=0, description="only with `watch`: `resourceVersion` after which changes are sent")
    ] = None


async def _list_params(request: Request, query: Annotated[ListQuery, Query()]) -> ListParams:
    # A coroutine, so that FastAPI does not send every list through its thread pool.
    caller = getattr(request.state, "caller", None)
    return list_params(query, caller, request.url.path, request.query_params.multi_items())


def list_params(query: ListQuery, caller: Caller | None, path: str, sent: Iterable[tuple[str, str]]) -> ListParams:
    """Parse a query that `caller` sent to `path`. Raises InvalidField."""
    view = caller.rule.view if caller is not None else None
    if query.resource_version is not None and not query.watch:
        raise InvalidField(
            "a list shows the present only: use resourceVersion with watch=true", field="resourceVersion"
        )
    ordered = [path.split(".") for path, _ in order_fields(query.order_by)] if query.order_by else []
    for field in ordered:
        require_field(view, field, "orderBy")
    terms = filter_terms(query.filter, view)
    unchecked: list[tuple[str, str]] = []
    if view is None:
        unchecked = [*(("filter", field[0]) for field, _, _ in terms), *(("orderBy", field[0]) for field in ordered)]
    return ListParams(
        min(query.page_size, PAGE_SIZE_MAX),
        query.page_token,
        predicate(terms),
        query.order_by,
        query.watch,
        query.resource_version,
        caller,
        terms,
        tuple(unchecked),
        path,
        tuple(sorted(sent)),
    )


Params = Annotated[ListParams, Depends(_list_params)]
IfMatch = Annotated[str | None, Header(alias="If-Match")]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="`*`: only if there is none of that name yet, else 412")
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="a request repeated with the same key creates nothing new",
    ),
]
ValidateOnly = Annotated[bool, Query(alias="validateOnly", description="do everything except commit")]


def order_fields(text: str | None) -> list[tuple[str, bool]]:
    """Parse an order such as `state, name desc` into (field, whether descending). Raises InvalidField."""
    found = []
    for part in (text or "name").split(","):
        field, _, direction = part.strip().partition(" ")
        if not field or direction.strip() not in ("", "asc", "desc"):
            raise InvalidField(
                f"cannot read {part[:40]!r}; write field or 'field desc', joined by ','", field="orderBy"
            )
        found.append((field, direction.strip() == "desc"))
    return found
