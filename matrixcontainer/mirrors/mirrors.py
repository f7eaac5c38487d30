"""Keeps mirrors of the services' state in Kubernetes: Nodes, Supernodes and NetworkSlices.

Each mirror compares what should be there with what it last wrote and applies the difference. It runs at every change
the services report and on a period, after a start it compares with what is really there, and what a watch says others
have changed or deleted since is written over.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import orjson

from matrixcommon.model.errors import Conflict, MatrixError, NotFound
from matrixcontainer.client.client import NETWORK_SLICE, NODE, SUPERNODE, Kind, KubeClient
from matrixcontainer.client.events import kube_time
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.mirrors.cordons import MANAGED_OBJECTS, Cordons
from matrixcontainer.mirrors.objects import node_object, node_status, slice_mirror_name, slice_object, supernode_object
from matrixcontainer.operator.reconciler import READS_MAX
from matrixcontainer.scheduler.scheduler import GANG_LABEL
from matrixresource.client import ResourceClient
from matrixresource.contract.allocations import AllocationView

log = logging.getLogger(__name__)

ANEW_S = 300.0
"""How often everything is written anew, whatever we believe to be there and whatever a watch has missed."""

SORTED = orjson.OPT_SORT_KEYS
UNKNOWN = (b"", b"")
"""In place of what was written: it is written again, whatever is there."""

MIRRORED = (NODE, SUPERNODE, NETWORK_SLICE)


class Mirror:
    """Objects of one kind, made to match `wanted`: name to (object, status)."""

    def __init__(self, kube: KubeClient, kind: Kind, *, shared: bool = False) -> None:
        """`shared`: others write their own parts of these objects, so that only a deletion has to be made good."""
        self._kube = kube
        self._kind = kind
        self._shared = shared
        self._written: dict[str, tuple[bytes, bytes]] = {}
        self._heard: dict[str, str | None] = {}
        """The versions that a watch brought since the last look; None where it was deleted."""
        self._versions: dict[str, str] = {}
        self._looked = False

    async def match(self, wanted: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> int:
        """Write what differs, delete what is ours and unwanted; returns how many objects were touched. What is refused
        of one keeps no other from its turn; then the first refusal is raised."""
        if not self._looked:
            present, _ = await self._kube.list(self._kind, labels=MANAGED_OBJECTS)
            self._written |= {each["metadata"]["name"]: UNKNOWN for each in present}
            self._versions = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in present}
            self._looked = True
        for name in filter(self._is_anothers, self._heard):
            self._written[name] = UNKNOWN
        self._heard.clear()
        unwanted = sorted(set(self._written) - set(wanted))
        touched = await attempt_all(
            chain(
                (self._write(name, *each) for name, each in wanted.items()),
                (self._delete(name) for name in unwanted),
            )
        )
        return sum(touched)

    async def _write(self, name: str, body: dict[str, Any], status: dict[str, Any]) -> bool:
        """Write what differs from what was written last, whether anything does. What is refused is written anew."""
        texts = (orjson.dumps(body, None, SORTED), orjson.dumps(_undated(status), None, SORTED))
        current = self._written.get(name, UNKNOWN)
        self._written[name] = UNKNOWN
        if current[0] != texts[0]:
            self._see(await self._kube.apply(self._kind, body))
        if current[1] != texts[1]:
            await self._write_status(name, status)
        self._written[name] = texts
        return current != texts

    async def _delete(self, name: str) -> bool:
        await self._kube.delete(self._kind, name)
        del self._written[name]
        return True

    async def _write_status(self, name: str, status: dict[str, Any]) -> None:
        """At the version that was seen last; where others have written since, at theirs: the mirror is right."""
        for _ in range(READS_MAX):
            body = {"metadata": {"resourceVersion": self._versions[name]}, "status": status}
            try:
                self._see(await self._kube.merge(self._kind, name, body, subresource="status"))
                return
            except Conflict:
                found = await self._kube.find(self._kind, name)
                if found is None:
                    break
                self._see(found)
        raise Conflict(f"{self._kind.kind} {name} changes faster than it can be mirrored")

    def take(self, type: str, body: dict[str, Any]) -> bool:
        """A change that a watch brings; whether somebody else made it, so that it is to be made good."""
        name = body["metadata"]["name"]
        if type != "DELETED" and self._shared:
            self._heard.pop(name, None)
            return False
        self._heard[name] = None if type == "DELETED" else body["metadata"]["resourceVersion"]
        return self._is_anothers(name)

    def see(self, bodies: list[dict[str, Any]]) -> bool:
        """These are all objects that there are; whether others have changed any since we wrote."""
        present = {body["metadata"]["name"] for body in bodies}
        self._heard = {name: None for name in self._written if name not in present}
        return any([bool(self._heard), *(self.take("MODIFIED", body) for body in bodies)])

    def _is_anothers(self, name: str) -> bool:
        """Whether the last that was heard of it is not of our writing. What we wrote may be heard before it is
        answered, and is taken for another's then: the same is written again, which changes nothing.
        """
        return name in self._written and self._heard[name] != self._versions.get(name)

    def _see(self, current: dict[str, Any]) -> None:
        self._versions[current["metadata"]["name"]] = current["metadata"]["resourceVersion"]

    def forget(self) -> None:
        """Compare with what is really there the next time."""
        self._looked = False
        self._written.clear()
        self._heard.clear()


def npus_without_pods(allocations: Iterable[AllocationView]) -> dict[str, int]:
    """By node, the NPUs of which somebody holds a die as a part of the node without being a gang of pods."""
    found: dict[str, set[int]] = defaultdict(set)
    for allocation in allocations:
        if GANG_LABEL not in allocation.labels:
            for member in allocation.members:
                found[member.node] |= {die // 2 for die in member.dies or []}
    return {node: len(npus) for node, npus in found.items()}


def _undated(status: dict[str, Any]) -> dict[str, Any]:
    """The status without what only says when it was looked at."""
    dates = ("lastHeartbeatTime", "lastTransitionTime")
    conditions = [{k: v for k, v in c.items() if k not in dates} for c in status.get("conditions", [])]
    return {**status, "conditions": conditions} if conditions else status


class Mirrors:
    """All mirrors. `slices` asks MatrixLink for the views of its slices."""

    def __init__(
        self,
        kube: KubeClient,
        resource: ResourceClient,
        slices: Callable[[], Any],
        wall: Callable[[], float],
        shared: bool = False,
    ) -> None:
        """`shared`: whether the cluster has machines and pods of its own."""
        self._kube = kube
        self._shared = shared
        self._resource = resource
        self._slices = slices
        self._wall = wall
        self.cordons = Cordons(kube, resource, wall)
        self._nodes = Mirror(kube, NODE, shared=True)
        self._supernodes = Mirror(kube, SUPERNODE)
        self._links = Mirror(kube, NETWORK_SLICE)
        self._mirrors = {NODE: self._nodes, SUPERNODE: self._supernodes, NETWORK_SLICE: self._links}
        self._statuses: dict[str, dict[str, Any]] = {}
        self._anew_at = 0.0

    def see(self, kind: Kind, bodies: list[dict[str, Any]]) -> bool:
        """These are all objects of the kind that there are; whether there is anything to do about them."""
        if kind == NODE:
            self.cordons.see(bodies)
        return self._mirrors[kind].see(bodies)

    def take(self, kind: Kind, type: str, body: dict[str, Any]) -> bool:
        """One of them changed, as a watch says; whether there is anything to do about it."""
        cordoned = kind == NODE and self.cordons.take(type, body)
        return self._mirrors[kind].take(type, body) or cordoned

    async def reconcile(self) -> str:
        """Bring every mirror up to date."""
        if self._wall() >= self._anew_at:
            self._forget()
            self._anew_at = self._wall() + ANEW_S
        try:
            touched = await self._reconcile_all()
        except (NotFound, Conflict):
            self._forget()
            raise
        return f"{touched} mirrored objects touched"

    def _forget(self) -> None:
        self.cordons.see(())
        for mirror in self._mirrors.values():
            mirror.forget()

    async def _reconcile_all(self) -> int:
        every = (self._match_nodes, self._match_supernodes, self._match_slices)
        return sum(await attempt_all(match() for match in every))

    async def _match_nodes(self) -> int:
        """As the services have them, whatever is refused of their cordons."""
        at, refused = kube_time(self._wall()), None
        nodes = {node.name: node for node in await self._resource.nodes()}
        try:
            await self.cordons.reconcile(nodes)
        except MatrixError as failure:
            refused = failure
        shared = any(node.shared_by for node in nodes.values())
        taken = npus_without_pods(await self._resource.allocations()) if shared else {}
        wanted = {}
        for name, node in nodes.items():
            status = node_status(node, at, self._statuses.get(name), taken.get(name, 0))
            self._statuses[name] = status
            wanted[name] = (node_object(node, self._shared), status)
        touched = await self._nodes.match(wanted)
        if refused is not None:
            raise refused
        return touched

    async def _match_supernodes(self) -> int:
        supernodes = await self._resource.supernodes()
        return await self._supernodes.match({each.name: supernode_object(each) for each in supernodes})

    async def _match_slices(self) -> int:
        views = await self._slices()
        return await self._links.match({slice_mirror_name(view): slice_object(view) for view in views})
