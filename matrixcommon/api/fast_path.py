"""The fast path: frequent requests are answered without going through FastAPI.

FastAPI needs about as long to match a route and validate the request as a whole decision takes. A `hot` route is
declared to FastAPI like any other, so that it is documented and behaves like any other. A plain request to it (no query
except a project, a valid JSON body) is parsed here with the same model and passed to the same function; other requests
take the ordinary path. The same holds for reads: of one resource, and of a page of a list with or without a filter.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import orjson
from fastapi import APIRouter, Depends, Response
from pydantic import ValidationError

from matrixcommon.api.authorization import AccessRules, Caller, Guard, Principal, Rule
from matrixcommon.api.deferred_route import DeferredRoute
from matrixcommon.api.list_params import ListParams, ListQuery, list_params
from matrixcommon.api.query_parameters import QueryParameters, has_content
from matrixcommon.api.storable_text import may_be_unstorable, refuse_unstorable_text
from matrixcommon.model.resource_model import ApiModel

T = TypeVar("T")

PROJECT_ONLY_QUERY = re.compile(rb"project=[-a-z0-9]{1,63}")
"""A query with only the project."""
PLAIN_LIST_QUERY = re.compile(rb"pageSize=(1000|[1-9][0-9]{0,2})(?:&filter=[-\w.~*+!%]{1,500})?", re.ASCII)
"""A query for the first page of a list, as this project's clients send it."""


@dataclass(frozen=True)
class FastRoute:
    """`handler` answers `method` on `path`. `key`: its parameter for the key of the resource named after the path, ""
    for none. `body`: its parameter for the body, and the body's model. `takes_project`: the query may name a project.
    """

    method: str
    path: str
    key: str
    body: tuple[str, type[ApiModel]] | None
    handler: Callable[..., Awaitable[Response]]
    takes_project: bool


class FastRouter(APIRouter):
    """A router that refuses what its routes do not accept, and knows which of them are hot."""

    def __init__(self, prefix: str) -> None:
        parameters = QueryParameters()
        guard = Guard(parameters.refuse_unknown, parameters.refuse_unread_body, refuse_unstorable_text)
        super().__init__(prefix=prefix, dependencies=[Depends(guard)], route_class=DeferredRoute)
        self.fast_routes: list[FastRoute] = []
        self.fast_lookups: dict[str, Callable[[str], Response]] = {}
        """By the path before the name: the function that answers for a key."""
        self.fast_lists: dict[str, Callable[[ListParams], Response]] = {}
        """By path: the function that answers with a page."""


class FastPath:
    """The hot routes of some routers, each with its access rule."""

    def __init__(self, routers: Iterable[APIRouter], rules: AccessRules) -> None:
        self._routes: dict[tuple[str, str], tuple[FastRoute, Rule]] = {}
        self._lookups: dict[str, tuple[Callable[[str], Response], Rule]] = {}
        self._lists: dict[str, tuple[Callable[[ListParams], Response], Rule]] = {}
        for router in (each for each in routers if isinstance(each, FastRouter)):
            for each in router.fast_routes:
                rule = _rule(rules, each.method, each.path + "{name}" if each.key else each.path)
                self._routes[each.method, each.path] = each, rule
            for path, show in router.fast_lookups.items():
                self._lookups[path] = show, _rule(rules, "GET", path + "{name}")
            for path, show_page in router.fast_lists.items():
                self._lists[path] = show_page, _rule(rules, "GET", path)

    def find(
        self, method: str, path: str, query: bytes, headers: dict[str, str], body: bytes | None, principal: Principal
    ) -> tuple[Caller, Callable[[], Awaitable[Response]]] | None:
        """The caller and a function that answers the request; None if it has to take the ordinary path. Raises
        Forbidden, InvalidField, NotFound."""
        if method == "GET":
            return None if "\0" in path or has_content(body) else self._look(path, query, principal)
        cut = path.rfind("/") + 1
        found = self._routes.get((method, path[:cut])) or self._routes.get((method, path))
        if found is None or cut == len(path):
            return None
        route, rule = found
        if query and not (route.takes_project and PROJECT_ONLY_QUERY.fullmatch(query)):
            return None
        if (not route.key and "if-match" in headers) or "if-none-match" in headers or "\0" in path:
            return None
        if route.body is None and has_content(body):
            return None
        caller = rule.admit(principal, query[8:].decode() if query else None)
        more: dict[str, Any] = {"caller": caller}
        if route.key:
            more |= {route.key: caller.key(path[cut:]), "if_match": headers.get("if-match")}
        if route.body is not None:
            name, model = route.body
            if body is None or headers.get("content-type", "").partition(";")[0] != "application/json":
                return None
            if may_be_unstorable(body):
                return None
            try:
                more[name] = model.model_validate(orjson.loads(body))
            except (ValidationError, orjson.JSONDecodeError):
                return None
        return caller, partial(route.handler, **more)

    def _look(
        self, path: str, query: bytes, principal: Principal
    ) -> tuple[Caller, Callable[[], Awaitable[Response]]] | None:
        """The same for reads."""
        if (listed := self._lists.get(path)) is not None:
            asked = _parse_plain_list(query)
            if asked is None:
                return None
            show_page, rule = listed
            caller = rule.admit(principal)
            return caller, partial(_respond, show_page, list_params(asked[0], caller, path, asked[1]))
        cut = path.rfind("/") + 1
        found = self._lookups.get(path[:cut])
        if found is None or cut == len(path) or (query and not PROJECT_ONLY_QUERY.fullmatch(query)):
            return None
        show, rule = found
        caller = rule.admit(principal, query[8:].decode() if query else None)
        return caller, partial(_respond, show, caller.key(path[cut:]))


async def _respond(show: Callable[[T], Response], asked: T) -> Response:
    return show(asked)


@lru_cache(maxsize=256)
def _parse_plain_list(query: bytes) -> tuple[ListQuery, list[tuple[str, str]]] | None:
    """The query of a list, parsed and as sent; None if it is not for a plain page."""
    if (found := PLAIN_LIST_QUERY.fullmatch(query)) is None or b"%00" in query:
        return None
    sent = parse_qsl(query.decode())
    return ListQuery.model_validate({"pageSize": int(found[1])} | dict(sent[1:])), sent


def _rule(rules: AccessRules, method: str, path: str) -> Rule:
    """The access rule of a route. Raises LookupError."""
    if (rule := rules.find(method, path)) is None:
        raise LookupError(f"{rules.service}: there is no access rule for {method} {path}")
    return rule
