"""review."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.auth import access_reviews
from matrixcontainer.kubeapi.codec.negotiation import OFFERED, choose
from matrixcontainer.kubeapi.endpoints.request import Request, Target
from matrixcontainer.kubeapi.endpoints.response import Response
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.resource import Resource

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.endpoints.write import Writing


def review(app: Writing, request: Request, resource: Resource, target: Target, body: dict[str, Any]) -> Response:
    if choose(request.accept).form:
        raise errors.not_acceptable(", ".join(OFFERED))
    options = app.options(request)
    obj = app.api.verbs.decode(resource, body, options)
    obj["metadata"] = {key: value for key, value in obj["metadata"].items() if key in ("name", "namespace")}
    api = app.api
    found = access_reviews.answer_review(resource.kind, obj, target.namespace, request.user, api.access, api.authorizer)
    return app.render(request, resource, found, 201)
