"""Cache what FastAPI derives from type annotations, once per test process, however many services start in it.

A service builds some 70 routes with a validator for each parameter and body, which takes half of its start-up time. The
same annotation gives the same validator, so services that are started repeatedly share them. The same holds for the
signature of a function that is created anew from the same code. What FastAPI derives from a parameter's declaration at
each request is cached too.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature
from types import CodeType, FunctionType
from typing import Any, get_args

from fastapi import routing
from fastapi._compat import v2
from fastapi.dependencies import models, utils
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


_signature_of = utils._get_signature
_signatures: dict[tuple[Any, ...], Signature] = {}


def _signature(call: Callable[..., Any]) -> Signature:
    if not isinstance(call, FunctionType) or "__signature__" in vars(call) or "__wrapped__" in vars(call):
        return _signature_of(call)
    given = *call.__annotations__.items(), call.__defaults__, *(call.__kwdefaults__ or {}).items()
    try:
        found = _signatures.get(key := (call.__code__, given))
    except TypeError:  # a default that cannot be looked up
        return _signature_of(call)
    if found is None:
        found = _signatures[key] = _signature_of(call)
    return found


_analyze = utils.analyze_param
_analyzed: dict[tuple[Any, ...], tuple[Any, Any, utils.ParamDetails]] = {}
"""Keyed by identity of the annotation and the default, which are stored too so that their identities stay valid."""


def _parameter(*, param_name: str, annotation: Any, value: Any, path_param_names: set[str]) -> utils.ParamDetails:
    key = (param_name, id(annotation), id(value), param_name in path_param_names)
    if found := _analyzed.get(key):
        return found[2]
    details = _analyze(param_name=param_name, annotation=annotation, value=value, path_param_names=path_param_names)
    if details.depends is None:  # a parameter that depends on a function belongs to one service
        _analyzed[key] = annotation, value, details
    return details


_memo: dict[tuple[Any, ...], tuple[Any, Any]] = {}
"""What FastAPI derives from a parameter's declaration at each request, stored with that declaration."""


def _memoised(compute: Callable[..., Any]) -> Callable[..., Any]:
    def memoised(of: Any, **how: Any) -> Any:
        key = (compute, id(of), *how.items())
        if (found := _memo.get(key)) is None:
            found = _memo[key] = of, compute(of, **how)
        return found[1]

    return memoised


_original_endpoint_context = routing._extract_endpoint_context
_endpoint_contexts: dict[CodeType, Any] = {}


def _endpoint_context(call: Callable[..., Any]) -> Any:
    """Return a function's source location, which FastAPI looks up for every endpoint."""
    if not isinstance(call, FunctionType):
        return _original_endpoint_context(call)
    if (found := _endpoint_contexts.get(call.__code__)) is None:
        found = _endpoint_contexts[call.__code__] = _original_endpoint_context(call)
    return found.copy()


def install() -> None:
    """Install the caches in this process."""
    if utils.analyze_param is _parameter:
        return
    for name in ("_get_param_model", "_get_param_aliases", "field_annotation_is_sequence"):
        setattr(utils, name, _memoised(getattr(utils, name)))
    utils.analyze_param = _parameter
    v2.TypeAdapter = _adapter  # type: ignore[assignment,misc]
    utils._get_signature = _signature
    routing._extract_endpoint_context = _endpoint_context  # type: ignore[assignment]


def release() -> None:
    """Clear the caches once a stack has ended. FastAPI caches for thousands of functions whether they are coroutines;
    through these functions every ended service would stay in memory and be visited by each garbage collection."""
    _memo.clear()
    for remembered in vars(models).values():
        if hasattr(remembered, "cache_clear"):
            remembered.cache_clear()
