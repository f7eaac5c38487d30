"""Routes that FastAPI looks into when they are first asked, not when the process starts.

What a route takes is worked out from its signature: models of every parameter, validators, dependencies, in two to five
milliseconds. A service has up to eighty, and most lives of most processes ask a few of them. Until then a route knows
what it takes to be found: its path, its methods, and what guards it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fastapi.params import Depends
from fastapi.routing import APIRoute
from starlette.routing import compile_path


class DeferredRoute(APIRoute):
    """For `route_class` of a router. Whatever else is asked of it, by its first request or the OpenAPI document, has it
    worked out; what FastAPI refuses of its declaration it refuses then."""

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
