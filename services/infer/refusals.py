"""How CloudMatrix-Infer refuses: where OpenAI's clients ask in OpenAI's form, elsewhere in a problem document."""

from __future__ import annotations

from starlette.responses import Response

from infer_workload.openai.answers import is_asked_by_openai_clients, refusal
from matrixcommon.model.errors import MatrixError
from services.chassis.problem_document import problem_response


def refuse(error: MatrixError, path: str) -> Response:
    """Whatever refuses it: a method, the edge, a token, a role or the route itself."""
    return refusal(error) if is_asked_by_openai_clients(path) else problem_response(error, path)
