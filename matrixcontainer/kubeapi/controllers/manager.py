"""Creates the controllers, wires their dependencies, passes changes to them, and runs them.

On a database shared by several processes only the leader's controllers run; the others only keep their indexes up to
date. Controllers may be stopped at any moment and created again on the same store, from which they reload everything.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from matrixcontainer.kubeapi.controllers.cluster.cluster_roles import ClusterRoleController
from matrixcontainer.kubeapi.controllers.cluster.compaction import Compactor
from matrixcontainer.kubeapi.controllers.cluster.custom_resources import CustomResourceDefinitionController
from matrixcontainer.kubeapi.controllers.cluster.disruption_budget import DisruptionController
from matrixcontainer.kubeapi.controllers.cluster.garbage_collector import GarbageCollector
from matrixcontainer.kubeapi.controllers.cluster.namespaces import NamespaceController
from matrixcontainer.kubeapi.controllers.nodes.default_scheduler import DefaultScheduler
from matrixcontainer.kubeapi.controllers.nodes.emulated_nodes import EmulatedNodeController, PodGarbageCollector
from matrixcontainer.kubeapi.controllers.nodes.kubelet_driver import Kubelets
from matrixcontainer.kubeapi.controllers.nodes.node_taints import NodeTaintController
from matrixcontainer.kubeapi.controllers.nodes.taint_eviction import TaintEvictionController
from matrixcontainer.kubeapi.controllers.runtime.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.controllers.runtime.workqueue import Controller
from matrixcontainer.kubeapi.controllers.workloads.daemon_sets import DaemonSetController
from matrixcontainer.kubeapi.controllers.workloads.deployments import DeploymentController
from matrixcontainer.kubeapi.controllers.workloads.horizontal_autoscaler import HorizontalController
from matrixcontainer.kubeapi.controllers.workloads.jobs import JobController
from matrixcontainer.kubeapi.controllers.workloads.replica_sets import ReplicaSetController
from matrixcontainer.kubeapi.kubelet.usage_reader import UsageReader
from matrixcontainer.kubeapi.meta.attempts import raise_if_cancelled
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.storage.objects import Change

Run = Callable[[], Coroutine[Any, Any, None]]

RESTART_DELAY_S = 1.0


class Manager:
    """One set of controllers: those that every cluster needs and, with `add_workloads`, those of pods and nodes."""

    def __init__(self, core: Core, root_ca: str, extra_bindings: list[dict[str, Any]]) -> None:
        self._core = core
        self._tasks: list[asyncio.Task[None]] = []
        self.custom_resources, self.namespaces = (
            CustomResourceDefinitionController(core),
            NamespaceController(core, root_ca),
        )
        self.cluster_roles, self.compaction = ClusterRoleController(core, extra_bindings), Compactor(core)
        disruptions = DisruptionController(core)
        self._controllers: list[Controller] = [self.custom_resources, self.namespaces, self.cluster_roles, disruptions]
        self._garbage_collector = GarbageCollector(core)
        self._global_handlers = [
            self._garbage_collector.on_change,
            *(controller.on_change for controller in self._controllers),
        ]
        self._runs: list[Run] = [self._garbage_collector.run, self.compaction.run]
        self._by_storage: dict[str, list[Controller]] = {}

    def add_workloads(self, informers: Informers, usages: UsageReader) -> None:
        """Add the controllers that create, place and run pods."""
        core, events = self._core, EventRecorder(self._core)
        scheduler = DefaultScheduler(core, informers, events)
        kubelets, pod_garbage_collector = (
            Kubelets(core, informers, events),
            PodGarbageCollector(core, informers, events),
        )
        evictions = TaintEvictionController(core, informers, events)
        replica_sets, deployments = (
            ReplicaSetController(core, informers, events),
            DeploymentController(core, informers, events),
        )
        daemon_sets = DaemonSetController(core, informers, events)
        jobs, autoscalers = (
            JobController(core, informers, events),
            HorizontalController(core, informers, events, usages),
        )
        informers.unreadable = lambda record, failure: events.event(
            record.obj, "Unreadable", f"ignored by the controllers: {failure}", "kube-controller-manager", warning=True
        )
        informers.on_pod = [
            each.on_pod
            for each in (
                scheduler,
                kubelets,
                pod_garbage_collector,
                evictions,
                replica_sets,
                deployments,
                daemon_sets,
                jobs,
            )
        ]
        informers.on_replica_set = [deployments.on_replica_set]
        informers.on_node = [
            each.on_node for each in (scheduler, kubelets, pod_garbage_collector, evictions, daemon_sets)
        ]
        by_storage = [
            EmulatedNodeController(core),
            NodeTaintController(core),
            replica_sets,
            deployments,
            daemon_sets,
            jobs,
            autoscalers,
        ]
        for controller in by_storage:
            self._by_storage.setdefault(controller.storage, []).append(controller)
        for storage in kubelets.watched:
            self._by_storage.setdefault(storage, []).append(kubelets)
        self._controllers += [*by_storage, scheduler, kubelets, pod_garbage_collector, evictions]
        self._global_handlers.append(informers.on_change)
        self._runs.append(events.run)

    def load(self) -> None:
        """Load the existing objects, without writing anything."""
        self._garbage_collector.load()
        for controller in self._controllers:
            controller.load()

    def on_change(self, change: Change) -> None:
        """Pass a committed change to all controllers, running or not."""
        interested = self._by_storage.get(change.record.key[0], ())
        for on_change in [*self._global_handlers, *(controller.on_change for controller in interested)]:
            try:
                on_change(change)
            except Exception as failure:  # must not keep the change from the others
                self._core.record_failure(failure, f"{on_change.__qualname__} {'/'.join(change.record.key)}")

    # ---- running

    @property
    def running(self) -> bool:
        return bool(self._tasks)

    async def start(self) -> None:
        for run in [*self._runs, *(controller.run for controller in self._controllers)]:
            self._tasks.append(asyncio.create_task(self._supervise(run), name=run.__qualname__))
        await self.namespaces.ensure_system()
        await self.cluster_roles.ensure_bootstrap()

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _supervise(self, run: Run) -> None:
        """Run a controller; if it fails as a whole, report that and restart it. Controllers are level-triggered."""
        while True:
            try:
                await run()
            except Exception as failure:
                raise_if_cancelled(failure)
                self._core.record_failure(failure, run.__qualname__)
                await asyncio.sleep(RESTART_DELAY_S)
