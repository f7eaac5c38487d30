"""Mirrors the services' state into Kubernetes: Nodes, Supernodes and NetworkSlices.

Each mirror compares the desired objects with what it last wrote and applies the difference. It runs at every change
that the services report and periodically. After a start it compares with the actual objects, and changes or deletions
by others that a watch reports are overwritten.
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
from matrixcontainer.operator.workload import NPU_RESOURCE
from matrixcontainer.scheduler.scheduler import GANG_LABEL
from matrixresource.client import ResourceClient
from matrixresource.contract.allocations import AllocationView

log = logging.getLogger(__name__)

RESYNC_S = 300.0
"""How often every object is rewritten regardless of what we last wrote, in case a watch has missed a change."""

SORT_KEYS = orjson.OPT_SORT_KEYS
UNKNOWN = (b"", b"")
"""Placeholder for what was last written that forces a write."""

OUR_TAINTS = ("cloudmatrix.io/", "node.kubernetes.io/", NPU_RESOURCE)
"""How the keys of taints begin that the mirror writes. All others are users', and stay."""

MIRRORED = (NODE, SUPERNODE, NETWORK_SLICE)


class Mirror:
    """Keeps the objects of one kind equal to the desired ones."""

    def __init__(self, kube: KubeClient, kind: Kind, *, shared: bool = False) -> None:
        """`shared`: others own fields of these objects too, so only deletions and changes of what the mirror wrote are
        reverted."""
        self._kube = kube
        self._kind = kind
        self._shared = shared
        self._written: dict[str, tuple[bytes, bytes]] = {}
        self._observed: dict[str, str | None] = {}
        """resourceVersions that a watch reported since the last `sync`; None if the object was deleted."""
        self._versions: dict[str, str] = {}
        self._own_versions: dict[str, tuple[str, ...]] = {}
        """The last two resourceVersions of our own writes: an object and then its status."""
        self._user_taints: dict[str, list[dict[str, Any]]] = {}
        """Taints that users added to shared objects. The list is written as a whole, so the mirror repeats them."""
        self._listed = False

    async def sync(self, desired: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> int:
        """Write objects that differ from `wanted` (name to (object, status)) and delete ours that are not in it; return
        how many were changed. An error in one object does not hold up the others; the first is raised afterwards."""
        if not self._listed:
            present, _ = await self._kube.list(self._kind, labels=MANAGED_OBJECTS)
            self._written |= {each["metadata"]["name"]: UNKNOWN for each in present}
            self._versions = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in present}
            self._user_taints = {each["metadata"]["name"]: user_taints(each) for each in present if self._shared}
            self._listed = True
        for name in filter(self._is_foreign_change, self._observed):
            self._written[name] = UNKNOWN
        self._observed.clear()
        unwanted = sorted(set(self._written) - set(desired))
        changed = await attempt_all(
            chain(
                (self._write(name, *each) for name, each in desired.items()),
                (self._delete(name) for name in unwanted),
            )
        )
        return sum(changed)

    async def _write(self, name: str, body: dict[str, Any], status: dict[str, Any]) -> bool:
        """Write the parts that differ from what was last written; return whether any did. After an error the next call
        writes both."""
        if added := self._user_taints.get(name):
            body = {**body, "spec": {**body["spec"], "taints": [*body["spec"]["taints"], *added]}}
        texts = (orjson.dumps(body, None, SORT_KEYS), orjson.dumps(_without_timestamps(status), None, SORT_KEYS))
        current = self._written.get(name, UNKNOWN)
        self._written[name] = UNKNOWN
        if current[0] != texts[0]:
            self._record_version(await self._kube.apply(self._kind, body))
        if current[1] != texts[1]:
            await self._write_status(name, status)
        self._written[name] = texts
        return current != texts

    async def _delete(self, name: str) -> bool:
        await self._kube.delete(self._kind, name)
        del self._written[name]
        return True

    async def _write_status(self, name: str, status: dict[str, Any]) -> None:
        """Write the status at the last known resourceVersion, or over others' writes at theirs: the mirror wins."""
        for _ in range(READS_MAX):
            body = {"metadata": {"resourceVersion": self._versions[name]}, "status": status}
            try:
                self._record_version(await self._kube.merge(self._kind, name, body, subresource="status"))
                return
            except Conflict:
                current = await self._kube.find(self._kind, name)
                if current is None:
                    break
                self._record_version(current)
        raise Conflict(f"{self._kind.kind} {name} changes faster than it can be mirrored")

    def handle_event(self, type: str, body: dict[str, Any]) -> bool:
        """Process a watch event; return whether it is another client's change that has to be reverted."""
        name = body["metadata"]["name"]
        if type != "DELETED" and self._shared:
            self._observed.pop(name, None)
            self._user_taints[name] = user_taints(body)
            if not self._is_altered(name, body):
                return False
            self._written[name] = UNKNOWN
            return True
        self._user_taints.pop(name, None)
        self._observed[name] = None if type == "DELETED" else body["metadata"]["resourceVersion"]
        return self._is_foreign_change(name)

    def replace(self, bodies: list[dict[str, Any]]) -> bool:
        """Process a complete list; return whether other clients have changed any object since we wrote it."""
        present = {body["metadata"]["name"] for body in bodies}
        self._observed = {name: None for name in self._written if name not in present}
        return any([bool(self._observed), *(self.handle_event("MODIFIED", body) for body in bodies)])

    def _is_altered(self, name: str, body: dict[str, Any]) -> bool:
        """Whether a shared object lacks labels, annotations, taints or resources that were last written. Taints that
        Kubernetes itself sets come and go with the Node's conditions and are not compared."""
        written = self._written.get(name, UNKNOWN)
        if written == UNKNOWN or body["metadata"]["resourceVersion"] in self._own_versions.get(name, ()):
            return False
        desired, status = orjson.loads(written[0]), orjson.loads(written[1])
        for field in ("labels", "annotations"):
            if not desired["metadata"].get(field, {}).items() <= (body["metadata"].get(field) or {}).items():
                return True
        present = (body.get("spec") or {}).get("taints") or []
        taints = desired.get("spec", {}).get("taints", [])
        if any(not each["key"].startswith("node.kubernetes.io/") and each not in present for each in taints):
            return True
        current = body.get("status") or {}
        return any(status.get(field, {}) != current.get(field, {}) for field in ("capacity", "allocatable"))

    def _is_foreign_change(self, name: str) -> bool:
        """Whether the last reported change of the object is not ours. A watch may report our own write before its
        response arrives; it is then taken for another's and repeated, which changes nothing.
        """
        return name in self._written and self._observed[name] != self._versions.get(name)

    def _record_version(self, current: dict[str, Any]) -> None:
        name, version = current["metadata"]["name"], current["metadata"]["resourceVersion"]
        self._versions[name] = version
        self._own_versions[name] = (*self._own_versions.get(name, ())[-1:], version)

    def invalidate(self) -> None:
        """Compare with the actual objects at the next `sync`."""
        self._listed = False
        self._written.clear()
        self._observed.clear()


def user_taints(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The taints of a Node that neither the mirror nor Kubernetes itself sets."""
    taints = (node.get("spec") or {}).get("taints") or []
    return [each for each in taints if not each["key"].startswith(OUR_TAINTS)]


def npus_without_pods(allocations: Iterable[AllocationView]) -> dict[str, int]:
    """Per node, how many NPUs have a die held by a shared-node allocation that is not a gang of pods."""
    npus_by_node: dict[str, set[int]] = defaultdict(set)
    for allocation in allocations:
        if GANG_LABEL not in allocation.labels:
            for member in allocation.members:
                npus_by_node[member.node] |= {die // 2 for die in member.dies or []}
    return {node: len(npus) for node, npus in npus_by_node.items()}


def _without_timestamps(status: dict[str, Any]) -> dict[str, Any]:
    """The status without its conditions' timestamps."""
    dates = ("lastHeartbeatTime", "lastTransitionTime")
    conditions = [{k: v for k, v in c.items() if k not in dates} for c in status.get("conditions", [])]
    return {**status, "conditions": conditions} if conditions else status


class Mirrors:
    """All mirrors. `slices` returns the views of MatrixLink's slices."""

    def __init__(
        self,
        kube: KubeClient,
        resource: ResourceClient,
        slices: Callable[[], Any],
        wall: Callable[[], float],
        shared: bool = False,
    ) -> None:
        """`shared`: whether the cluster also has real machines and other pods."""
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
        self._resync_at = 0.0

    def replace(self, kind: Kind, bodies: list[dict[str, Any]]) -> bool:
        """Process a complete list of the kind's objects; return whether a reconcile is needed."""
        if kind == NODE:
            self.cordons.replace(bodies)
        return self._mirrors[kind].replace(bodies)

    def handle_event(self, kind: Kind, type: str, body: dict[str, Any]) -> bool:
        """Process a watch event; return whether a reconcile is needed."""
        cordoned = kind == NODE and self.cordons.handle_event(type, body)
        return self._mirrors[kind].handle_event(type, body) or cordoned

    async def reconcile(self) -> str:
        """Bring every mirror up to date."""
        if self._wall() >= self._resync_at:
            self._invalidate()
            self._resync_at = self._wall() + RESYNC_S
        try:
            changed = await self._reconcile_all()
        except (NotFound, Conflict):
            self._invalidate()
            raise
        return f"{changed} mirrored objects changed"

    def resync(self) -> None:
        """Compare with the actual objects at the next reconcile."""
        self._resync_at = 0.0

    def _invalidate(self) -> None:
        self.cordons.replace(())
        for mirror in self._mirrors.values():
            mirror.invalidate()

    async def _reconcile_all(self) -> int:
        syncs = (self._sync_nodes, self._sync_supernodes, self._sync_slices)
        return sum(await attempt_all(sync() for sync in syncs))

    async def _sync_nodes(self) -> int:
        """Mirror Nodes, even if synchronising their cordons fails; that error is raised afterwards."""
        now, cordon_error = kube_time(self._wall()), None
        nodes = {node.name: node for node in await self._resource.nodes()}
        try:
            await self.cordons.reconcile(nodes)
        except MatrixError as error:
            cordon_error = error
        shared = any(node.shared_by for node in nodes.values())
        npus_in_use = npus_without_pods(await self._resource.allocations()) if shared else {}
        desired = {}
        for name, node in nodes.items():
            status = node_status(node, now, self._statuses.get(name), npus_in_use.get(name, 0))
            self._statuses[name] = status
            desired[name] = (node_object(node, self._shared), status)
        changed = await self._nodes.sync(desired)
        if cordon_error is not None:
            raise cordon_error
        return changed

    async def _sync_supernodes(self) -> int:
        supernodes = await self._resource.supernodes()
        return await self._supernodes.sync({each.name: supernode_object(each) for each in supernodes})

    async def _sync_slices(self) -> int:
        views = await self._slices()
        return await self._links.sync({slice_mirror_name(view): slice_object(view) for view in views})
