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
from matrixcontainer.kubeapi.builtin.limit_ranges import limit_gate, limit_judge
from matrixcontainer.kubeapi.builtin.priority import priority_gate
from matrixcontainer.kubeapi.controllers.cluster_roles import ClusterRoles
from matrixcontainer.kubeapi.controllers.definitions import Definitions
from matrixcontainer.kubeapi.controllers.disruptions import Disruptions
from matrixcontainer.kubeapi.controllers.garbage import GarbageCollector
from matrixcontainer.kubeapi.controllers.namespaces import Namespaces
from matrixcontainer.kubeapi.controllers.quotas import QuotaAdmission
from matrixcontainer.kubeapi.controllers.upkeep import Upkeep
from matrixcontainer.kubeapi.controllers.workloads import Workloads
from matrixcontainer.kubeapi.deleting import DeletingVerbs
from matrixcontainer.kubeapi.discovery import Discovery
from matrixcontainer.kubeapi.escalation import EscalationGate
from matrixcontainer.kubeapi.openapi import OpenApi
from matrixcontainer.kubeapi.rbac import Authorizer
from matrixcontainer.kubeapi.resources import Registry
from matrixcontainer.kubeapi.store import Store

LOOK_AT_LEAD_S = 1.0


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
        self.admission = Admission(store, self.registry, chance)
        self.runs_workloads = True
        self.time_scale = 1.0  # emulated seconds in one of ours, for who acts on the emulated world
        self.root_ca = ""
        self.standing_also: list[dict[str, Any]] = []  # roles and bindings kept beside the default ones
        self._make_controllers()
        self.stopping = False
        self._runs: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._leading: asyncio.Task[None] | None = None
        self.failures: list[str] = []
        self.report: Callable[[BaseException, str], None] = lambda failure, where: None

    def _make_controllers(self) -> None:
        """Fresh ones, which know nothing yet."""
        self.definitions = Definitions(self)
        self.namespaces = Namespaces(self)
        self.cluster_roles = ClusterRoles(self)
        self.garbage = GarbageCollector(self)
        self.disruptions = Disruptions(self)
        self.upkeep = Upkeep(self)
        self.workloads = Workloads(self)
        self.quotas = QuotaAdmission(self)
        store, verbs = self.store, self.verbs
        verbs.namespace_state = self.namespaces.state
        verbs.kind_of = self.registry.by_kind
        verbs.gates = [self.namespaces.gate, limit_gate(store), priority_gate(store), EscalationGate(self.authorizer)]
        verbs.gates.append(self.admission.mutate)
        verbs.judges = [limit_judge(store), self.admission.validate, self.quotas.judge]

    async def start(self) -> None:
        """Ready to answer when it returns. On a shared database only one process acts; the others stand by."""
        self._take_notice()
        self.store.listen()
        if await self.store.lead():
            await self._act()
        if self.store.shared:
            self._leading = asyncio.create_task(self._keep_running(self._follow_the_lead), name="lead")

    def _take_notice(self) -> None:
        """The controllers learn what there is and hear of every change, whether they act or not."""
        standing = (self.definitions, self.namespaces, self.cluster_roles, self.garbage, self.disruptions)
        self.store.listeners[:] = [one.notice for one in (self.admission, self.authorizer, *standing)]
        self.definitions.load()
        self.garbage.load()
        self.disruptions.load()
        self._runs = [one.run for one in (*standing, self.upkeep)]
        if self.runs_workloads:
            self.store.listeners.append(self.workloads.notice)
            self.workloads.load()
            self._runs += self.workloads.runs()

    async def _act(self) -> None:
        for run in self._runs:
            self._tasks.append(asyncio.create_task(self._keep_running(run), name=run.__qualname__))
        await self.namespaces.ensure_standing()
        await self.cluster_roles.ensure_standing()

    async def _rest(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _follow_the_lead(self) -> None:
        """Act while this process has the lead; who lost it begins anew, for others have acted since."""
        while True:
            leads, acts = await self.store.lead(), bool(self._tasks)
            if leads and not acts:
                await self.store.see_all()
                await self._act()
            elif acts and not leads:
                await self._rest()
                self._make_controllers()
                self._take_notice()
            await asyncio.sleep(LOOK_AT_LEAD_S)

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
        if self._leading is not None:
            self._leading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._leading
        await self._rest()
        await self.admission.caller.close()

    def wake_watches(self, storage: str | None = None) -> None:
        for resource in [storage] if storage else list(self.store.history.logs):
            self.store.log(resource).wake()

    def end_watches_of_the_gone(self, storage: str) -> None:
        """Watchers look for themselves whether their resource is still served."""
        self.wake_watches(storage)
