"""KubeClient: the few Kubernetes API verbs that the operator needs, over httpx.

Kopf uses its own client for its own requests; this one is for all others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from matrixcommon.model.errors import Conflict, Gone, InternalError, InvalidField, MatrixError, NotFound, Unavailable

MANAGER = "cloudmatrix-operator"


@dataclass(frozen=True)
class Kind:
    """A resource type and the parts of its URL."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        root = f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"
        parts = [root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


POD = Kind("v1", "Pod", "pods")
NODE = Kind("v1", "Node", "nodes", namespaced=False)
EVENT = Kind("v1", "Event", "events")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
VOLCANO_GROUP = Kind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups")
COSCHEDULING_GROUP = Kind("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups")
CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
INSTANCE = Kind("cloudmatrix.io/v1alpha1", "CloudMatrixInstance", "cloudmatrixinstances")
INFER = Kind("cloudmatrix.io/v1alpha1", "CloudMatrixInfer", "cloudmatrixinfers")
SCALING_POLICY = Kind("cloudmatrix.io/v1alpha1", "ScalingPolicy", "scalingpolicies")
RECOVERY_POLICY = Kind("cloudmatrix.io/v1alpha1", "RecoveryPolicy", "recoverypolicies")
DISRUPTION_BUDGET = Kind("cloudmatrix.io/v1alpha1", "DisruptionBudget", "disruptionbudgets", namespaced=False)
AUTOSCALER = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
SCENARIO = Kind("cloudmatrix.io/v1alpha1", "MatrixFaultScenario", "matrixfaultscenarios", namespaced=False)
FAULT = Kind("cloudmatrix.io/v1alpha1", "MatrixFault", "matrixfaults", namespaced=False)
SUPERNODE = Kind("cloudmatrix.io/v1alpha1", "Supernode", "supernodes", namespaced=False)
NETWORK_SLICE = Kind("cloudmatrix.io/v1alpha1", "NetworkSlice", "networkslices", namespaced=False)

_ERRORS: dict[int, type[MatrixError]] = {404: NotFound, 409: Conflict, 410: Gone, 422: InvalidField}


def parse_response(response: httpx.Response) -> dict[str, Any]:
    """The object or list in a response. Raises the error that the status code stands for: see KubeClient."""
    if response.status_code >= 400:
        try:
            message = response.json().get("message", response.text[:200])
        except ValueError:
            message = response.text[:200]
        retryable = response.status_code in (429, 500, 502, 503, 504)
        kind = _ERRORS.get(response.status_code, Unavailable if retryable else InternalError)
        request = response.request
        raise kind(f"Kubernetes API: {request.method} {request.url.path}: {response.status_code}: {message}")
    return orjson.loads(response.content) if response.content else {}


class KubeClient:
    """Verbs raise NotFound, Conflict, Gone, InvalidField, Unavailable, or InternalError for anything else."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def _send(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        try:
            response = await self._http.request(method, path, **kwargs)
        except httpx.HTTPError as error:
            raise Unavailable(f"Kubernetes API: {method} {path}: {type(error).__name__}: {error}") from error
        return parse_response(response)

    async def find(self, kind: Kind, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        try:
            return await self._send("GET", kind.path(namespace, name))
        except NotFound:
            return None

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: str | None = None
    ) -> tuple[list[dict[str, Any]], str]:
        """The objects and the resourceVersion to watch from."""
        params = {"labelSelector": labels} if labels else None
        listing = await self._send("GET", kind.path(namespace), params=params)
        return list(listing.get("items") or []), listing["metadata"]["resourceVersion"]

    async def apply(self, kind: Kind, body: dict[str, Any], subresource: str | None = None) -> dict[str, Any]:
        """Server-side apply, forced: takes ownership of the fields in `body` and leaves all others alone."""
        metadata = body["metadata"]
        document = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return await self._send(
            "PATCH",
            kind.path(metadata.get("namespace"), metadata["name"], subresource),
            params={"fieldManager": MANAGER, "force": "true"},
            content=orjson.dumps(document),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def merge(
        self, kind: Kind, name: str, body: dict[str, Any], namespace: str | None = None, subresource: str | None = None
    ) -> dict[str, Any]:
        return await self._send(
            "PATCH",
            kind.path(namespace, name, subresource),
            content=orjson.dumps(body),
            headers={"Content-Type": "application/merge-patch+json"},
        )

    async def create(self, kind: Kind, body: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
        return await self._send(
            "POST", kind.path(namespace), json={"apiVersion": kind.api_version, "kind": kind.kind, **body}
        )

    async def bind(self, name: str, namespace: str, body: dict[str, Any]) -> None:
        """Bind a pod to the node in `body.target`. Raises Conflict if it is already bound."""
        binding = {"apiVersion": "v1", "kind": "Binding", **body}
        await self._send("POST", POD.path(namespace, name, "binding"), json=binding)

    async def delete(
        self, kind: Kind, name: str, namespace: str | None = None, grace_s: int | None = None, uid: str | None = None
    ) -> bool:
        """Request deletion, only of the object with `uid` if given; False if there is no object of that name."""
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        preconditions = {} if uid is None else {"preconditions": {"uid": uid}}
        try:
            await self._send("DELETE", kind.path(namespace, name), json=options | preconditions)
        except NotFound:
            return False
        return True

    async def watch(
        self, kind: Kind, resource_version: str, labels: str | None = None
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield (type, object) for each change, bookmarks included. Raises Gone if the resourceVersion is too old."""
        params = {"watch": "true", "resourceVersion": resource_version, "allowWatchBookmarks": "true"}
        if labels:
            params["labelSelector"] = labels
        try:
            async with self._http.stream(
                "GET", kind.path(), params=params, timeout=httpx.Timeout(5.0, read=90.0)
            ) as response:
                if response.status_code >= 400:
                    await response.aread()
                    raise _ERRORS.get(response.status_code, Unavailable)(f"watch {kind.plural}: {response.text[:200]}")
                async for line in response.aiter_lines():
                    if line.strip():
                        event = orjson.loads(line)
                        if event["type"] == "ERROR":
                            raise Gone(f"watch {kind.plural}: {event['object'].get('message')}")
                        yield event["type"], event["object"]
        except httpx.HTTPError as error:
            raise Unavailable(f"watch {kind.plural}: {type(error).__name__}: {error}") from error
