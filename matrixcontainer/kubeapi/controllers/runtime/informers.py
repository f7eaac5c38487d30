"""Shared indexes of pods, ReplicaSets and nodes, and notification of the controllers that a change concerns.

An object that cannot be parsed is left out and reported to `unreadable`; others are not affected.

The indexes follow committed changes, so a controller sees its own writes before its next reconcile, and are rebuilt
from the store at every start.
"""

from collections.abc import Callable
from typing import Any

from matrixcontainer.kubeapi.controllers.runtime.replica_set_index import SetFacts, SetIndex
from matrixcontainer.kubeapi.kubelet.node_info import NodeFacts, NodeIndex
from matrixcontainer.kubeapi.kubelet.pod_info import PodFacts, PodIndex
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.storage.objects import Change, Record

PodHandler = Callable[[PodFacts | None, PodFacts | None], None]  # before, now
SetHandler = Callable[[SetFacts | None, SetFacts | None], None]
NodeHandler = Callable[[NodeFacts | None, NodeFacts | None], None]


class Informers:
    """`on_pod`, `on_set` and `on_node` are the handlers, called in order after the index was updated."""

    def __init__(self, core: Core) -> None:
        self._store = core.store
        self.pods, self.sets, self.nodes = PodIndex(), SetIndex(), NodeIndex()
        self.on_pod: list[PodHandler] = []
        self.on_set: list[SetHandler] = []
        self.on_node: list[NodeHandler] = []
        self._by_storage = {"nodes": self.nodes, "replicasets.apps": self.sets, "pods": self.pods}
        self.pod_resource = core.builtin("", "pods")
        self.set_resource = core.builtin("apps", "replicasets")

        self.unreadable: Callable[[Record, Exception], None] = lambda record, failure: None
        self._report = core.record_failure

    def load(self) -> None:
        for storage, index in self._by_storage.items():
            for record in self._store.objects_of(storage):
                self._known(index, record, gone=False)

    def on_change(self, change: Change) -> None:
        index = self._by_storage.get(change.record.key[0])
        if index is None:
            return
        before, now = self._known(index, change.record, change.type == "DELETED")
        concerned: dict[str, list[Any]] = {"nodes": self.on_node, "replicasets.apps": self.on_set, "pods": self.on_pod}
        for handler in concerned[change.record.key[0]]:
            try:
                handler(before, now)
            except Exception as failure:  # must not keep the change from the others
                self._report(failure, f"{handler.__qualname__} {'/'.join(change.record.key)}")

    def _known(self, index: Any, record: Record, gone: bool) -> tuple[Any, Any]:
        """Update the index; return (previous facts, current facts). An unparsable object counts as absent."""
        if not gone:
            try:
                return index.put(record)
            except Exception as failure:
                self._report(failure, f"reading {'/'.join(record.key)}")
                self.unreadable(record, failure)
        return index.drop(record.key[1:]), None

    def sets_of(self, namespace: str, deployment_uid: str) -> list[Record]:
        """The ReplicaSets that a Deployment controls."""
        keys = [facts.key for facts in self.sets.owned_by(deployment_uid) if facts.key[0] == namespace]
        records = (self._store.get(("replicasets.apps", *key)) for key in keys)
        return [record for record in records if record is not None]
