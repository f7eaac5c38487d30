"""Indexes over the store that controllers share: pods, ReplicaSets and nodes in brief, and whom a change concerns.

Kept from committed changes, so a controller sees its own writes before its next reconcile; rebuilt from the store at
every start.
"""

from collections.abc import Callable

from matrixcontainer.kubeapi.controllers.runtime.replica_set_index import SetFacts, SetIndex
from matrixcontainer.kubeapi.kubelet.node_info import NodeFacts, NodeIndex
from matrixcontainer.kubeapi.kubelet.pod_info import PodFacts, PodIndex
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.storage.objects import Change, Record

PodHandler = Callable[[PodFacts | None, PodFacts | None], None]  # before, now
SetHandler = Callable[[SetFacts | None, SetFacts | None], None]
NodeHandler = Callable[[NodeFacts | None, NodeFacts | None], None]


class Informers:
    """`on_pod`, `on_set` and `on_node` are called in order, after the index has changed."""

    def __init__(self, core: Core) -> None:
        self._store = core.store
        self.pods, self.sets, self.nodes = PodIndex(), SetIndex(), NodeIndex()
        self.on_pod: list[PodHandler] = []
        self.on_set: list[SetHandler] = []
        self.on_node: list[NodeHandler] = []
        self.pod_resource = core.builtin("", "pods")
        self.set_resource = core.builtin("apps", "replicasets")

    def load(self) -> None:
        for storage, index in (("nodes", self.nodes), ("replicasets.apps", self.sets), ("pods", self.pods)):
            for record in self._store.objects_of(storage):
                index.put(record)

    def on_change(self, change: Change) -> None:
        storage, key = change.record.key[0], change.record.key[1:]
        gone = change.type == "DELETED"
        if storage == "pods":
            pod_before, pod = (self.pods.drop(key), None) if gone else self.pods.put(change.record)
            for on_pod in self.on_pod:
                on_pod(pod_before, pod)
        elif storage == "replicasets.apps":
            set_before, rs = (self.sets.drop(key), None) if gone else self.sets.put(change.record)
            for on_set in self.on_set:
                on_set(set_before, rs)
        elif storage == "nodes":
            node_before, node = (self.nodes.drop(key[1]), None) if gone else self.nodes.put(change.record)
            for on_node in self.on_node:
                on_node(node_before, node)

    def sets_of(self, namespace: str, deployment_uid: str) -> list[Record]:
        """The ReplicaSets a Deployment controls."""
        keys = [facts.key for facts in self.sets.owned_by(deployment_uid) if facts.key[0] == namespace]
        records = (self._store.get(("replicasets.apps", *key)) for key in keys)
        return [record for record in records if record is not None]
