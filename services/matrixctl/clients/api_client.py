"""Client of a running stack: the address of each service, the token to use, and calls that raise errors by reason.

Every subcommand that asks something starts here: `Reach.of(state)` reads the state folder, or says that nothing runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from matrixcommon.api.client import PAGE_SIZE, EventReader, error_from, resource_path, split_project
from matrixcommon.model.errors import NotFound, Unavailable
from matrixcommon.model.resource_key import DEFAULT_PROJECT, name_of, project_of
from services.matrixctl.output.screen import NotRunning
from services.matrixctl.supervisor.state_folder import Stack, StateFolder

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

PROJECT_COLLECTIONS = {
    "resource": "allocations assignments operations plans quotas reservations",
    "link": "backup-paths communicators events fabric-views peerings programs reachability routes slices telemetry "
    "what-ifs",
    "compute": "events instances operations recovery-policies reliability scaling-policies stuck",
    "infer": "deployments reports stuck usage usage-limits",
    "agents": "traffic",
}
"""Collections, by service, whose requests may name a project; the others belong to the machine as a whole."""

DEADLINE_WALL_S = 30.0
RETRY_PERIOD_WALL_S = 0.2


def retry_while_unavailable(call: Callable[[], T], timeout_wall_s: float) -> T:
    """Call, retrying that long while the service is down. Only for calls that may be repeated."""
    deadline = time.monotonic() + timeout_wall_s
    while True:
        try:
            return call()
        except Unavailable:
            if time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_PERIOD_WALL_S)


@dataclass
class ApiClient:
    """A running stack, seen from outside. `timeout_wall_s`: how long to retry while a service is down. `project`: the
    default for requests that name none."""

    folder: StateFolder
    stack: Stack
    timeout_wall_s: float = 0.0
    project: str | None = None
    deadline_wall_s: float = DEADLINE_WALL_S
    """Timeout of a request."""

    @classmethod
    def of(cls, folder: StateFolder, project: str | None = None) -> ApiClient:
        stack = folder.read()
        if stack is None or not (stack.contained or folder.holders()):
            raise NotRunning(f"no stack runs in {folder.path}; start one with `matrixctl up --state {folder.path}`")
        return cls(folder, stack, project=project)

    def url(self, service: str) -> str:
        child = self.stack.children.get(service)
        if child is None:
            raise NotRunning(f"this stack has no {service} process; it was started with --only")
        return child.url

    def call(
        self,
        service: str,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: dict[str, Any] | None = None,
        if_match: str | None = None,
    ) -> dict[str, Any]:
        """Call and return the JSON answer. Raises the MatrixError that the service names, or Unavailable if it does not
        answer. `if_match`: the etag of the resource to change."""
        answer = self.fetch(service, path, params, method=method, body=body, if_match=if_match)
        found: dict[str, Any] = answer.json() if answer.content else {}
        return found

    def fetch(
        self,
        service: str,
        path: str,
        params: dict[str, Any] | None = None,
        *,
        method: str = "GET",
        body: Any = None,
        if_match: str | None = None,
    ) -> httpx.Response:
        """Call and return the raw answer; raises the same. Retried POSTs are idempotent."""
        import httpx

        headers = {"Idempotency-Key": uuid4().hex} if method == "POST" else {}
        headers |= {"If-Match": if_match} if if_match is not None else {}
        path, params = split_project(path, params)
        params = {**self._project(service, path), **(params or {})}

        def once() -> httpx.Response:
            with self._client(service) as http:
                try:
                    answer = http.request(method, path, json=body, params=params or None, headers=headers)
                except httpx.HTTPError as wrong:
                    raise Unavailable(f"{service} does not answer at {self.url(service)}: {wrong}") from wrong
            if answer.status_code >= 400:
                raise error_from(answer)
            return answer

        return retry_while_unavailable(once, self.timeout_wall_s)

    def list(self, service: str, path: str, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Every item of a collection, from all pages."""
        items: list[dict[str, Any]] = []
        query: dict[str, Any] = {"pageSize": PAGE_SIZE, **(params or {})}
        while True:
            page = self.call(service, "GET", path, params=query)
            items += page["items"]
            if not page.get("nextPageToken"):
                return items
            query["pageToken"] = page["nextPageToken"]

    def get(self, service: str, path: str) -> dict[str, Any] | None:
        """One resource; None if it does not exist."""
        try:
            return self.call(service, "GET", path)
        except NotFound:
            return None

    def one(self, service: str, path: str, name: str, by_filter: bool) -> dict[str, Any]:
        """The resource `name`, or `project/name`. Raises NotFound. `by_filter`: the service serves only the
        collection."""
        if not by_filter:
            return self.call(service, "GET", resource_path(path.removeprefix("/v1/"), name))
        asked = {"filter": f"name={name_of(name)}"}
        if "/" in name or _has_projects(service, path):
            asked["project"] = project_of(name) if "/" in name else self.project or DEFAULT_PROJECT
        for view in self.list(service, path, asked):
            return view
        raise NotFound(f"there is none named {name!r} in {path}", field="name")

    def watch(self, service: str, path: str, params: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield changes as (ADDED | MODIFIED | DELETED, view), starting with the present state, until the stream
        ends."""
        import httpx

        with self._client(service) as http:
            try:
                asked = {"watch": "true", **self._project(service, path), **params}
                with http.stream("GET", path, params=asked, timeout=httpx.Timeout(5, read=60)) as answer:
                    if answer.status_code >= 400:
                        answer.read()
                        raise error_from(answer)
                    events = EventReader()
                    for line in answer.iter_lines():
                        if (event := events.take(line)) and event.type != "BOOKMARK":
                            yield event.type, event.view
            except httpx.HTTPError as wrong:
                raise Unavailable(f"{service} ended the watch: {wrong}") from wrong

    def _project(self, service: str, path: str) -> dict[str, str]:
        """The `project` parameter, for collections that have projects."""
        return {"project": self.project} if self.project and _has_projects(service, path) else {}

    def _client(self, service: str) -> httpx.Client:
        import httpx

        headers = {"Authorization": f"Bearer {self.folder.admin_token()}"}
        encrypted = self.url(service).startswith("https")
        # Loading the system's certificates takes longer than most answers do, and plain HTTP needs none.
        return httpx.Client(
            base_url=self.url(service), headers=headers, timeout=self.deadline_wall_s, trust_env=False, verify=encrypted
        )


def _has_projects(service: str, path: str) -> bool:
    collection = path.removeprefix("/v1/").partition("/")[0].partition(":")[0]
    return collection in PROJECT_COLLECTIONS.get(service, "").split()
