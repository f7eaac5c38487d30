"""Collections as `get` names them: the running services that serve each, and its resources from all of them."""

from __future__ import annotations

from typing import Any

from matrixcommon.api.client import resource_path
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.output.resource_kinds import ListedKind


def serving_services(client: ApiClient, kind: ListedKind) -> list[str]:
    """The running services that serve the kind."""
    running = [each for each in (kind.service, *kind.others) if each in client.stack.children]
    return running if kind.others and running else [kind.service]


def list_resources(client: ApiClient, kind: ListedKind, filter: str | None = None) -> list[dict[str, Any]]:
    """All resources of a kind, in the kind's order."""
    params = {"orderBy": kind.order} | ({"filter": filter} if filter else {})
    views = [
        with_service(service, kind, view)
        for service in serving_services(client, kind)
        for view in client.list(service, kind.path, params)
    ]
    if kind.others:
        views.sort(key=lambda view: str(view.get(kind.order)))
    return views


def get_resource(client: ApiClient, kind: ListedKind, name: str) -> dict[str, Any]:
    """The resource of that name, from whichever service has it. Raises NotFound."""
    service = find_service(client, kind, name)
    return with_service(service, kind, client.one(service, kind.path, name, kind.whole))


def find_service(client: ApiClient, kind: ListedKind, name: str) -> str:
    """The service that has the resource; if none has, the first that serves the kind."""
    return find_services(client, kind, name)[0]


def find_services(client: ApiClient, kind: ListedKind, name: str) -> list[str]:
    """The services that have a resource of that name; if none has, the first that serves the kind."""
    if not kind.others:
        return [kind.service]
    path = resource_path(kind.path.removeprefix("/v1/"), name)
    found = [service for service in serving_services(client, kind) if client.get(service, path) is not None]
    return found or serving_services(client, kind)[:1]


def with_service(service: str, kind: ListedKind, view: dict[str, Any]) -> dict[str, Any]:
    """The view, with its service if several serve the kind."""
    return {"service": service, **view} if kind.others else view
