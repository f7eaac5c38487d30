"""Routes that are asked often, answered without a framework in between.

FastAPI finds a route, reads what the route wants of the request and checks it, in about as long as the whole of a
decision takes. A route that is `hot` is declared to it like any other, so that it is documented, validated and refused
like any other. A plain request to it (no query, a sound JSON body) is read here, with the same model, and handed to the
same function; whatever is not plain goes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from fastapi import APIRouter, Response
from pydantic import ValidationError

from matrixcommon.model.resource_model import ApiModel

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])


@dataclass(frozen=True)
class FastRoute:
    """`action(name, if_match=...)`, with `body=...` where it has a model, answers `method` on `path` and a name. With
    `asker=...`, who asks, where it `asks_who`. Where it is `whole`, `action(body=...)` answers on that path itself."""

    method: str
    path: str
    body: type[ApiModel] | None
    handler: Callable[..., Awaitable[Response]]
    asks_who: bool = False
    whole: bool = False


class FastRouter(APIRouter):
    """A router that also lists which of its routes are hot."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix=prefix)
        self.hot_routes: list[FastRoute] = []

    def hot(
        self, method: str, collection: str, body: type[ApiModel] | None = None, *, asks_who: bool = False
    ) -> Callable[[Handler], Handler]:
        """Beside the route's own decorator: plain requests for one resource of `collection` come here directly."""

        def noted(action: Handler) -> Handler:
            self.hot_routes.append(FastRoute(method, f"{self.prefix}/{collection}/", body, action, asks_who))
            return action

        return noted

    def hot_post(self, collection: str, body: type[ApiModel]) -> Callable[[Handler], Handler]:
        """The same for what is posted to a collection."""

        def noted(action: Handler) -> Handler:
            self.hot_routes.append(FastRoute("POST", f"{self.prefix}/{collection}", body, action, whole=True))
            return action

        return noted


class FastPath:
    """The hot routes of some routers."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        hot = [each for router in routers if isinstance(router, FastRouter) for each in router.hot_routes]
        self._routes = {(each.method, each.path): each for each in hot}

    def answer(
        self, method: str, path: str, query: bytes, headers: dict[str, str], body: bytes | None, asker: object = None
    ) -> Awaitable[Response] | None:
        """The answer under way, or None where the request has to go the ordinary way. `asker`: whom the request's token
        stands for."""
        cut = path.rfind("/") + 1
        route = self._routes.get((method, path[:cut])) or self._routes.get((method, path))
        if route is None or query or cut == len(path):
            return None
        more: dict[str, Any] = {} if route.whole else {"if_match": headers.get("if-match")}
        if route.asks_who:
            more["asker"] = asker
        if route.body is not None:
            if body is None or headers.get("content-type", "").partition(";")[0] != "application/json":
                return None
            try:
                more["body"] = route.body.model_validate(orjson.loads(body))
            except (ValidationError, orjson.JSONDecodeError):
                return None
        return route.handler(**more) if route.whole else route.handler(path[cut:], **more)
