"""How what was raised becomes an RFC 9457 problem document, once, at the edge."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from matrixcommon.model.errors import InternalError, InvalidField, Malformed, MatrixError, NotFound, Unavailable
from services.chassis.logging import REQUEST_ID

log = logging.getLogger(__name__)


def problem_response(error: MatrixError, instance: str) -> Response:
    """The document, with the request's id, and Retry-After where trying again makes sense."""
    document = error.problem() | {"instance": instance, "requestId": REQUEST_ID.get()}
    headers = {}
    if error.retryable:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s or 1)))
    return Response(json.dumps(document), error.status, headers, media_type="application/problem+json")


def field_path(location: tuple[Any, ...]) -> str:
    """`("body", "members", 2, "name")` as `members[2].name`."""
    path = ""
    for step in location[1:] if location and location[0] in ("body", "query", "path", "header") else location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


def from_validation(wrong: RequestValidationError) -> MatrixError:
    """The first thing wrong names the field; all of them are in `blocking`."""
    errors = wrong.errors()
    first = errors[0]
    if first["type"] == "json_invalid":
        return Malformed(f"the body is no JSON: {first.get('ctx', {}).get('error', first['msg'])}", field="body")
    lines = []
    for error in errors:
        path = field_path(error["loc"]) or "body"
        message = "unknown field" if error["type"] == "extra_forbidden" else error["msg"]
        lines.append({"field": path, "message": message})
    message = "; ".join(f"{line['field']}: {line['message']}" for line in lines[:5])
    return InvalidField(message, field=lines[0]["field"], blocking=lines)


def as_error(wrong: Exception, path: str) -> MatrixError:
    """What a request to `path` failed with, as one of the reasons we have; a traceback goes to the log."""
    if isinstance(wrong, MatrixError):
        return wrong
    if isinstance(wrong, RequestValidationError):
        return from_validation(wrong)
    if isinstance(wrong, HTTPException):
        if wrong.status_code == 404:
            return NotFound(f"nothing is served at {path}; /openapi.json lists what is")
        error = Malformed(str(wrong.detail))
        error.status = wrong.status_code  # type: ignore[misc]
        return error
    if isinstance(wrong, OperationalError):
        log.warning("database refused", extra={"why": str(wrong.orig)})
        return Unavailable("the database does not answer; nothing was changed")
    log.error("request failed", exc_info=wrong, extra={"path": path})
    return InternalError("this is our fault; the log has it under requestId")


def install(app: FastAPI) -> None:
    """Every way a request can fail ends in a problem document."""

    async def refused(request: Request, wrong: Exception) -> Response:
        return problem_response(as_error(wrong, request.url.path), request.url.path)

    for kind in (MatrixError, RequestValidationError, HTTPException, OperationalError, Exception):
        app.add_exception_handler(kind, refused)
