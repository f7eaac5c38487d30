"""What FastAPI makes of types is made once in a process of tests, however many services begin in it.

A service builds some 70 routes, and each parameter and body of a route a validator: half of the time that it takes to
start. Of the same annotation the validator is the same, so services that are started over and over share them.
"""

from __future__ import annotations

from typing import Any, get_args

from fastapi._compat import v2
from fastapi.dependencies import models
from pydantic import TypeAdapter

_made: dict[tuple[Any, ...], TypeAdapter[Any]] = {}


def _adapter(annotated: Any, *, config: Any = None) -> TypeAdapter[Any]:
    annotation, *metadata = get_args(annotated)
    key = (annotation, *map(repr, metadata), repr(config))
    try:
        if key not in _made:
            _made[key] = TypeAdapter(annotated, config=config)
        return _made[key]
    except TypeError:  # an annotation that cannot be looked up
        return TypeAdapter(annotated, config=config)


def install() -> None:
    """From now on, in this process."""
    v2.TypeAdapter = _adapter  # type: ignore[assignment,misc]


def release() -> None:
    """To be called once a stack has ended. FastAPI remembers of thousands of functions whether they are coroutines; by
    these functions every service that had them would stay in memory, and be gone through at each collection of garbage.
    """
    for remembered in vars(models).values():
        if hasattr(remembered, "cache_clear"):
            remembered.cache_clear()
