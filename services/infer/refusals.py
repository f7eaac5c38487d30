"""Error format of CloudMatrix-Infer: OpenAI's on OpenAI's paths, problem documents elsewhere."""

from __future__ import annotations

from starlette.responses import Response

from infer_workload.openai.answers import error_response, is_asked_by_openai_clients
from matrixcommon.model.errors import MatrixError
from services.chassis.problem_document import problem_response


def refuse(error: MatrixError, path: str) -> Response:
    """The response for an error at a path, whatever raised it: method, edge, token, role or route."""
    return error_response(error) if is_asked_by_openai_clients(path) else problem_response(error, path)
