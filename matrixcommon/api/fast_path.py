"""Routes that are asked often, answered without a framework in between.

FastAPI finds a route, reads what the route wants of the request and checks it, in about as long as the whole of a
decision takes. A route that is `hot` is declared to it like any other, so that it is documented, validated and refused
like any other. A plain request to it (no query, a sound JSON body) is read here, with the same model, and handed to the
same function; whatever is not plain goes the ordinary way.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import orjson
from fastapi import APIRouter, Response
from pydantic import ValidationError

from matrixcommon.api.authorization import AccessRules, Caller, Principal, Rule
from matrixcommon.model.resource_model import ApiModel

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])

PROJECT_ALONE = re.compile(rb"project=[-a-z0-9]{1,63}")
"""A query that names the project and nothing else."""


@dataclass(frozen=True)
class FastRoute:
    """`handler(key, caller=..., if_match=...)`, with `body=...` where it has a model, answers `method` on `path` and a
    name. Where it is `whole`, `handler(body=..., caller=...)` answers on that path itself."""

    method: str
    path: str
    body: type[ApiModel] | None
    handler: Callable[..., Awaitable[Response]]
    whole: bool = False


class FastRouter(APIRouter):
    """A router that also lists which of its routes are hot."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix=prefix)
        self.hot_routes: list[FastRoute] = []

    def hot(self, method: str, collection: str, body: type[ApiModel] | None = None) -> Callable[[Handler], Handler]:
        """Beside the route's own decorator: plain requests for one resource of `collection` come here directly."""

        def noted(action: Handler) -> Handler:
            self.hot_routes.append(FastRoute(method, f"{self.prefix}/{collection}/", body, action))
            return action

        return noted

    def hot_post(self, collection: str, body: type[ApiModel]) -> Callable[[Handler], Handler]:
        """The same for what is posted to a collection."""

        def noted(action: Handler) -> Handler:
            self.hot_routes.append(FastRoute("POST", f"{self.prefix}/{collection}", body, action, whole=True))
            return action

        return noted


class FastPath:
    """The hot routes of some routers, each with its rule."""

    def __init__(self, routers: Iterable[APIRouter], rules: AccessRules) -> None:
        self._routes: dict[tuple[str, str], tuple[FastRoute, Rule]] = {}
        hot = [each for router in routers if isinstance(router, FastRouter) for each in router.hot_routes]
        for each in hot:
            rule = rules.find(each.method, each.path if each.whole else each.path + "{name}")
            if rule is None:
                raise LookupError(f"{rules.service}: nobody has decided who may {each.method} {each.path}")
            self._routes[each.method, each.path] = each, rule

    def find(
        self, method: str, path: str, query: bytes, headers: dict[str, str], body: bytes | None, principal: Principal
    ) -> tuple[Caller, Callable[[], Awaitable[Response]]] | None:
        """The caller, and what answers it; None where the request has to go the ordinary way. Raises Forbidden,
        NotFound."""
        cut = path.rfind("/") + 1
        found = self._routes.get((method, path[:cut])) or self._routes.get((method, path))
        if found is None or cut == len(path) or (query and not PROJECT_ALONE.fullmatch(query)):
            return None
        route, rule = found
        caller = rule.admit(principal, query[8:].decode() if query else None)
        more: dict[str, Any] = {"caller": caller}
        if route.body is not None:
            if body is None or headers.get("content-type", "").partition(";")[0] != "application/json":
                return None
            try:
                more["body"] = route.body.model_validate(orjson.loads(body))
            except (ValidationError, orjson.JSONDecodeError):
                return None
        if route.whole:
            return caller, partial(route.handler, **more)
        return caller, partial(route.handler, caller.key(path[cut:]), if_match=headers.get("if-match"), **more)
