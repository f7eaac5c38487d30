"""Get, list and watch: parses their options and renders the result in the requested form."""

import orjson

from matrixcontainer.kubeapi.codec.negotiation import negotiate
from matrixcontainer.kubeapi.endpoints import list_options
from matrixcontainer.kubeapi.endpoints.request import Request, Target
from matrixcontainer.kubeapi.endpoints.respond import Responder, require_verb
from matrixcontainer.kubeapi.endpoints.response import Response
from matrixcontainer.kubeapi.endpoints.table import TableForm, partial_form, partial_object_metadata
from matrixcontainer.kubeapi.meta.selectors import FieldSelector, LabelSelector
from matrixcontainer.kubeapi.registry import list
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.watch import Watch, WatchOptions

STANDARD_FIELDS = frozenset(("metadata.name", "metadata.namespace"))


class ReadHandler:
    """Handles reads synchronously: all objects are in memory."""

    def __init__(self, core: Core, responder: Responder) -> None:
        self._core, self._responder = core, responder

    def read(self, request: Request, resource: Resource, target: Target) -> Response:
        is_watch = target.watch or (not target.name and request.flag("watch"))
        if target.name and not is_watch:  # a get, whatever other options the query has
            require_verb(resource, "get")
            record = self._core.verbs.record(resource, target.namespace, target.name)
            answer = negotiate(request.accept)
            if not answer.form and answer.media == "application/json":
                return Response(resource.served_bytes(record))
            return self._responder.render(request, resource, resource.served_object(record), 200)
        require_verb(resource, "watch" if is_watch else "list")
        query = self.query(request, resource, target)
        if is_watch:
            return self._watch(request, resource, query)
        list_options.validate_list_options(request.query)
        page = list.list_page(self._core.store, resource, query)
        answer = negotiate(request.accept)
        if not answer.form and answer.media == "application/json":
            return Response(list.render_list(resource, page))
        if answer.form == "Table":
            form = TableForm(resource, request.query.get("includeObject", ""), self._core.now, answer.version)
            table = form.table([resource.served_object(record) for record in page.records], page.meta())
            return self._responder.encode(table, 200, answer)
        if answer.form:
            items = [partial_object_metadata(resource.served_object(record), answer.version) for record in page.records]
            found = {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{answer.version}"}
            return self._responder.encode(found | {"metadata": page.meta(), "items": items}, 200, answer)
        return self._responder.encode(orjson.loads(list.render_list(resource, page)), 200, answer)

    def query(self, request: Request, resource: Resource, target: Target) -> list.Query:
        standard = not resource.custom and STANDARD_FIELDS.issuperset(resource.fields)
        fields = FieldSelector(request.query.get("fieldSelector", ""), resource.fields, standard)
        if target.name:
            fields = FieldSelector(f"metadata.name={target.name}", resource.fields)
        return list.Query(
            namespace=target.namespace,
            labels=LabelSelector(request.query.get("labelSelector", "")),
            fields=fields,
            limit=request.number("limit"),
            token=request.query.get("continue", ""),
            revision=request.query.get("resourceVersion", ""),
            match=request.query.get("resourceVersionMatch", ""),
        )

    def _watch(self, request: Request, resource: Resource, query: list.Query) -> Response:
        initial_events = request.flag("sendInitialEvents")
        list_options.validate_watch_options(request.query)
        if initial_events:
            query.revision = ""
        answer = negotiate(request.accept)
        options = WatchOptions(
            timeout_s=float(request.number("timeoutSeconds")),
            bookmarks=request.flag("allowWatchBookmarks"),
            initial_events=initial_events,
            form_name=answer.form.removesuffix("List"),
        )
        if answer.form == "Table":
            include = request.query.get("includeObject", "")
            options.form = TableForm(resource, include, self._core.now, answer.version)
        elif answer.form:
            options.form = partial_form
        key = (resource.group, resource.version, resource.plural)

        def is_gone() -> bool:
            return self._core.stopping or self._core.registry.find(*key) is None

        watch = Watch(self._core.store, resource, query, options, self._core.rng, is_gone)
        return Response(watch)
