"""The verbs of resources (`POST /v1/instances/a:stop`), by path, for requests with a method that they do not have.

To a router such a path is that of a resource named `a:stop`, which does not exist: a GET, PUT or DELETE of it would be
answered with 404, or with what is wrong with that name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import compile_path


class VerbRoutes:
    """The routes of some routers that end with a verb."""

    def __init__(self, routers: Sequence[APIRouter]) -> None:
        self._routers = routers

    def methods(self, path: str) -> frozenset[str]:
        """The methods served at a path that ends with a verb; empty for any other path."""
        resource, colon, verb = path.rpartition(":")
        if not colon or "/" in verb:
            return frozenset()
        return frozenset(
            method for pattern, methods in self._by_verb.get(verb, ()) if pattern.match(resource) for method in methods
        )

    def known_verbs(self, resource: str) -> list[str]:
        """The verbs of the resource at that path."""
        return sorted(verb for verb, routes in self._by_verb.items() if any(each.match(resource) for each, _ in routes))

    @cached_property
    def _by_verb(self) -> dict[str, list[tuple[re.Pattern[str], Iterable[str]]]]:
        found: dict[str, list[tuple[re.Pattern[str], Iterable[str]]]] = defaultdict(list)
        for route in (each for router in self._routers for each in router.routes if isinstance(each, APIRoute)):
            pattern, colon, verb = route.path.rpartition(":")
            if colon and verb.isidentifier():
                found[verb].append((compile_path(pattern)[0], route.methods or ()))
        return found
