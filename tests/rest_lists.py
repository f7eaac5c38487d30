"""The lists that services show over REST, all pages of each, read for whoever judges them.

`fetch` asks services in this process (such as `stack.http`), `fetch_over_http` real ones with a token. The lists of one
service are read again when its journal went on meanwhile, so that they are of one moment.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from matrixcommon.api.client import PAGE_SIZE, call, error_from
from matrixcommon.model.resource_key import key_of

Item = dict[str, Any]

LISTS = {
    "resource": ("nodes", "allocations", "reservations", "quotas", "supernodes"),
    "link": ("slices", "programs", "planes", "peerings", "drains"),
    "compute": ("instances", "operations", "maintenances"),
}
WORKLOAD_LISTS = {"infer": ("deployments",)}
"""Read as well where a workload is served."""
ALL_LISTS = LISTS | WORKLOAD_LISTS
ATTEMPTS = 8
"""How often the lists of a service are read until nothing changed meanwhile."""


@dataclass
class Lists:
    """What REST showed. `torn`: services that went on changing while they were read."""

    of: dict[str, list[Item]] = field(default_factory=dict)
    capacity: Item | None = None
    torn: set[str] = field(default_factory=set)

    def __getitem__(self, name: str) -> list[Item]:
        return self.of.get(name, [])

    def keyed(self, name: str) -> dict[str, Item]:
        return {key_of(item.get("project") or "default", item["name"]): item for item in self[name]}


Request = tuple[str, str, dict[str, Any]]
"""A GET: service, path, parameters."""
Reading = Generator[Request, dict[str, Any], Any]


def _list(service: str, path: str, params: dict[str, Any] | None = None) -> Reading:
    """All pages."""
    asked, items = {"pageSize": PAGE_SIZE, **(params or {})}, []
    while True:
        answer = yield service, path, asked
        items += answer["items"]
        if not answer.get("nextPageToken"):
            return items
        asked["pageToken"] = answer["nextPageToken"]


def _version(service: str) -> Reading:
    answer = yield service, f"/v1/{ALL_LISTS[service][0]}", {"pageSize": 1}
    return answer["resourceVersion"]


def _of_service(service: str, lists: Lists) -> Reading:
    before = yield from _version(service)
    for _ in range(ATTEMPTS):
        for name in ALL_LISTS[service]:
            lists.of[name] = yield from _list(service, f"/v1/{name}")
        if service == "resource":
            lists.capacity = yield service, "/v1/capacity", {}
        if service == "link":
            lists.of["links"] = yield from _promised_links(lists["slices"])
        after = yield from _version(service)
        if after == before:
            return
        before = after
    lists.torn.add(service)


def _promised_links(slices: list[Item]) -> Reading:
    """Floors lie on what leaves the members of a slice, and on leaves and spines; all links would be 13,000."""
    links = yield from _list("link", "/v1/links", {"plane": "rdma"})
    for node in sorted({member for each in slices for member in each["members"]}):
        links += yield from _list("link", "/v1/links", {"node": node})
    return list({link["name"]: link for link in links}.values())


def reading(services: Iterable[str] = tuple(LISTS)) -> Reading:
    """Yields each GET that is needed, is sent its answer, returns the Lists."""
    lists = Lists()
    for service in services:
        yield from _of_service(service, lists)
    return lists


async def fetch(http: Mapping[str, httpx.AsyncClient], services: Iterable[str] | None = None) -> Lists:
    """From services in this process, such as `stack.http`. Without `services`, of all that there are. Raises the
    MatrixError of a service that refuses."""
    steps, answer = reading([name for name in ALL_LISTS if name in http] if services is None else services), None
    while True:
        try:
            service, path, params = steps.send(answer)  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value
        answer = await call(http[service], "GET", path, params=params)


def fetch_over_http(urls: Mapping[str, str], token: str = "", services: Iterable[str] | None = None) -> Lists:
    """From real processes, by the URL of each service. Without `services`, of those whose URL is given."""
    steps, answer = reading(services or [name for name in LISTS if name in urls]), None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(headers=headers, timeout=30, trust_env=False) as http:
        while True:
            try:
                service, path, params = steps.send(answer)  # type: ignore[arg-type]
            except StopIteration as end:
                return end.value
            shown = http.get(urls[service].rstrip("/") + path, params=params)
            if shown.status_code >= 400:
                raise error_from(shown)
            answer = shown.json()
