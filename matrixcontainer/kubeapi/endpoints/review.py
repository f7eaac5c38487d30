"""Reviews are questions, not objects: created, answered, never stored."""

from typing import Any

from matrixcontainer.kubeapi.auth import access_reviews
from matrixcontainer.kubeapi.codec.negotiation import OFFERED, choose
from matrixcontainer.kubeapi.endpoints.request import Request
from matrixcontainer.kubeapi.endpoints.respond import Responder
from matrixcontainer.kubeapi.endpoints.response import Response
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource


def review(
    core: Core,
    responder: Responder,
    request: Request,
    resource: Resource,
    namespace: str,
    body: dict[str, Any],
    options: Options,
) -> Response:
    if choose(request.accept).form:
        raise errors.not_acceptable(", ".join(OFFERED))
    obj = core.verbs.decoder.decode(resource, body, options)
    obj["metadata"] = {key: value for key, value in obj["metadata"].items() if key in ("name", "namespace")}
    user = request.user
    found = access_reviews.answer_review(resource.kind, obj, namespace, user, core.access, core.authorizer)
    return responder.render(request, resource, found, 201)
