"""Non-resource URLs: health, version, discovery and OpenAPI."""

from collections.abc import Callable

from matrixcontainer.kubeapi.codec.negotiation import AGGREGATED_TYPE, negotiate, wants_aggregated
from matrixcontainer.kubeapi.endpoints.discovery import Discovery
from matrixcontainer.kubeapi.endpoints.openapi import OpenApi, swagger
from matrixcontainer.kubeapi.endpoints.request import Request
from matrixcontainer.kubeapi.endpoints.response import Response, as_json
from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.meta.version import VERSION
from matrixcontainer.kubeapi.registry.resource import Registry
from matrixcontainer.kubeapi.registry.store_errors import storage_api_error
from matrixcontainer.kubeapi.storage.objects import StorageError

OPENAPI_PROTOBUF = "proto"
OPENAPI_PROTOBUF_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


class NonResource:
    """`Discovery` and `OpenApi` cache the documents until the registry changes."""

    def __init__(self, registry: Registry, write_failure: Callable[[], StorageError | None]) -> None:
        self._registry = registry
        self._write_failure = write_failure
        self.discovery, self.openapi = Discovery(registry), OpenApi(registry)

    def answer(self, request: Request, path: str) -> Response:
        if path == "/readyz" and (failure := self._write_failure()) is not None:
            body = f"its storage, which takes no writes: {storage_api_error(failure).message}\n"
            return Response(body.encode(), 500, media="text/plain; charset=utf-8")
        if path in ("/livez", "/readyz", "/healthz") or path.startswith(("/livez/", "/readyz/", "/healthz/")):
            return Response(b"ok", media="text/plain; charset=utf-8")
        if path == "/version":
            return as_json(VERSION)
        if path in ("/api", "/apis"):
            if wants_aggregated(request.accept):
                return self._discovery_response(request, f"aggregated:{path[1:]}", AGGREGATED_TYPE)
            negotiate(request.accept, forms=False)
            return self._discovery_response(request, path[1:])
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) == 2:
            return self._discovery_response(request, f"version:/{parts[1]}")
        if parts[0] == "apis" and len(parts) == 2:
            return self._discovery_response(request, f"group:{parts[1]}")
        if parts[0] == "apis" and len(parts) == 3:
            return self._discovery_response(request, f"version:{parts[1]}/{parts[2]}")
        if parts[0] == "openapi":
            return self._openapi(request, parts[1:])
        if path == "/":
            return as_json({"paths": self._paths()})
        raise errors.PageNotFound()

    def _paths(self) -> list[str]:
        groups = self._registry.groups()
        paths = ["/api", "/api/v1", "/apis", *(f"/apis/{group}" for group in groups)]
        paths += [f"/apis/{group}/{version}" for group in groups for version in self._registry.versions(group)]
        return sorted([*paths, "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"])

    def _discovery_response(self, request: Request, name: str, media: str = "application/json") -> Response:
        try:
            body, tag = self.discovery.document(name)
        except KeyError:
            parts = request.path.strip("/").split("/")
            known = parts[0] == "api" or self._registry.is_built_in(parts[1])
            raise (errors.no_such_path() if known else errors.PageNotFound()) from None
        headers = {"ETag": tag, "Vary": "Accept"}
        if request.headers.get("if-none-match") == tag:
            return Response(b"", 304, media, headers)
        return Response(body, 200, media, headers)

    def _openapi(self, request: Request, parts: list[str]) -> Response:
        if parts == ["v2"]:
            accept = request.accept
            protobuf = OPENAPI_PROTOBUF in accept and "application/json" not in accept and "*/*" not in accept
            return Response(swagger(protobuf), media=OPENAPI_PROTOBUF_TYPE if protobuf else "application/json")
        if parts == ["v3"]:
            return Response(self.openapi.index())
        if parts[:1] == ["v3"] and OPENAPI_PROTOBUF in request.accept and "json" not in request.accept:
            raise errors.not_acceptable("application/json")
        try:
            if parts[1:] == ["version"]:
                return Response(self.openapi.version_document())
            if parts[1:2] == ["api"]:
                return Response(self.openapi.document("", parts[2]))
            return Response(self.openapi.document(parts[2], parts[3]))
        except (KeyError, IndexError):
            raise errors.no_such_path() from None
