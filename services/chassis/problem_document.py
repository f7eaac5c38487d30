"""A refusal as an RFC 9457 problem document."""

from __future__ import annotations

import json

from starlette.responses import Response

from matrixcommon.model.errors import MatrixError
from services.chassis.logging import REQUEST_ID


def problem_response(error: MatrixError, instance: str) -> Response:
    """The document, with the request's id, and Retry-After where trying again makes sense."""
    document = error.problem() | {"instance": instance, "requestId": REQUEST_ID.get()}
    headers = {}
    if error.retryable:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s or 1)))
    return Response(json.dumps(document), error.status, headers, media_type="application/problem+json")
