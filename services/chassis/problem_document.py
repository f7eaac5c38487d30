"""Errors as RFC 9457 problem documents."""

from __future__ import annotations

import json
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Scope

from matrixcommon.model.errors import MatrixError
from services.chassis.logging import REQUEST_ID

ErrorRenderer = Callable[[MatrixError, str], Response]
"""Builds the response for an error at a path."""


def error_renderer(scope: Scope) -> ErrorRenderer:
    """The error format of the service that a request came to."""
    found: ErrorRenderer = scope.get("state", {}).get("render_error", problem_response)
    return found


def problem_response(error: MatrixError, instance: str) -> Response:
    """The problem document, with the request id, and the headers that its status requires."""
    document = error.problem() | {"instance": instance, "requestId": REQUEST_ID.get()}
    return Response(json.dumps(document), error.status, error.headers, media_type="application/problem+json")
