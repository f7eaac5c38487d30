"""Create, update, patch and delete: parses the request and calls the verb."""

from typing import Any

from matrixcontainer.kubeapi.auth.access_reviews import answer_review
from matrixcontainer.kubeapi.codec.negotiation import OFFERED_MEDIA_TYPES, negotiate
from matrixcontainer.kubeapi.endpoints import list_options
from matrixcontainer.kubeapi.endpoints.read import ReadHandler
from matrixcontainer.kubeapi.endpoints.request import Request, Target
from matrixcontainer.kubeapi.endpoints.respond import Responder, require_verb
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.endpoints.write_options import parse_deletion, parse_object, parse_options, parse_patch
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ignoring
from matrixcontainer.kubeapi.registry import list as listing
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource


class WriteHandler:
    """Handles writes. The body has been read already; the response is sent once the change is durable."""

    def __init__(self, core: Core, responder: Responder, reader: ReadHandler) -> None:
        self._core, self._responder, self._reader = core, responder, reader

    async def create(self, request: Request, resource: Resource, target: Target) -> Response:
        require_verb(resource, "create")
        options = parse_options(request)
        body = await parse_object(request, resource, options)
        if "list" not in resource.verbs:
            return self._review(request, resource, target.namespace, body, options)
        outcome = await self._core.verbs.create(resource, target.namespace, body, options)
        return self._responder.outcome(request, resource, outcome)

    def _review(
        self, request: Request, resource: Resource, namespace: str, body: dict[str, Any], options: Options
    ) -> Response:
        """Answer a review; reviews are created but never stored."""
        if negotiate(request.accept).form:
            raise errors.not_acceptable(", ".join(OFFERED_MEDIA_TYPES))
        core, user = self._core, request.user
        obj = core.verbs.decoder.decode(resource, body, options)
        obj["metadata"] = {key: value for key, value in obj["metadata"].items() if key in ("name", "namespace")}
        found = answer_review(resource.kind, obj, namespace, user, core.authenticator, core.authorizer)
        return self._responder.render(request, resource, found, 201)

    async def update(self, request: Request, resource: Resource, target: Target, sub: str = "") -> Response:
        require_verb(resource, "update")
        options = parse_options(request, sub)
        body = await parse_object(request, resource, options)
        outcome = await self._core.verbs.update(resource, target.namespace, target.name, body, options)
        return self._responder.outcome(request, resource, outcome)

    async def patch(self, request: Request, resource: Resource, target: Target, sub: str = "") -> Response:
        require_verb(resource, "patch")
        options = parse_options(request, sub)
        kind, patch = await parse_patch(request, resource, options)
        verbs = self._core.verbs
        if kind == "apply":
            outcome = await verbs.apply(resource, target.namespace, target.name, patch, options)
        else:
            outcome = await verbs.patch(resource, target.namespace, target.name, kind, patch, options)
        return self._responder.outcome(request, resource, outcome)

    async def delete(self, request: Request, resource: Resource, target: Target) -> Response:
        require_verb(resource, "delete")
        options = parse_options(request)
        spec = parse_deletion(request)
        outcome = await self._core.verbs.delete(resource, target.namespace, target.name, spec, options)
        if outcome.deleted and not resource.strategy.returns_deleted:
            meta = outcome.obj["metadata"]
            details = {"name": meta["name"], "group": resource.group, "kind": resource.plural, "uid": meta["uid"]}
            details = {key: value for key, value in details.items() if value}
            return as_json(
                {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
            )
        return self._responder.outcome(request, resource, outcome)

    async def delete_collection(self, request: Request, resource: Resource, target: Target) -> Response:
        require_verb(resource, "deletecollection")
        options, spec = parse_options(request), parse_deletion(request)
        list_options.validate_list_options(request.query)
        page = listing.list_page(self._core.store, resource, self._reader.query(request, resource, target))
        for record in page.records:
            with ignoring(404):
                await self._core.verbs.delete(resource, record.key[1], record.key[2], spec, options)
        return Response(listing.render_list(resource, page))
