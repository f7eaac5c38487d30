"""The routes of a resource kind, generated from its declaration.

What the routes of all kinds have in common is handled here and not in handlers: the key of the resource in the path,
the project of resources named in the body, `If-Match`, `validateOnly`, `Idempotency-Key`, the encoding of answers, and
the OpenAPI description of all that. A handler is a verb of the domain: a function of the resource's key and whatever
else it needs, whose parameters become those of the route.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, TypeVar, cast, get_args

from fastapi import Depends, Query, Request, Response
from sqlalchemy import Select, String, bindparam, select
from sqlalchemy.orm import Session

from matrixcommon.api.authorization import READ, Caller, ResourceKind, Scope
from matrixcommon.api.declared_change import DeclaredChange
from matrixcommon.api.fast_path import FastRouter
from matrixcommon.api.filters import Term
from matrixcommon.api.list_params import ListParams, Params
from matrixcommon.api.listing import json_response, list_or_watch, list_page, page_responses
from matrixcommon.api.mutations import Mutations, RowKey
from matrixcommon.model.errors import Conflict, Malformed, NotFound
from matrixcommon.model.resource_key import name_of
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.persistence.database_session import ABSENT, Database, find
from matrixcommon.persistence.searches import run_with_searches

Action = TypeVar("Action", bound=Callable[..., Any])
Parameter = inspect.Parameter


async def _declare_project(
    project: Annotated[
        str | None, Query(description="the project, for callers with several; by default the token's own")
    ] = None,
) -> None:
    """Declares the parameter, which `authorization.Guard` reads."""


PROJECT_QUERY = [Depends(_declare_project)]
"""Dependencies of routes that honour `?project=`."""


PROJECT_SCOPES = (Scope.PROJECT, Scope.SHARED, Scope.MIXED, Scope.ITSELF)

RowsToViews = Callable[[Session, Sequence[Any]], Iterable[ApiModel]]
"""Makes the views of several rows together, so that shared work is done once."""


class ResourceRoutes:
    """Routes under /v1 on one database; without a database resources have no version and cannot be watched."""

    def __init__(self, records: Database | None = None) -> None:
        self.router = FastRouter(prefix="/v1")
        self.records = records
        self.mutations = None if records is None else Mutations(records)

    def of(self, kind: ResourceKind) -> KindRoutes:
        return KindRoutes(self, kind)


class KindRoutes:
    """The routes of one kind. Verbs are written as in the declaration: `PUT`, `POST :renew`, `GET /flows`."""

    def __init__(self, routes: ResourceRoutes, kind: ResourceKind) -> None:
        self._kind = kind
        self._router, self._records, self._mutations = routes.router, routes.records, routes.mutations
        self._noun = kind.collection.replace("-", "_")
        self._views: Callable[[], Iterable[ApiModel]] | None = None

    def _projects(self, verb: str) -> Sequence[Any]:
        desired = self._kind.scope is Scope.NODE and verb in READ  # the desired state of agents belongs to projects
        return PROJECT_QUERY if desired or self._kind.scope in PROJECT_SCOPES else ()

    # -- reading -------------------------------------------------------------------------------------------------------

    def list(
        self,
        views: Callable[[], Iterable[ApiModel]] | None = None,
        *,
        rows_shown: RowsToViews | None = None,
        order_by: str | None = None,
        **options: Any,
    ) -> None:
        """The route that lists or watches the kind. `views` makes the views; by default each row makes its own, or
        `rows_shown` makes them together. Kinds without rows are derived from others and need `views`."""

        self._views = views

        def views_for(params: ListParams) -> Callable[[], Iterable[ApiModel]]:
            params.order_by = params.order_by or order_by
            return views or partial(self._rows, params.terms, rows_shown)

        async def handler(request: Request, params: Params) -> Response:
            return list_or_watch(request, params, self._records, self._kind.row, views_for(params))

        described = {"name": f"list_{self._noun}", "responses": page_responses(self._kind.view)}
        self._add("LIST", handler, **{**described, **options})
        _, path = self._kind.route("LIST")
        self._router.fast_lists[path] = lambda params: list_page(params, self._records, views_for(params))

    def get(self, view: Callable[[Any], ApiModel] | None = None, **options: Any) -> None:
        """The route that returns one resource: the row's view, or what `view` makes from the key; without rows and
        `view`, its entry in the list."""

        def shown(name: Any) -> Response:
            return json_response((view or self._row)(name))

        async def handler(name: Any) -> Response:
            return shown(name)

        handler.__annotations__["name"] = self._kind.named
        name = f"get_{self._noun.removesuffix('s')}"
        self._add("GET", handler, **{"name": name, "response_model": self._kind.view, **options})
        if self._kind.scope in (Scope.PROJECT, Scope.SHARED):  # the name determines the key; no other parameters
            _, path = self._kind.route("GET", "")
            self._router.fast_lookups[path] = shown

    def ask(self, verb: str, **options: Any) -> Callable[[Action], Action]:
        """A decorator for a handler that changes nothing and is called by FastAPI directly."""

        if verb == "LIST" and self._kind.view is not None:
            options.setdefault("responses", page_responses(self._kind.view))

        def declare(action: Action) -> Action:
            self._add(verb, action, **options)
            return action

        return declare

    def _rows(self, terms: Iterable[Term], rows_shown: RowsToViews | None) -> Iterable[ApiModel]:
        """Views of the rows that may match; filters on columns are applied in the database, before views are made."""
        row = self._kind.row
        assert row is not None
        assert self._records is not None
        selected = [
            (path[0], text, other) for path, text, other in terms if len(path) == 1 and path[0] in row.SELECTABLE
        ]
        wanted = _rows_query(cast(Hashable, row), tuple((column, other) for column, _, other in selected))
        texts = {f"text{at}": text for at, (_, text, _) in enumerate(selected)}

        def found(session: Session) -> Sequence[Any]:
            return session.scalars(wanted, texts).all()

        if rows_shown is not None:  # their views depend on other rows too: cache only whether there are any
            if selected and not self._records.cached_query(
                row, ("any", *selected), lambda session: bool(found(session))
            ):
                return []
            with self._records.reading() as session:
                return rows_shown(session, found(session))
        asked = ("views", *selected)
        return self._records.cached_query(row, asked, lambda session: [each.view() for each in found(session)])

    def _row(self, key: str) -> ApiModel:
        if self._kind.row is None:
            assert self._views is not None
            found = next((view for view in self._views() if getattr(view, "name", None) == key), None)
            if found is None:
                raise NotFound(f"there is no {self._kind.singular} named {name_of(key)[:80]!r}", field="name")
            return found
        assert self._records is not None
        row = self._kind.row
        return self._records.cached_query(row, ("view", key), lambda session: find(session, row, key).view())

    # -- changing ------------------------------------------------------------------------------------------------------

    def change(
        self,
        verb: str,
        *,
        row: Callable[[Any], RowKey] | None = None,
        allowed: Callable[[Any, Caller], Any] | None = None,
        before: Callable[[Any], Awaitable[None]] | None = None,
        after: Callable[[], object] | None = None,
        shown: Callable[[Any], ApiModel] | None = None,
        fast: bool = False,
        **options: Any,
    ) -> Callable[[Action], Action]:
        """A decorator for a verb that changes something. The verb is decided in a group with others that wait, after
        `If-Match` (for PUT also `If-None-Match`) was compared with the key's `row`, and is rolled back if it is only
        validated. A verb with a parameter `validate_only` handles validation itself, outside of a group. A coroutine is
        never part of a group, and compares `if_match` itself if it has that parameter.

        The verb returns a view, or None if the resource is gone or has none. `allowed` raises if this caller may not
        use it, `before` if the request is invalid; `after` is called once it is done, and `shown` then makes the view
        of the key. `fast`: plain requests take the fast path.
        """

        def declare(action: Action) -> Action:
            change = DeclaredChange.of(self._kind, verb, action, row)
            if self._mutations is not None and inspect.iscoroutinefunction(action):
                assert "validate_only" in change.takes, f"{action.__qualname__} would commit what is only validated"

            async def handle(
                *,
                caller: Caller,
                validate_only: bool = False,
                if_match: str | None = None,
                if_none_match: str | None = None,
                idempotency_key: str | None = None,
                **given: Any,
            ) -> Response:
                if if_none_match is not None:
                    if_match = _absent_condition(if_match, if_none_match)
                made = change.claim(caller, given, idempotency_key)
                if allowed is not None:
                    allowed(given[change.key], caller)
                if before is not None and change.body is not None:
                    await before(given[change.body.name])
                if "caller" in change.takes:
                    given["caller"] = caller
                at = change.row(given[change.key]) if change.row is not None else None
                decide = partial(self._decide, action, given, change.takes, at, if_match, validate_only, verb == "PUT")
                try:
                    view = await run_with_searches(decide, None if self._records is None else self._records.executor)
                except Conflict as refused:
                    if made is None or refused.field != "name":
                        raise
                    raise _idempotency_conflict(idempotency_key) from refused
                if after is not None and not validate_only:
                    after()
                if shown is not None and not validate_only:
                    view = shown(given[change.key])
                return Response(status_code=204) if view is None else json_response(view, status)

            status, described = _response_options(change.returns)
            status = options.get("status_code", status)
            handle.__signature__ = change.signature()  # type: ignore[attr-defined]
            described |= {"name": action.__name__, "description": inspect.getdoc(action) or ""}
            described["dependencies"] = [*self._projects(verb), *change.refused_conditions()]
            self._add(verb, handle, parameter=change.key, **{**described, **options})
            if fast:
                self._router.fast_routes.append(change.fast_route(handle, bool(self._projects(verb))))
            return action

        return declare

    async def _decide(
        self,
        action: Callable[..., Any],
        given: dict[str, Any],
        takes: Iterable[str],
        row: RowKey | None,
        if_match: str | None,
        validate_only: bool,
        ensures: bool,
    ) -> Any:
        own = {"validate_only": validate_only, "if_match": if_match}
        own = {name: value for name, value in own.items() if name in takes}
        alone = inspect.iscoroutinefunction(action) or (validate_only and "validate_only" in own)
        if self._mutations is None or alone:
            if self._mutations is not None and "if_match" not in own:
                self._mutations.check(row, if_match, ensures)
            found = action(**given, **own)
            return await found if inspect.isawaitable(found) else found
        return await self._mutations.run(
            lambda: action(**given), validate_only=validate_only, row=row, if_match=if_match, ensures=ensures
        )

    def _add(self, verb: str, handler: Callable[..., Any], *, parameter: str = "name", **options: Any) -> None:
        if verb not in self._kind.verbs:
            raise LookupError(f"{self._kind.collection} declares no {verb}")
        method, path = self._kind.route(verb, f"{{{parameter}}}")
        options.setdefault("dependencies", self._projects(verb))
        self._router.add_api_route(path.removeprefix("/v1"), handler, methods=[method], **options)


def _absent_condition(if_match: str | None, if_none_match: str) -> str:
    """The value of `If-Match` that means `If-None-Match: *`. Raises Malformed."""
    if if_none_match.strip() != "*" or if_match is not None:
        raise Malformed("only * is supported, and not together with If-Match", field="If-None-Match")
    return ABSENT


def _idempotency_conflict(idempotency_key: str | None) -> Conflict:
    return Conflict(
        f"{idempotency_key!r} was used for another request; send this one with another key",
        field="Idempotency-Key",
    )


@lru_cache(maxsize=256)
def _rows_query(row: Any, columns: tuple[tuple[str, bool], ...]) -> Select[Any]:
    """A query for rows, ordered by version, whose columns equal, or differ from, the parameters `text0`, `text1`..."""
    wanted = select(row).order_by(row.version)
    for at, (name, other) in enumerate(columns):
        column, text = getattr(row, name), bindparam(f"text{at}", type_=String())
        wanted = wanted.where(column != text if other else column == text)
    return wanted


def _response_options(returned: Any) -> tuple[int, dict[str, Any]]:
    """The status of the answer and FastAPI's options for it, derived from the return type of a verb."""
    if returned is None:
        return 204, {"status_code": 204}
    if type(None) in (models := get_args(returned)):  # being deleted, or gone
        gone = {204: {"description": "it is gone"}}
        return 202, {"status_code": 202, "response_model": models[0], "responses": gone}
    return 200, {"response_model": returned}
