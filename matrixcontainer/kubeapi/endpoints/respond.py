"""Rendering of objects: as JSON or YAML; in full, as a Table or as PartialObjectMetadata."""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.codec.negotiation import NegotiatedType, negotiate
from matrixcontainer.kubeapi.endpoints.request import Request
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.endpoints.table import TableForm, partial_object_metadata
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.options import Outcome
from matrixcontainer.kubeapi.registry.resource import Resource


def require_verb(resource: Resource, verb: str) -> None:
    if verb not in resource.verbs:
        raise errors.method_not_allowed()


class Responder:
    """Renders objects in the form and encoding that the client accepts."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    def outcome(self, request: Request, resource: Resource, outcome: Outcome) -> Response:
        code = 201 if outcome.created else 200
        answer = negotiate(request.accept)
        if outcome.record is not None and not answer.form and answer.media == "application/json":
            return Response(resource.served_bytes(outcome.record), code)
        return self.render(request, resource, outcome.obj, code)

    def render(self, request: Request, resource: Resource, obj: dict[str, Any], code: int) -> Response:
        answer = negotiate(request.accept, forms="list" in resource.verbs)
        if answer.form == "Table":
            form = TableForm(resource, request.query.get("includeObject", ""), self.now, answer.version)
            obj = form.table([obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")})
        elif answer.form:
            obj = partial_object_metadata(obj, answer.version)
        return self.encode(obj, code, answer)

    def encode(self, value: Any, code: int, answer: NegotiatedType) -> Response:
        if answer.media == "application/yaml":
            import yaml

            return Response(yaml.safe_dump(value, sort_keys=False).encode(), code, "application/yaml")
        return as_json(value, code)
