"""A refusal as an RFC 9457 problem document."""

from __future__ import annotations

import json
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Scope

from matrixcommon.model.errors import MatrixError
from services.chassis.logging import REQUEST_ID

Refuse = Callable[[MatrixError, str], Response]
"""Answers what was refused at a path."""


def refusing(scope: Scope) -> Refuse:
    """How the service that a request came to refuses."""
    found: Refuse = scope.get("state", {}).get("refuse", problem_response)
    return found


def problem_response(error: MatrixError, instance: str) -> Response:
    """The document, with the request's id, and what its status asks for in the head."""
    document = error.problem() | {"instance": instance, "requestId": REQUEST_ID.get()}
    return Response(json.dumps(document), error.status, error.headers, media_type="application/problem+json")
