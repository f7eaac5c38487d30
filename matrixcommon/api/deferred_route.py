"""Routes that FastAPI analyses at their first request instead of at startup.

FastAPI derives models of every parameter, validators and dependencies from a route's signature, which takes two to five
milliseconds. A service has up to eighty routes, and most processes serve only a few of them. Until then a route knows
only what is needed to match it: its path, its methods, and its dependencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastapi.params import Depends
from fastapi.routing import APIRoute
from starlette.routing import compile_path


class DeferredRoute(APIRoute):
    """For `route_class` of a router. Access to any other attribute, by the first request or the OpenAPI document, has
    FastAPI analyse it; errors in its declaration are raised only then."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        methods: Iterable[str] | None = None,
        dependencies: Iterable[Depends] | None = None,
        **options: Any,
    ) -> None:
        self.path, self.endpoint = path, endpoint
        self.methods = {method.upper() for method in methods or ("GET",)}
        self.dependencies = list(dependencies or ())
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._options = options

    def __getattr__(self, name: str) -> Any:
        options = self.__dict__.pop("_options", None)
        if options is None:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        super().__init__(self.path, self.endpoint, methods=self.methods, dependencies=self.dependencies, **options)
        return getattr(self, name)
