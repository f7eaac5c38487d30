"""The controllers of workloads, together: what they share, and who hears of which change.

`Workloads` keeps three indexes over the store (pods, ReplicaSets, nodes), passes every committed change to whom it
concerns, and runs the controllers. It may be stopped at any moment and started over the same store: all of it is read
anew.
"""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from matrixcontainer.kubeapi.controllers.default_scheduler import DefaultScheduler
from matrixcontainer.kubeapi.controllers.deployments import Deployments
from matrixcontainer.kubeapi.controllers.emulated_nodes import EmulatedNodes, LostPods
from matrixcontainer.kubeapi.controllers.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.horizontal_autoscaler import Autoscalers
from matrixcontainer.kubeapi.controllers.jobs import Jobs
from matrixcontainer.kubeapi.controllers.kubelet_driver import Kubelets
from matrixcontainer.kubeapi.controllers.node_taints import NodeTaints
from matrixcontainer.kubeapi.controllers.replica_set_index import SetIndex
from matrixcontainer.kubeapi.controllers.replica_sets import ReplicaSets
from matrixcontainer.kubeapi.controllers.resource_quota import QuotaCounter
from matrixcontainer.kubeapi.controllers.taint_eviction import Evictions
from matrixcontainer.kubeapi.controllers.usage_reader import Usages
from matrixcontainer.kubeapi.controllers.volume_protection import ClaimProtection, VolumeProtection
from matrixcontainer.kubeapi.controllers.workqueue import Controller
from matrixcontainer.kubeapi.endpoints import custom_metrics, metrics
from matrixcontainer.kubeapi.kubelet.node_info import NodeIndex
from matrixcontainer.kubeapi.kubelet.pod_info import PodIndex
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.objects import Change, Record

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.server import KubeApi


class Workloads:
    def __init__(self, api: "KubeApi") -> None:
        self.api = api
        self.pods, self.sets, self.nodes = PodIndex(), SetIndex(), NodeIndex()
        self.pod_resource = self._builtin("", "v1", "pods")
        self.node_resource = self._builtin("", "v1", "nodes")
        self.set_resource = self._builtin("apps", "v1", "replicasets")
        self.deployment_resource = self._builtin("apps", "v1", "deployments")
        self.job_resource = self._builtin("batch", "v1", "jobs")
        self.hpa_resource = self._builtin("autoscaling", "v2", "horizontalpodautoscalers")
        self.usages = Usages(self)
        self._teller = EventRecorder(api)
        self.tell = self._teller.event
        self.replica_sets = ReplicaSets(self)
        self.deployments = Deployments(self)
        self.jobs = Jobs(self)
        self.autoscalers = Autoscalers(self)
        self.kubelets = Kubelets(self)
        self.scheduler = DefaultScheduler(self)
        self.emulated_nodes = EmulatedNodes(self)
        self.node_taints = NodeTaints(self)
        self.lost_pods = LostPods(self)
        self.evictions = Evictions(self)
        self.claims, self.volumes = ClaimProtection(self), VolumeProtection(self)
        self.quotas = QuotaCounter(self)
        self.listeners = (
            self.scheduler,
            self.kubelets,
            self.lost_pods,
            self.evictions,
            self.claims,
            self.replica_sets,
            self.deployments,
            self.jobs,
        )
        nodes = (self.emulated_nodes, self.node_taints)
        self.controllers: list[Controller] = [*nodes, self.volumes, self.quotas, *self.listeners, self.autoscalers]

    def _builtin(self, group: str, version: str, plural: str) -> Resource:
        found = self.api.registry.find(group, version, plural)
        assert found is not None
        return found

    def sets_of(self, namespace: str, deployment_uid: str) -> list[Record]:
        """The ReplicaSets a Deployment controls."""
        keys = [facts.key for facts in self.sets.owned_by(deployment_uid) if facts.key[0] == namespace]
        records = (self.api.store.get(("replicasets.apps", *key)) for key in keys)
        return [record for record in records if record is not None]

    # ---- life

    def load(self) -> None:
        metrics.register(self.api.registry)
        custom_metrics.register(self.api.registry)
        for storage, index in (("nodes", self.nodes), ("replicasets.apps", self.sets), ("pods", self.pods)):
            for record in self.api.store.objects_of(storage):
                index.put(record)
        for controller in self.controllers:
            controller.load()

    def runs(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [self._teller.run, *(controller.run for controller in self.controllers)]

    # ---- changes

    def notice(self, change: Change) -> None:
        storage = change.record.key[0]
        self.quotas.notice_any(change)
        gone = change.type == "DELETED"
        if storage == "pods":
            before_pod, pod = (self.pods.drop(change.record.key[1:]), None) if gone else self.pods.put(change.record)
            for listener in self.listeners:
                listener.notice_pod(before_pod, pod)
        elif storage == "replicasets.apps":
            before_set, rs = (self.sets.drop(change.record.key[1:]), None) if gone else self.sets.put(change.record)
            self.deployments.notice_set(before_set, rs)
        elif storage == "nodes":
            before, node = (self.nodes.drop(change.record.key[2]), None) if gone else self.nodes.put(change.record)
            self.scheduler.notice_node(before, node)
            self.kubelets.notice_node(before, node)
            self.lost_pods.notice_node(before, node)
            self.evictions.notice_node(before, node)
        for controller in self.controllers:
            if controller.storage == storage or storage == "leases.coordination.k8s.io":
                controller.notice(change)
