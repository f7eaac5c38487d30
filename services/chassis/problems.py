"""How what was raised becomes an RFC 9457 problem document, once, at the edge."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException
from starlette.routing import Match, compile_path

from matrixcommon.api.declared_fields import fields_instead
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
from services.chassis.database import database_refuses
from services.chassis.problem_document import refusing

log = logging.getLogger(__name__)


class Problem(ApiModel):
    """A refusal, as RFC 9457 has it. `reason` is what programs go by, `field` what is wrong, `blocking` what stands in
    the way."""

    type: str
    title: str
    status: int
    reason: str
    detail: str
    field: str | None = None
    blocking: list[dict[str, Any]] | None = None
    instance: str
    request_id: str


def describe_refusals(app: FastAPI) -> None:
    """Have the OpenAPI document say that every refusal is a `Problem` where its route says nothing else, in place of
    what FastAPI supposes."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = made()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = Problem.model_json_schema()
            for supposed in ("HTTPValidationError", "ValidationError"):
                schemas.pop(supposed, None)
            refusal = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
            for operation in (each for path in document["paths"].values() for each in path.values()):
                operation["responses"].pop("422", None)
                described = operation["responses"].setdefault("default", {"description": "it is refused"})
                described.setdefault("content", refusal)  # or the route says in which other form
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


OF_A_FIELD = ("missing", "value_error")
"""Errors of a field that may stand nowhere in the body: its default may not go with what else is there."""


def field_path(location: tuple[Any, ...], body: Any, missing: bool) -> str:
    """`("body", "members", 2, "name")` as `members[2].name`; parameters are one step deep. Where a field may be one of
    several types, the location ends in the type that was tried: what stands nowhere in `body`, and is not `missing`
    there, is no field."""
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


def from_validation(wrong: RequestValidationError, declared: Any = Any) -> MatrixError:
    """The first thing wrong names the field; all of them are in `blocking`. `declared`: what the body is to be."""
    errors = wrong.errors()
    first = errors[0]
    if isinstance(wrong.body, bytes):  # what is not said to be JSON is not read
        return Malformed("send JSON, and the header 'Content-Type: application/json'", field="Content-Type")
    if first["type"] == "json_invalid":
        return Malformed(f"the body is no JSON: {first.get('ctx', {}).get('error', first['msg'])}", field="body")
    lines = list[dict[str, Any]]()
    for error in errors:
        path = field_path(error["loc"], wrong.body, error["type"] in OF_A_FIELD) or "body"
        message = error["msg"].removeprefix("Value error, ")
        if error["type"] == "extra_forbidden":
            message = "unknown field" + (fields_instead(declared, re.sub(r"\[\d+]", "", path).split(".")) or "")
        if error["type"] == "missing" and error["loc"][:1] == ("query",):
            message = "it has to be given, in the query"
        if (line := {"field": path, "message": message}) not in lines:
            lines.append(line)
    message = "; ".join(f"{line['field']}: {line['message']}" for line in lines[:5])
    return InvalidField(message, field=lines[0]["field"], blocking=lines)


def as_error(wrong: Exception, path: str, declared: Any = Any) -> MatrixError:
    """What a request to `path` failed with, as one of the reasons we have; a traceback goes to the log. `declared`:
    what its body is to be."""
    if isinstance(wrong, MatrixError):
        return wrong
    if isinstance(wrong, RequestValidationError):
        return from_validation(wrong, declared)
    if isinstance(wrong, HTTPException):
        if wrong.status_code == 404:
            return NotFound(f"nothing is served at {path}; /openapi.json lists what is")
        error = Malformed(str(wrong.detail))
        error.status = wrong.status_code  # type: ignore[misc]
        return error
    if (why := database_refuses(wrong)) is not None:
        log.warning("database refused", extra={"why": why})
        return Unavailable("the database does not answer or takes no writes; nothing was changed")
    log.error("request failed", exc_info=wrong, extra={"path": path})
    return InternalError("this is our fault; the log has it under requestId")


def _body_of(request: Request) -> Any:
    """What the route of a request declares of its body; Any where that is nothing."""
    route = request.scope.get("route")
    fields = route.dependant.body_params if isinstance(route, APIRoute) else []
    return fields[0].field_info.annotation if len(fields) == 1 else Any


def install(app: FastAPI, routers: Sequence[APIRouter] = ()) -> None:
    """Every way a request can fail ends in the service's form of a refusal. `routers`: where the methods of a path
    are."""

    async def refused(request: Request, wrong: Exception) -> Response:
        path, refuse = request.url.path, refusing(request.scope)
        if not isinstance(wrong, HTTPException) or wrong.status_code != 405:
            return refuse(as_error(wrong, path, _body_of(request)), path)
        routes = [each for router in routers for each in router.routes if isinstance(each, APIRoute)]
        if (unknown := _unknown_verb(path, routes)) is not None:
            return refuse(unknown, path)
        found = [each for each in routes if each.matches(request.scope)[0] != Match.NONE]
        verb = path[path.rfind(":") :] if ":" in path else ""
        found = [each for each in found if verb and each.path.endswith(verb)] or found
        served = ", ".join(sorted({method for each in found for method in each.methods or ()}))
        response = refuse(MethodNotAllowed(f"{request.method} is not served at {path}; {served} may be asked"), path)
        response.headers["Allow"] = served
        return response

    for kind in (MatrixError, RequestValidationError, HTTPException, OperationalError, Exception):
        app.add_exception_handler(kind, refused)


def _unknown_verb(path: str, routes: Sequence[APIRoute]) -> NotFound | None:
    """Where what is asked is a verb that nobody knows of a resource: that there is none, and which there are."""
    resource, colon, verb = path.rpartition(":")
    if not colon or "/" in verb:
        return None
    known = set[str]()
    for route in routes:
        pattern, is_verb, name = route.path.rpartition(":")
        if is_verb and name.isidentifier() and compile_path(pattern)[0].match(resource):
            known.add(name)
    if not known or verb in known:
        return None
    return NotFound(f"there is no :{verb} of {resource}; there are {', '.join(f':{each}' for each in sorted(known))}")
