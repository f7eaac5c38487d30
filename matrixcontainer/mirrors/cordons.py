"""Cordons of mirrored nodes: one thing with owners, on both sides.

What a Kubernetes user sets (`kubectl cordon`, `drain`) is a cordon of the owner `kubernetes` in MatrixResource; what
others keep newcomers off a node for there shows as `unschedulable` here, with their names in an annotation. Taking it
back on one side takes back that side's own. The annotation says whether `unschedulable` was set by us: with it, only
its absence is news of a user. Both are written at once and at the version that was read, so neither can be mistaken
for the other; MatrixResource remembers the user's cordon for as long as both are there. Where we close a Node, an event
on it says for whom, which is the answer to a user whose `kubectl uncordon` found other owners.

`kubectl cordon` of a Node that is unschedulable already sends nothing at all: it cannot be seen, and leaves no owner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from matrixcommon.model.errors import Conflict, NotFound
from matrixcontainer.client.client import NODE, KubeClient
from matrixcontainer.client.events import event_on, record
from matrixcontainer.kubeapi.meta.attempts import attempt_all
from matrixcontainer.operator.decision import MANAGED_BY, MANAGED_LABEL
from matrixcontainer.operator.reconciler import READS_MAX
from matrixresource.client import ResourceClient
from matrixresource.contract.nodes import KEPT_OUT, KUBERNETES, NodeView

CORDONED_BY = "cloudmatrix.io/cordoned-by"
MANAGED_OBJECTS = f"{MANAGED_LABEL}={MANAGED_BY}"
"""The label selector of all that is mirrored."""


@dataclass(frozen=True)
class NodeMark:
    """What a Node says: whether it takes newcomers, and who we last said keeps them off."""

    version: str
    unschedulable: bool
    owners: str

    @classmethod
    def of(cls, body: dict[str, Any]) -> NodeMark:
        metadata = body["metadata"]
        owners = (metadata.get("annotations") or {}).get(CORDONED_BY, "")
        return cls(metadata["resourceVersion"], bool(body["spec"].get("unschedulable")), owners)

    def says_the_same(self, other: NodeMark | None) -> bool:
        return other is not None and (self.unschedulable, self.owners) == (other.unschedulable, other.owners)


def owners_of(node: NodeView) -> list[str]:
    """Who keeps newcomers off a node, Kubernetes' users left out."""
    kept_out = [node.state.lower()] if node.state in KEPT_OUT else []
    return sorted({*node.cordoned_by, *kept_out} - {KUBERNETES})


def cordoned_in_kubernetes(node: NodeView, mark: NodeMark) -> bool:
    """Whether a Kubernetes user wants newcomers kept off, by what the Node says and what was so before."""
    return mark.unschedulable and (not mark.owners or KUBERNETES in node.cordoned_by)


class Cordons:
    """Of all mirrored nodes. `take` is given what a watch of them brings; without one they are listed anew."""

    def __init__(self, kube: KubeClient, resource: ResourceClient, wall: Callable[[], float]) -> None:
        self._kube = kube
        self._resource = resource
        self._wall = wall
        self._marks: dict[str, NodeMark] = {}

    def see(self, bodies: Iterable[dict[str, Any]]) -> None:
        """These are all Nodes that there are."""
        self._marks = {body["metadata"]["name"]: NodeMark.of(body) for body in bodies}

    def take(self, type: str, body: dict[str, Any]) -> bool:
        """One of them changed; whether what it says of newcomers did."""
        name, mark = body["metadata"]["name"], NodeMark.of(body)
        if type == "DELETED":
            return self._marks.pop(name, None) is not None
        news = not mark.says_the_same(self._marks.get(name))
        self._marks[name] = mark
        return news

    async def reconcile(self, nodes: dict[str, NodeView]) -> None:
        """Bring both sides to what both ask for; `nodes` has each as it is then. What is refused of one keeps no other
        from its turn; then the first refusal is raised."""
        if any(name not in self._marks for name in nodes):
            self.see((await self._kube.list(NODE, labels=MANAGED_OBJECTS))[0])
        await attempt_all(self._follow(nodes, name) for name in list(nodes))

    async def _follow(self, nodes: dict[str, NodeView], name: str) -> None:
        nodes[name] = await self._reconcile(nodes[name])

    async def _reconcile(self, node: NodeView) -> NodeView:
        for _ in range(READS_MAX):
            mark = self._marks.get(node.name)
            if mark is None:
                return node  # its Node is only to be made
            asked = cordoned_in_kubernetes(node, mark)
            if asked != (KUBERNETES in node.cordoned_by):
                node = await self._resource.cordon(node.name, KUBERNETES, asked)
            owners = ",".join(owners_of(node))
            wanted = NodeMark(mark.version, asked or bool(owners), owners)
            if mark.says_the_same(wanted):
                return node
            with contextlib.suppress(Conflict):
                await self._write(node.name, mark, wanted)
                return node
            found = await self._kube.find(NODE, node.name)
            if found is None:
                self._marks.pop(node.name)
            else:
                self.take("MODIFIED", found)
        raise Conflict(f"Node {node.name} changes faster than its cordons can be mirrored")

    async def _write(self, name: str, before: NodeMark, wanted: NodeMark) -> None:
        metadata = {"resourceVersion": wanted.version, "annotations": {CORDONED_BY: wanted.owners or None}}
        body = {"metadata": metadata, "spec": {"unschedulable": wanted.unschedulable or None}}
        with contextlib.suppress(NotFound):
            written = await self._kube.merge(NODE, name, body)
            self.take("MODIFIED", written)
            if wanted.unschedulable and not before.unschedulable:
                await self._record_closed(written, wanted.owners, uncordoned=bool(before.owners))

    async def _record_closed(self, node: dict[str, Any], owners: str, uncordoned: bool) -> None:
        """`uncordoned`: a user took `unschedulable` away, and these owners' cordons are still there."""
        message, type = f"cordoned by {owners}", "Normal"
        if uncordoned:
            message, type = f"uncordoned in Kubernetes, and still cordoned by {owners}", "Warning"
        mark = node["metadata"]["resourceVersion"]
        about = (type, "NodeNotSchedulable", message)
        await record(self._kube, event_on(NODE, node, *about, component=MANAGED_BY, at=self._wall(), mark=mark))
