"""Paths and media types in, verbs out: the embedded Kubernetes API as an application.

`respond` turns a request into a response and never raises; `App(api)` is also a plain ASGI application, with no
framework and no lifespan of its own: whoever builds the `KubeApi` starts and stops it. Every refusal, expected or not,
leaves as a Status.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
from sqlalchemy import Engine

from matrixcontainer.kubeapi import access, documents, errors, subresources
from matrixcontainer.kubeapi.access import User
from matrixcontainer.kubeapi.errors import ApiError
from matrixcontainer.kubeapi.impersonation import who_is_meant
from matrixcontainer.kubeapi.requests import (
    Receive,
    Request,
    Send,
    Target,
    parse_target,
    read_body,
    request_of,
    wish_of,
)
from matrixcontainer.kubeapi.responses import Response, as_json
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.store import Store
from matrixcontainer.kubeapi.writing import Writing


class App(Writing):
    def __init__(self, api: KubeApi) -> None:
        self.api = api

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        request = request_of(scope, receive)
        try:
            response = await self.answer(request)
        except errors.PlainPage as failure:
            page = failure.page(request.path)
            response = Response(page.encode(), failure.code, "text/plain; charset=utf-8")
        except ApiError as failure:
            response = as_json(failure.status(), failure.code)
            response.headers |= failure.headers
        except (RecursionError, orjson.JSONEncodeError) as failure:
            refusal = errors.bad_request(f"the object is nested too deeply or holds what JSON cannot say: {failure}")
            response = as_json(refusal.status(), refusal.code)
        except Exception as failure:  # the last resort: a Status and a line in the log, never a bare 500
            self.api.failures.append(f"{request.method} {request.path}: {type(failure).__name__}: {failure}")
            self.api.report(failure, f"{request.method} {request.path}")
            response = as_json(errors.internal(f"{type(failure).__name__}: {failure}").status(), 500)
        await self._send(request, response, send)

    async def _send(self, request: Request, response: Response, send: Send) -> None:
        headers = [
            (b"content-type", response.media.encode()),
            (b"cache-control", b"no-cache, private"),
        ]
        headers += [
            (name.lower().encode(), value.encode("latin-1", "replace")) for name, value in response.headers.items()
        ]
        for text in dict.fromkeys(request.warnings):
            quoted = json.dumps(text, ensure_ascii=True)
            headers.append((b"warning", f"299 - {quoted}".encode()))
        if isinstance(response.body, bytes):
            headers.append((b"content-length", str(len(response.body)).encode()))
            await send({"type": "http.response.start", "status": response.code, "headers": headers})
            body = b"" if request.method == "HEAD" else response.body
            await send({"type": "http.response.body", "body": body})
            return
        await send({"type": "http.response.start", "status": response.code, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        await self._stream(request, response.body, send)

    async def _stream(self, request: Request, chunks: AsyncIterator[bytes], send: Send) -> None:
        """Pump a watch until it ends or the client goes."""
        pump = asyncio.ensure_future(self._pump(chunks, send))
        hang_up = asyncio.ensure_future(_until_disconnected(request.receive))
        try:
            await asyncio.wait((pump, hang_up), return_when=asyncio.FIRST_COMPLETED)
            if pump.done() and (failure := pump.exception()) is not None and not isinstance(failure, OSError):
                self.api.failures.append(f"watch {request.path}: {type(failure).__name__}: {failure}")
                self.api.report(failure, f"watch {request.path}")
        finally:
            for task in (pump, hang_up):
                task.cancel()
            await asyncio.gather(pump, hang_up, return_exceptions=True)
            await chunks.aclose()  # type: ignore[attr-defined]

    async def _pump(self, chunks: AsyncIterator[bytes], send: Send) -> None:
        async for chunk in chunks:
            if chunk:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    # ---- routing

    async def answer(self, request: Request) -> Response:
        user = self.api.access.authenticate(request.headers.get("authorization", ""))
        if user is None:
            raise errors.unauthorized()
        authorizer = self.api.authorizer
        if any(name.startswith("impersonate-") for name in request.headers):
            user = who_is_meant(user, request.headers, authorizer)
        request.user = user
        path = request.path
        target = parse_target(path)
        authorizer.demand(user, wish_of(request, target))
        if target is not None:
            return await self._resource(request, target)
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        return documents.answer(self.api, request, path.rstrip("/") or "/")

    # ---- resources

    async def _resource(self, request: Request, target: Target) -> Response:
        resource = self.api.registry.find(target.group, target.version, target.plural)
        misplaced = resource and resource.namespaced != bool(target.namespace) and (target.name or target.namespace)
        if resource is None or target.rest or misplaced:
            raise errors.no_such_path() if self.api.registry.is_built_in(target.group) else errors.NoSuchPage()
        if resource.computed is not None:
            return resource.computed(self, request, resource, target)
        if resource.namespaced and not target.namespace and request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()  # a list of all namespaces can be read and watched, no more
        if resource.deprecated:
            request.warnings.append(resource.deprecated)
        if request.method in ("POST", "PUT", "PATCH", "DELETE"):
            await read_body(request)
        if target.subresource:
            return await subresources.answer(self, request, resource, target)
        if request.method in ("GET", "HEAD"):
            return self.read(request, resource, target)
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
    engine: Engine, now: Callable[[], float], chance: random.Random, tokens: dict[str, User] | None = None
) -> App:
    """An application over a migrated database; `app.api.start()` and `stop()` are the caller's to await.

    `tokens` maps bearer tokens to users. `now` gives seconds since the epoch, in whatever time the caller lives.
    """
    key = chance.randbytes(32)
    return App(KubeApi(Store(engine, now), now, chance, access.Access(tokens or {}, key, now)))


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
