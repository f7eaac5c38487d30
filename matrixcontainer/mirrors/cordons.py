"""Two-way synchronisation of cordons between mirrored Nodes and MatrixResource, where cordons have owners.

A cordon set in Kubernetes (`kubectl cordon`, `drain`) becomes a cordon of the owner `kubernetes` in MatrixResource.
Cordons of other owners there set `unschedulable` on the Node, with the owners in an annotation. Lifting a cordon on one
side lifts only that side's. While the annotation is present we set `unschedulable` ourselves, so only its removal tells
of a user's action. Both are written in one patch at the resourceVersion that was read, so that the two cases cannot be
confused; MatrixResource remembers the user's cordon while others exist. When we make a Node unschedulable, an event
names the owners, which also answers a user whose `kubectl uncordon` left other owners' cordons.

`kubectl cordon` of a Node that is already unschedulable sends no request, so it cannot be noticed and adds no owner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import Conflict, NotFound
from matrixcontainer.client.client import NODE, KubeClient
from matrixcontainer.client.events import event_for_object, record_event
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.operator.decision import MANAGED_BY, MANAGED_LABEL
from matrixcontainer.operator.reconciler import READS_MAX
from matrixresource.client import ResourceClient
from matrixresource.contract.nodes import KUBERNETES, OUT_OF_SERVICE_STATES, NodeView

CORDONED_BY = "cloudmatrix.io/cordoned-by"
MANAGED_OBJECTS = f"{MANAGED_LABEL}={MANAGED_BY}"
"""Label selector of all mirrored objects."""


@dataclass(frozen=True)
class CordonState:
    """Cordon state of a Node: whether it is unschedulable, and the owners that we last wrote into its annotation."""

    version: str
    unschedulable: bool
    owners: str

    @classmethod
    def of(cls, body: dict[str, Any]) -> CordonState:
        metadata = body["metadata"]
        owners = (metadata.get("annotations") or {}).get(CORDONED_BY, "")
        return cls(metadata["resourceVersion"], bool(body["spec"].get("unschedulable")), owners)

    def matches(self, other: CordonState | None) -> bool:
        return other is not None and (self.unschedulable, self.owners) == (other.unschedulable, other.owners)


def other_owners(node: NodeView) -> list[str]:
    """Owners of a node's cordons other than Kubernetes users; a closed state of the node counts as one."""
    state = [node.state.lower()] if node.state in OUT_OF_SERVICE_STATES else []
    return sorted({*node.cordoned_by, *state} - {KUBERNETES})


def cordoned_in_kubernetes(node: NodeView, state: CordonState) -> bool:
    """Whether a Kubernetes user has cordoned the node, judged by the Node and by the cordon recorded so far."""
    return state.unschedulable and (not state.owners or KUBERNETES in node.cordoned_by)


class Cordons:
    """Cordons of all mirrored nodes. `handle_event` receives watch events; nodes that it has not seen are listed."""

    def __init__(self, kube: KubeClient, resource: ResourceClient, wall: Callable[[], float]) -> None:
        self._kube = kube
        self._resource = resource
        self._wall = wall
        self._states: dict[str, CordonState] = {}

    def replace(self, bodies: Iterable[dict[str, Any]]) -> None:
        """Replace the known Nodes by a complete list."""
        self._states = {body["metadata"]["name"]: CordonState.of(body) for body in bodies}

    def handle_event(self, type: str, body: dict[str, Any]) -> bool:
        """Process a watch event; return whether the Node's cordon state changed."""
        name, state = body["metadata"]["name"], CordonState.of(body)
        if type == "DELETED":
            return self._states.pop(name, None) is not None
        changed = not state.matches(self._states.get(name))
        self._states[name] = state
        return changed

    async def reconcile(self, nodes: dict[str, NodeView]) -> None:
        """Synchronise both sides and update `nodes` with the result. An error in one node does not hold up the others;
        the first is raised afterwards."""
        if any(name not in self._states for name in nodes):
            self.replace((await self._kube.list(NODE, labels=MANAGED_OBJECTS))[0])
        await attempt_all(self._reconcile_node(nodes, name) for name in list(nodes))

    async def _reconcile_node(self, nodes: dict[str, NodeView], name: str) -> None:
        nodes[name] = await self._sync_cordon(nodes[name])

    async def _sync_cordon(self, node: NodeView) -> NodeView:
        for _ in range(READS_MAX):
            state = self._states.get(node.name)
            if state is None:
                return node  # its Node is not created yet
            cordoned = cordoned_in_kubernetes(node, state)
            if cordoned != (KUBERNETES in node.cordoned_by):
                node = await self._resource.cordon(node.name, KUBERNETES, cordoned)
            owners = ",".join(other_owners(node))
            desired = CordonState(state.version, cordoned or bool(owners), owners)
            if state.matches(desired):
                return node
            with contextlib.suppress(Conflict):
                await self._write(node.name, state, desired)
                return node
            current = await self._kube.find(NODE, node.name)
            if current is None:
                self._states.pop(node.name)
            else:
                self.handle_event("MODIFIED", current)
        raise Conflict(f"Node {node.name} changes faster than its cordons can be mirrored")

    async def _write(self, name: str, before: CordonState, desired: CordonState) -> None:
        metadata = {"resourceVersion": desired.version, "annotations": {CORDONED_BY: desired.owners or None}}
        body = {"metadata": metadata, "spec": {"unschedulable": desired.unschedulable or None}}
        with contextlib.suppress(NotFound):
            written = await self._kube.merge(NODE, name, body)
            self.handle_event("MODIFIED", written)
            if desired.unschedulable and not before.unschedulable:
                await self._record_unschedulable(written, desired.owners, uncordoned=bool(before.owners))

    async def _record_unschedulable(self, node: dict[str, Any], owners: str, uncordoned: bool) -> None:
        """Record why a Node is unschedulable. `uncordoned`: a user removed `unschedulable` but other owners remain."""
        message, type = f"cordoned by {owners}", "Normal"
        if uncordoned:
            message, type = f"uncordoned in Kubernetes, but still cordoned by {owners}", "Warning"
        version = node["metadata"]["resourceVersion"]
        about = (type, "NodeNotSchedulable", message)
        await record_event(
            self._kube, event_for_object(NODE, node, *about, component=MANAGED_BY, at=self._wall(), dedup_key=version)
        )
