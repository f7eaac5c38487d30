"""Paths and media types in, verbs out: the embedded Kubernetes API as an application.

`respond` turns a request into a response and never raises; `App(api)` is also a plain ASGI application, with no
framework and no lifespan of its own: whoever builds the `KubeApi` starts and stops it. Every refusal, expected or not,
leaves as a Status.
"""

import random
from collections.abc import Callable
from typing import Any

import orjson

from matrixcontainer.kubeapi.auth import authentication
from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.auth.impersonation import who_is_meant
from matrixcontainer.kubeapi.endpoints import nonresource, subresources
from matrixcontainer.kubeapi.endpoints.request import BODY_BYTES_MAX, Request, Target, attributes_of, parse_target
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.endpoints.write import Writing
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.registry.store_errors import store_lost
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.storage.backend import Database
from matrixcontainer.kubeapi.storage.objects import StorageError
from matrixcontainer.kubeapi.storage.store import Store
from matrixcontainer.kubeapi.transport import asgi


class App(Writing):
    def __init__(self, api: KubeApi) -> None:
        self.api = api

    async def __call__(self, scope: dict[str, Any], receive: asgi.Receive, send: asgi.Send) -> None:
        await asgi.serve(self, scope, receive, send)

    async def respond(self, request: Request) -> Response:
        """The answer, whatever happens."""
        try:
            return await self._answer(request)
        except Exception as failure:
            return self._refusal(request, failure)

    def at_once(self, request: Request) -> Response | None:
        """The answer to a read, which waits for nothing; None where `respond` has to be asked."""
        if request.method != "GET" or self.api.store.shared:
            return None
        target = parse_target(request.path)
        if target is None or target.subresource:
            return None
        try:
            self._admit(request, target)
            return self._read_at_once(request, self._find(request, target), target)
        except Exception as failure:
            return self._refusal(request, failure)

    def _refusal(self, request: Request, failure: Exception) -> Response:
        if isinstance(failure, errors.PlainPage):
            return Response(failure.page(request.path).encode(), failure.code, "text/plain; charset=utf-8")
        if isinstance(failure, StorageError):
            failure = store_lost(failure)
        if isinstance(failure, (RecursionError, orjson.JSONEncodeError)):
            failure = errors.bad_request(f"the object is nested too deeply or holds what JSON cannot say: {failure}")
        if not isinstance(failure, ApiError):  # the last resort: a Status and a line in the log, never a bare 500
            self.failed(request, failure)
            failure = errors.internal(f"{type(failure).__name__}: {failure}")
        response = as_json(failure.status(), failure.code)
        response.headers |= failure.headers
        return response

    def failed(self, request: Request, failure: BaseException) -> None:
        """Note what should not have happened."""
        where = f"{request.method} {request.path}"
        self.api.failures.append(f"{where}: {type(failure).__name__}: {failure}")
        self.api.report(failure, where)

    # ---- routing

    async def _answer(self, request: Request) -> Response:
        target = parse_target(request.path)
        self._admit(request, target)
        if target is None:
            if request.method not in ("GET", "HEAD"):
                raise errors.method_not_allowed()
            return nonresource.answer(self.api, request, request.path.rstrip("/") or "/")
        resource = self._find(request, target)
        if request.method in ("GET", "HEAD") and not target.subresource:
            await self.api.store.see_all()
            return self._read_at_once(request, resource, target)
        if resource.computed is not None:
            return resource.computed(self, request, resource, target)
        if resource.namespaced and not target.namespace and request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()  # a list of all namespaces can be read and watched, no more
        if resource.deprecated:
            request.warnings.append(resource.deprecated)
        if request.too_large:
            raise errors.too_large(BODY_BYTES_MAX)
        if target.subresource:
            return await subresources.answer(self, request, resource, target)
        return await self._write(request, resource, target)

    def _admit(self, request: Request, target: Target | None) -> None:
        """Who asks, and whether they may."""
        user = self.api.access.authenticate(request.headers.get("authorization", ""))
        if user is None:
            raise errors.unauthorized()
        authorizer = self.api.authorizer
        if any(name.startswith("impersonate-") for name in request.headers):
            user = who_is_meant(user, request.headers, authorizer)
        request.user = user
        authorizer.demand(user, attributes_of(request, target))

    def _find(self, request: Request, target: Target) -> Resource:
        resource = self.api.registry.find(target.group, target.version, target.plural)
        misplaced = resource and resource.namespaced != bool(target.namespace) and (target.name or target.namespace)
        if resource is None or target.rest or misplaced:
            raise errors.no_such_path() if self.api.registry.is_built_in(target.group) else errors.NoSuchPage()
        return resource

    def _read_at_once(self, request: Request, resource: Resource, target: Target) -> Response:
        if resource.computed is not None:
            return resource.computed(self, request, resource, target)
        if resource.deprecated:
            request.warnings.append(resource.deprecated)
        return self.read(request, resource, target)

    async def _write(self, request: Request, resource: Resource, target: Target) -> Response:
        if request.method == "POST" and not target.name:
            return await self.create(request, resource, target)
        if request.method == "PUT" and target.name:
            return await self.update(request, resource, target)
        if request.method == "PUT" and resource.custom:
            raise errors.bad_request("name must be provided")
        if request.method == "PATCH" and target.name:
            return await self.patch(request, resource, target)
        if request.method == "DELETE":
            return await (self.delete if target.name else self.delete_collection)(request, resource, target)
        raise errors.method_not_allowed()


def build_app(
    database: Database, now: Callable[[], float], chance: random.Random, tokens: dict[str, User] | None = None
) -> App:
    """An application over a migrated database; `app.api.start()` and `stop()` are the caller's to await.

    `tokens` maps bearer tokens to users. `now` gives seconds since the epoch, in whatever time the caller lives.
    """
    key = chance.randbytes(32)
    return App(KubeApi(Store(database, now), now, chance, authentication.Access(tokens or {}, key, now)))
