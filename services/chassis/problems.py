"""Conversion of exceptions to RFC 9457 problem documents, once, at the edge."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import Field
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from matrixcommon.api.declared_fields import suggest_fields
from matrixcommon.api.query_parameters import declared_names
from matrixcommon.model.errors import (
    InternalError,
    InvalidField,
    Malformed,
    MatrixError,
    MethodNotAllowed,
    NotFound,
    Unavailable,
)
from matrixcommon.model.resource_model import ApiModel
from matrixcommon.model.validation import validation_message
from services.chassis.database import database_unavailable_reason
from services.chassis.problem_document import ErrorRenderer, error_renderer
from services.chassis.verb_routes import VerbRoutes

log = logging.getLogger(__name__)


class Problem(ApiModel):
    """An error as an RFC 9457 problem document. `reason` is the machine-readable reason, `field` the wrong field,
    `blocking` the obstacles."""

    type: str = Field(description="URN of the kind of problem: `urn:cloudmatrix:problem:` and the reason")
    title: str = Field(description="short name of the kind of problem, the same as `reason`")
    status: int = Field(description="HTTP status of the response")
    reason: str = Field(description="why, as one word for programs; `matrixctl explain` has its meaning and what to do")
    detail: str = Field(description="why, as a sentence for people")
    field: str | None = Field(
        None,
        description="path of the wrong field, or name of the wrong parameter or header; absent if there is none",
    )
    blocking: list[dict[str, Any]] | None = Field(
        None,
        description="obstacles, such as domains without room, links without bandwidth, or each wrong field; absent if "
        "there are none",
    )
    instance: str = Field(description="path of the refused request")
    request_id: str = Field(description="id of the refused request, also in the logs and the X-Request-Id header")


def describe_errors(app: FastAPI) -> None:
    """Describe every error in the OpenAPI document as a `Problem`, unless its route declares another format, instead of
    FastAPI's defaults."""
    build_document = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = build_document()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = Problem.model_json_schema()
            for default_schema in ("HTTPValidationError", "ValidationError"):
                schemas.pop(default_schema, None)
            refusal = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
            for operation in (each for path in document["paths"].values() for each in path.values()):
                operation["responses"].pop("422", None)
                described = operation["responses"].setdefault("default", {"description": "the request is refused"})
                described.setdefault("content", refusal)  # unless the route declares another format
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


FIELD_ERROR_TYPES = ("missing", "value_error")
"""Types of errors whose field may be absent from the body: its default may conflict with other fields."""


def field_path(location: tuple[Any, ...], body: Any, missing: bool) -> str:
    """Format a location such as `("body", "members", 2, "name")` as `members[2].name`; parameters are one step deep.
    For a union, the location ends in the type that was tried: a step that is not in `body`, and is not `missing` there,
    is not a field."""
    place, *steps = location or ("",)
    if place != "body":
        return str(steps[0]) if steps else ""
    path = ""
    for at, step in enumerate(steps):
        if isinstance(step, int) and isinstance(body, list):
            path, body = f"{path}[{step}]", body[step] if step < len(body) else None
        elif isinstance(step, str) and isinstance(body, dict) and (step in body or (missing and at == len(steps) - 1)):
            path, body = f"{path}.{step}" if path else step, body.get(step)
    return path


def from_validation(wrong: RequestValidationError, declared: Any = Any, in_query: Collection[str] = ()) -> MatrixError:
    """An InvalidField whose field is that of the first error; all errors are in `blocking`. `declared`: the declared
    type of the body; `in_query`: the parameters of the query."""
    errors = wrong.errors()
    first = errors[0]
    if isinstance(wrong.body, bytes):  # a body that is not declared as JSON is not parsed
        return Malformed("send JSON with the header 'Content-Type: application/json'", field="Content-Type")
    if first["type"] == "json_invalid":
        return Malformed(f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}", field="body")
    lines = list[dict[str, Any]]()
    for error in errors:
        path = field_path(error["loc"], wrong.body, error["type"] in FIELD_ERROR_TYPES) or "body"
        message = validation_message(error)
        if error["type"] == "extra_forbidden":
            meant = suggest_fields(declared, re.sub(r"\[\d+]", "", path).split(".")) or ""
            message = f"unknown field{f'; give it in the query: ?{path}=' if path in in_query else meant}"
        if error["type"] == "missing" and error["loc"][:1] == ("query",):
            message = "required in the query"
        if (line := {"field": path, "message": message}) not in lines:
            lines.append(line)
    message = "; ".join(f"{line['field']}: {line['message']}" for line in lines[:5])
    return InvalidField(message, field=lines[0]["field"], blocking=lines)


def to_matrix_error(wrong: Exception, path: str, declared: Any = Any, in_query: Collection[str] = ()) -> MatrixError:
    """Convert an exception of a request to `path` to a MatrixError; unexpected ones are logged with a traceback.
    `declared`: the declared type of the body; `in_query`: the parameters of the query."""
    if isinstance(wrong, MatrixError):
        return wrong
    if isinstance(wrong, RequestValidationError):
        return from_validation(wrong, declared, in_query)
    if isinstance(wrong, HTTPException):
        if wrong.status_code == 404:
            return NotFound(f"no route at {path}; see /openapi.json for all routes")
        error = Malformed(str(wrong.detail))
        error.status = wrong.status_code  # type: ignore[misc]
        return error
    if (why := database_unavailable_reason(wrong)) is not None:
        log.warning("database unavailable", extra={"why": why})
        return Unavailable("the database is unavailable or read-only; nothing was changed")
    log.error("request failed", exc_info=wrong, extra={"path": path})
    return InternalError("internal error; search the log for the requestId")


def _body_type(request: Request) -> Any:
    """The type that the route of a request declares for its body; Any if it declares none."""
    route = request.scope.get("route")
    fields = route.dependant.body_params if isinstance(route, APIRoute) else []
    return fields[0].field_info.annotation if len(fields) == 1 else Any


def _query_of(request: Request) -> frozenset[str]:
    """The parameters that the route of a request takes in its query."""
    route = request.scope.get("route")
    return frozenset(declared_names(route.dependant)) if isinstance(route, APIRoute) else frozenset()


def install_error_handlers(app: FastAPI, routers: Sequence[APIRouter] = ()) -> None:
    """Register handlers so that every failure of a request is answered in the service's error format. `routers` are
    searched for the methods of a path."""
    verbs = VerbRoutes(routers)

    async def handle_error(request: Request, wrong: Exception) -> Response:
        path, render_error = request.url.path, error_renderer(request.scope)
        if not isinstance(wrong, HTTPException) or wrong.status_code != 405:
            return render_error(to_matrix_error(wrong, path, _body_type(request), _query_of(request)), path)
        resource, colon, verb = path.rpartition(":")
        if colon and "/" not in verb and (known := verbs.known_verbs(resource)):
            listed = ", ".join(f":{each}" for each in known)
            return render_error(NotFound(f"unknown verb :{verb} of {resource}; known are {listed}"), path)
        routes = [each for router in routers for each in router.routes if isinstance(each, APIRoute)]
        found = [each for each in routes if each.matches(request.scope)[0] != Match.NONE]
        served = {method for each in found for method in each.methods or ()}
        return method_refusal(render_error, request.method, path, served)

    for kind in (MatrixError, RequestValidationError, HTTPException, OperationalError, Exception):
        app.add_exception_handler(kind, handle_error)


def method_refusal(render_error: ErrorRenderer, method: str, path: str, served: Iterable[str]) -> Response:
    """The answer to a method that is not served at a path, with those that are."""
    allowed = ", ".join(sorted(served))
    response = render_error(MethodNotAllowed(f"{method} is not allowed at {path}; allowed: {allowed}"), path)
    response.headers["Allow"] = allowed
    return response
