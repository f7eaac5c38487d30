"""Routing: authenticates and authorizes requests and dispatches them to the handlers.

`respond` turns a request into a response and never raises. Every error, expected or not, is returned as a Status.
"""

import time

from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from matrixcontainer.kubeapi.admission.webhooks import Webhooks
from matrixcontainer.kubeapi.auth.impersonation import impersonated_user
from matrixcontainer.kubeapi.endpoints.nonresource import NonResource
from matrixcontainer.kubeapi.endpoints.read import ReadHandler
from matrixcontainer.kubeapi.endpoints.request import Request, Target
from matrixcontainer.kubeapi.endpoints.respond import Responder
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.endpoints.subresources import SubresourceHandler
from matrixcontainer.kubeapi.endpoints.write import WriteHandler
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.store_errors import storage_api_error
from matrixcontainer.kubeapi.storage.objects import NotJsonSerializable, StorageError

METRICS, METRICS_TYPE = "/metrics", "text/plain; version=0.0.4; charset=utf-8"
TRACER = trace.get_tracer("kubeapi")
W3C = TraceContextTextMapPropagator()


class App:
    def __init__(self, core: Core, webhooks: Webhooks) -> None:
        self._core = core
        self._recorded = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        responder = Responder(core.now)
        self._reader = ReadHandler(core, responder)
        self._writer = WriteHandler(core, responder, self._reader)
        self._subresources = SubresourceHandler(core, webhooks, responder, self._writer)
        self.documents = NonResource(core.registry, lambda: core.store.lost_writes.reason)

    async def respond(self, request: Request) -> Response:
        """Handle a request. Never raises."""
        observer = self._core.observer
        if observer is None:
            return await self._traced(request)
        begun = time.perf_counter()
        response = await self._traced(request)
        seconds = time.perf_counter() - begun
        observer.record_request(request.attributes, response.code, seconds)
        return response

    async def _traced(self, request: Request) -> Response:
        if not self._is_traced(request):
            return await self._respond(request)
        context = W3C.extract(request.headers)
        attributes = {"http.request.method": request.method, "url.path": request.path}
        with TRACER.start_as_current_span(
            f"{request.method} {request.path}", context, SpanKind.SERVER, attributes
        ) as span:
            response = await self._respond(request)
            span.set_attribute("http.response.status_code", response.code)
            return response

    def _is_traced(self, request: Request) -> bool:
        """Whether to trace a request: writes that a client traces itself, and users' writes to custom resources other
        than to subresources. Controllers write all the time and would start traces that nobody wants."""
        if request.method in ("GET", "HEAD"):
            return False
        if not self._recorded and "traceparent" not in request.headers:
            return False
        target = request.target
        if target is None or "traceparent" in request.headers:
            return target is not None
        user = self._core.authenticator.authenticate(request.headers.get("authorization", ""))
        if user is None or user.name in self._core.untraced or user.name.startswith("system:"):
            return False
        return not target.subresource and not self._core.registry.is_built_in(target.group)

    async def _respond(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except Exception as failure:
            return self._error_response(request, failure)

    def _error_response(self, request: Request, failure: Exception) -> Response:
        if isinstance(failure, errors.PlainTextError):
            return Response(failure.page(request.path).encode(), failure.code, "text/plain; charset=utf-8")
        if isinstance(failure, StorageError):
            failure = storage_api_error(failure)
        if isinstance(failure, (RecursionError, NotJsonSerializable)):
            failure = errors.bad_request(f"the object is nested too deeply or cannot be encoded as JSON: {failure}")
        if not isinstance(failure, ApiError):  # unexpected: still a Status, and a log entry
            self.record_failure(request, failure)
            failure = errors.internal(f"{type(failure).__name__}: {failure}")
        response = as_json(failure.status(), failure.code)
        response.headers |= failure.headers
        return response

    def record_failure(self, request: Request, failure: BaseException) -> None:
        """Record an unexpected error."""
        self._core.record_failure(failure, f"{request.method} {request.path}")

    # ---- routing

    async def _answer(self, request: Request) -> Response:
        target = request.target
        self._admit(request)
        if target is None:
            if request.method not in ("GET", "HEAD"):
                raise errors.method_not_allowed()
            path = request.path.rstrip("/") or "/"
            if path == METRICS and self._core.observer is not None:
                return Response(self._core.observer.render(), media=METRICS_TYPE)
            return self.documents.answer(request, path)
        resource = self._find(request, target)
        if request.method in ("GET", "HEAD") and not target.subresource:
            await self._core.store.read_latest()
            return self._read_sync(request, resource, target)
        if resource.computed is not None:
            return resource.computed(request, resource, target)
        if resource.namespaced and not target.namespace and request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()  # across namespaces only list and watch are allowed
        if resource.deprecated:
            request.warnings.append(resource.deprecated)
        request.body = await request.read()
        if target.subresource:
            return await self._subresources.answer(request, resource, target)
        return await self._write(request, resource, target)

    def _admit(self, request: Request) -> None:
        """Authenticate and authorize the request, with impersonation."""
        user = self._core.authenticator.authenticate(request.headers.get("authorization", ""))
        if user is None:
            raise errors.unauthorized()
        authorizer = self._core.authorizer
        for name in request.headers:
            if name.startswith("impersonate-"):
                user = impersonated_user(user, request.headers, authorizer)
                break
        request.user = user
        authorizer.require(user, request.attributes)

    def _find(self, request: Request, target: Target) -> Resource:
        resource = self._core.registry.find(target.group, target.version, target.plural)
        misplaced = resource and resource.namespaced != bool(target.namespace) and (target.name or target.namespace)
        if resource is None or target.rest or misplaced:
            raise errors.no_such_path() if self._core.registry.is_built_in(target.group) else errors.PageNotFound()
        return resource

    def _read_sync(self, request: Request, resource: Resource, target: Target) -> Response:
        if resource.computed is not None:
            return resource.computed(request, resource, target)
        if resource.deprecated:
            request.warnings.append(resource.deprecated)
        return self._reader.read(request, resource, target)

    async def _write(self, request: Request, resource: Resource, target: Target) -> Response:
        if request.method == "POST" and not target.name:
            return await self._writer.create(request, resource, target)
        if request.method == "PUT" and target.name:
            return await self._writer.update(request, resource, target)
        if request.method == "PUT" and resource.custom:
            raise errors.bad_request("name must be provided")
        if request.method == "PATCH" and target.name:
            return await self._writer.patch(request, resource, target)
        if request.method == "DELETE":
            return await (self._writer.delete if target.name else self._writer.delete_collection)(
                request, resource, target
            )
        raise errors.method_not_allowed()
