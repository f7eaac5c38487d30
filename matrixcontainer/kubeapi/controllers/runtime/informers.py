"""Shared indexes of pods, ReplicaSets and nodes, and notification of the controllers that a change concerns.

An object that cannot be parsed is left out and reported to `unreadable`; others are not affected.

The indexes follow committed changes, so a controller sees its own writes before its next reconcile, and are rebuilt
from the store at every start.
"""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.replica_set_index import ReplicaSetIndex, ReplicaSetInfo
from matrixcontainer.kubeapi.kubelet.node_info import NodeIndex, NodeInfo
from matrixcontainer.kubeapi.kubelet.pod_info import PodIndex, PodInfo
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.storage.objects import Change, Record

PodHandler = Callable[[PodInfo | None, PodInfo | None], None]  # before, now
ReplicaSetHandler = Callable[[ReplicaSetInfo | None, ReplicaSetInfo | None], None]
NodeHandler = Callable[[NodeInfo | None, NodeInfo | None], None]


class Informers:
    """`on_pod`, `on_replica_set` and `on_node` are the handlers, called in order after the index was updated."""

    def __init__(self, core: Core) -> None:
        self._store = core.store
        self.pods, self.replica_sets, self.nodes = PodIndex(), ReplicaSetIndex(), NodeIndex()
        self.on_pod: list[PodHandler] = []
        self.on_replica_set: list[ReplicaSetHandler] = []
        self.on_node: list[NodeHandler] = []
        self._by_storage = {"nodes": self.nodes, "replicasets.apps": self.replica_sets, "pods": self.pods}
        self.pod_resource = core.builtin("", "pods")
        self.replica_set_resource = core.builtin("apps", "replicasets")

        self.unreadable: Callable[[Record, Exception], None] = lambda record, failure: None
        self._record_failure = core.record_failure

    def load(self) -> None:
        for storage, index in self._by_storage.items():
            for record in self._store.objects_of(storage):
                self._update_index(index, record, deleted=False)

    def on_change(self, change: Change) -> None:
        index = self._by_storage.get(change.record.key[0])
        if index is None:
            return
        before, now = self._update_index(index, change.record, change.type == "DELETED")
        handlers: dict[str, list[Any]] = {
            "nodes": self.on_node,
            "replicasets.apps": self.on_replica_set,
            "pods": self.on_pod,
        }
        for handler in handlers[change.record.key[0]]:
            try:
                handler(before, now)
            except Exception as failure:  # must not keep the change from the others
                self._record_failure(failure, f"{handler.__qualname__} {'/'.join(change.record.key)}")

    def _update_index(self, index: Any, record: Record, deleted: bool) -> tuple[Any, Any]:
        """Update the index; return (previous info, current info). An unparsable object counts as absent."""
        if not deleted:
            try:
                return index.put(record)
            except Exception as failure:
                self._record_failure(failure, f"reading {'/'.join(record.key)}")
                self.unreadable(record, failure)
        return index.delete(record.key[1:]), None

    def replica_sets_of(self, namespace: str, deployment_uid: str) -> list[Record]:
        """The ReplicaSets that a Deployment controls."""
        keys = [info.key for info in self.replica_sets.owned_by(deployment_uid) if info.key[0] == namespace]
        records = (self._store.get(("replicasets.apps", *key)) for key in keys)
        return [record for record in records if record is not None]
