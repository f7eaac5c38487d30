"""The embedded Kubernetes API as one object: store, kinds, verbs, and the controllers a cluster cannot do without.

`KubeApi(store, now, chance, access)` is everything but HTTP; `app.py` puts paths and media types before it. Time and
chance are handed in, so that it runs in one test process under virtual time as well as behind TLS in a process of its
own.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from typing import Any

from matrixcontainer.kubeapi import api_services
from matrixcontainer.kubeapi.access import Access
from matrixcontainer.kubeapi.admission import Admission
from matrixcontainer.kubeapi.builtin.kinds import register_builtins
from matrixcontainer.kubeapi.builtin.priority import priority_gate
from matrixcontainer.kubeapi.controllers.cluster_roles import ClusterRoles
from matrixcontainer.kubeapi.controllers.definitions import Definitions
from matrixcontainer.kubeapi.controllers.disruptions import Disruptions
from matrixcontainer.kubeapi.controllers.garbage import GarbageCollector
from matrixcontainer.kubeapi.controllers.namespaces import Namespaces
from matrixcontainer.kubeapi.controllers.upkeep import Upkeep
from matrixcontainer.kubeapi.controllers.workloads import Workloads
from matrixcontainer.kubeapi.deleting import DeletingVerbs
from matrixcontainer.kubeapi.discovery import Discovery
from matrixcontainer.kubeapi.escalation import EscalationGate
from matrixcontainer.kubeapi.openapi import OpenApi
from matrixcontainer.kubeapi.rbac import Authorizer
from matrixcontainer.kubeapi.resources import Registry
from matrixcontainer.kubeapi.store import Store


class KubeApi:
    """`start()` brings up the controllers, `stop()` ends them and every open watch."""

    def __init__(self, store: Store, now: Callable[[], float], chance: random.Random, access: Access) -> None:
        self.store, self.now, self.chance, self.access = store, now, chance, access
        self.started = now()
        self.authorizer = Authorizer(store)
        self.registry = Registry()
        register_builtins(self.registry)
        api_services.register(self.registry)
        self.verbs = DeletingVerbs(store, now, chance)
        self.discovery = Discovery(self.registry)
        self.openapi = OpenApi(self.registry)
        self.definitions = Definitions(self)
        self.namespaces = Namespaces(self)
        self.cluster_roles = ClusterRoles(self)
        self.garbage = GarbageCollector(self)
        self.disruptions = Disruptions(self)
        self.upkeep = Upkeep(self)
        self.workloads = Workloads(self)
        self.runs_workloads = True
        self.verbs.namespace_state = self.namespaces.state
        self.verbs.kind_of = self.registry.by_kind
        self.verbs.gates += [self.namespaces.gate, priority_gate(store), EscalationGate(self.authorizer)]
        self.admission = Admission(store, self.registry, chance)
        self.verbs.gates.append(self.admission.mutate)
        self.verbs.judges.append(self.admission.validate)
        self.stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self.failures: list[str] = []
        self.report: Callable[[BaseException, str], None] = lambda failure, where: None

    async def start(self) -> None:
        standing = (self.definitions, self.namespaces, self.cluster_roles, self.garbage, self.disruptions)
        self.store.listeners += [one.notice for one in (self.admission, self.authorizer, *standing)]
        self.definitions.load()
        self.garbage.load()
        self.disruptions.load()
        for controller in (*standing, self.upkeep):
            self._tasks.append(asyncio.create_task(self._keep_running(controller.run), name=type(controller).__name__))
        if self.runs_workloads:
            self.store.listeners.append(self.workloads.notice)
            self.workloads.load()
            for run in self.workloads.runs():
                self._tasks.append(asyncio.create_task(self._keep_running(run), name=run.__qualname__))
        await self.namespaces.ensure_standing()
        await self.cluster_roles.ensure_standing()

    async def _keep_running(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A controller that trips is noted and started again: they are level-based and look afresh."""
        while True:
            try:
                await run()
            except asyncio.CancelledError:
                raise
            except Exception as failure:
                self.failures.append(f"{type(failure).__name__}: {failure}")
                self.report(failure, run.__qualname__)
                del self.failures[:-20]
                await asyncio.sleep(1.0)

    async def stop(self) -> None:
        self.stopping = True
        self.wake_watches()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
        await self.admission.caller.close()

    def wake_watches(self, storage: str | None = None) -> None:
        for resource in [storage] if storage else list(self.store.history.logs):
            self.store.log(resource).wake()

    def end_watches_of_the_gone(self, storage: str) -> None:
        """Watchers look for themselves whether their resource is still served."""
        self.wake_watches(storage)
