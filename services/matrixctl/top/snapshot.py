"""What `top` shows of a stack at one moment, read over REST with GET alone.

A service that does not answer takes away its own part and nothing else: what was read of it before stays, and the
header names it. NPUs are read one by one only for nodes that are not uniform (shared, or with a fault), so that a
look at many supernodes costs one page of nodes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from matrixcommon.api.client import PAGE_SIZE
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_key import key_of
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.output.screen import full_name

EVENTS = 40
LINKS = 40
UNEVEN_NODES_MAX = 8
"""Up to this many nodes, NPUs are read by node; beyond that, all NPUs in one list."""


class Mark(StrEnum):
    """The state of an NPU, without its holder; every state has its own mark, not only a colour."""

    FREE = "free"
    ALLOCATED = "allocated"
    SPARE = "spare"
    CHANGING = "changing"
    CLOSED = "closed"
    FAULTY = "faulty"
    LOST = "lost"


CHANGING = frozenset(
    ("Enrolled", "Verifying", "Manageable", "Inspecting", "Cleaning", "Deploying", "Draining", "Servicing")
)


@dataclass(frozen=True)
class Cell:
    """One NPU: its mark and its holder."""

    mark: Mark
    holder: str = ""


@dataclass(frozen=True)
class Node:
    """One node with its NPUs, in the order of their numbers."""

    name: str
    supernode: str
    cabinet: str
    state: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Instance:
    name: str
    state: str
    nodes: int
    ready: int
    spares: int
    why: str = ""
    """Reason and message of its Ready condition, if it is not ready."""


@dataclass(frozen=True)
class Event:
    at: str
    type: str
    about: str
    reason: str
    message: str


@dataclass(frozen=True)
class Link:
    """Rates in GB/s; utilisation between 0 and 1."""

    name: str
    plane: str
    sent_gbps: float
    capacity_gbps: float
    utilisation: float | None


@dataclass(frozen=True)
class Snapshot:
    """The whole snapshot. `unreachable`: services that did not answer this time."""

    nodes: tuple[Node, ...] = ()
    instances: tuple[Instance, ...] = ()
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = ()
    largest_cabinet: int = 0
    largest_supernode: int = 0
    faults: int = 0
    scale: float = 1.0
    emulated_time: str = ""
    unreachable: tuple[str, ...] = ()
    letters: dict[str, str] = field(default_factory=dict)
    """Letters by holder; a holder keeps its letter as long as it holds something."""

    def count(self, mark: Mark) -> int:
        """The number of NPUs with that mark."""
        return sum(cell.mark is mark for node in self.nodes for cell in node.cells)

    @property
    def nodes_free(self) -> int:
        return sum(all(cell.mark is Mark.FREE for cell in node.cells) for node in self.nodes)


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def assign_letters(holders: set[str], before: dict[str, str]) -> dict[str, str]:
    """Assign a letter to each holder: present ones are kept, others get the first free letter; after the last, `*`."""
    kept = {holder: letter for holder, letter in before.items() if holder in holders}
    free = iter([letter for letter in LETTERS if letter not in kept.values()])
    return kept | {holder: next(free, "*") for holder in sorted(holders - kept.keys())}


class SnapshotReader:
    """Reads successive snapshots of one running stack."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._last = Snapshot()

    def read(self) -> Snapshot:
        """The stack now. Raises only NotRunning, if it is gone."""
        self._client = ApiClient.of(self._client.folder, self._client.project)
        return self.read_from(self._client)

    def read_from(self, client: ApiClient) -> Snapshot:
        """The stack now, over this client."""
        self._client, when = client, client.stack.time
        self._unreachable: list[str] = []
        now = replace(
            self._last,
            **self._read_part("resource", self._hardware),
            **self._read_part("compute", self._instances),
            **self._read_part("link", self._links),
            scale=when.scale,
            emulated_time=timestamp(when.emulated(time.time())),
        )
        holders = {cell.holder for node in now.nodes for cell in node.cells if cell.holder}
        holders |= {instance.name for instance in now.instances}
        self._last = replace(
            now, unreachable=tuple(self._unreachable), letters=assign_letters(holders, self._last.letters)
        )
        return self._last

    def _read_part(self, service: str, read: Any) -> dict[str, Any]:
        if service not in self._client.stack.children:
            return {}
        try:
            found: dict[str, Any] = read()
            return found
        except MatrixError:
            self._unreachable.append(service)
            return {}

    def _hardware(self) -> dict[str, Any]:
        views = self._client.list("resource", "/v1/nodes")
        capacity = self._client.call("resource", "GET", "/v1/capacity")
        npus = self._npus([view["name"] for view in views if _is_uneven(view)])
        largest = capacity["largestBlock"]
        return {
            "nodes": tuple(node_of(view, npus.get(view["name"], [])) for view in views),
            "largest_cabinet": largest["cabinet"],
            "largest_supernode": largest["supernode"],
        }

    def _npus(self, nodes: list[str]) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        filters = [f"node={name}" for name in nodes] if len(nodes) <= UNEVEN_NODES_MAX else [""]
        for text in filters:
            for npu in self._client.list("resource", "/v1/npus", {"filter": text} if text else None):
                found.setdefault(npu["node"], []).append(npu)
        return found

    def _instances(self) -> dict[str, Any]:
        newest = {"pageSize": EVENTS, "orderBy": "at desc"}
        events = self._client.call("compute", "GET", "/v1/events", params=newest)["items"]
        instances = self._client.list("compute", "/v1/instances", {"orderBy": "name", "pageSize": PAGE_SIZE})
        return {
            "instances": tuple(instance_of(view) for view in instances),
            "events": tuple(
                Event(each["at"], each["type"], key_of(each["project"], each["about"]), each["reason"], each["message"])
                for each in events
            ),
            "faults": len(self._client.list("compute", "/v1/faults")),
        }

    def _links(self) -> dict[str, Any]:
        busiest = self._client.call("link", "GET", "/v1/telemetry", params={"by": "link", "top": LINKS})["items"]
        return {
            "links": tuple(
                Link(
                    each["name"],
                    each.get("plane", "-"),
                    each["sentGbps"],
                    each["capacityGbps"],
                    each.get("utilisation"),
                )
                for each in busiest
            )
        }


def _is_uneven(view: dict[str, Any]) -> bool:
    return bool(view["sharedBy"] or view["faults"] or view["usableNpus"] < view["npus"])


def node_of(view: dict[str, Any], npus: list[dict[str, Any]]) -> Node:
    """A node from its view, with its NPUs from their views where these were read."""
    whole = node_mark(view)
    holder = str(view.get("allocation") or "")
    if not npus or whole in (Mark.LOST, Mark.CLOSED):
        cells = (Cell(whole, holder if whole in (Mark.ALLOCATED, Mark.SPARE) else ""),) * int(view["npus"])
    else:
        cells = tuple(
            npu_cell(npu, whole) for npu in sorted(npus, key=lambda npu: int(npu["name"].rpartition("npu")[2]))
        )
    return Node(view["name"], view["supernode"], view["cabinet"], view["state"], cells)


def node_mark(view: dict[str, Any]) -> Mark:
    """The mark of all NPUs of a uniform node."""
    if view["agent"] == "Lost" or view["power"] != "On":
        return Mark.LOST
    if view["state"] in ("Quarantined", "Retired"):
        return Mark.CLOSED
    if view["state"] in CHANGING:
        return Mark.CHANGING
    if view.get("allocation"):
        return Mark.SPARE if view["role"] == "spare" else Mark.ALLOCATED
    return Mark.CLOSED if view["cordonedBy"] else Mark.FREE


def npu_cell(npu: dict[str, Any], node: Mark) -> Cell:
    """One NPU of a node that is not uniform."""
    if npu["health"] != "Healthy" or npu["faults"]:
        return Cell(Mark.FAULTY, str(npu.get("allocation") or ""))
    if npu.get("allocation"):
        return Cell(Mark.SPARE if node is Mark.SPARE else Mark.ALLOCATED, str(npu["allocation"]))
    return Cell(Mark.FREE if node is Mark.ALLOCATED else node)


def instance_of(view: dict[str, Any]) -> Instance:
    ready: dict[str, Any] = next((each for each in view["conditions"] if each["type"] == "Ready"), {})
    why = "" if ready.get("status") == "True" else f"{ready.get('reason', '')} {ready.get('message', '')}".strip()
    return Instance(full_name(view), view["state"], view["nodes"], view["readyNodes"], view["spares"], why)
