"""The composition root: assembles one embedded Kubernetes API from its parts.

`start()` starts the controllers, `stop()` ends them and all open watches. Clock and randomness come with the `Core`, so
that the API runs in a test process under virtual time as well as behind TLS in its own process.
"""

import asyncio
import contextlib
from typing import Any

from matrixcontainer.kubeapi.admission.inert_kinds import warn_of_inert_kind
from matrixcontainer.kubeapi.admission.priority import set_priority
from matrixcontainer.kubeapi.admission.rbac_escalation import RbacEscalation
from matrixcontainer.kubeapi.admission.service_accounts import check_service_account
from matrixcontainer.kubeapi.admission.service_addresses import ServiceAddresses
from matrixcontainer.kubeapi.admission.trace_context import keep_trace_context
from matrixcontainer.kubeapi.admission.webhooks import Webhooks
from matrixcontainer.kubeapi.apiextensions.crds import CrdStrategy
from matrixcontainer.kubeapi.builtin.kinds import register_builtins
from matrixcontainer.kubeapi.controllers.manager import Manager
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.endpoints.app import App
from matrixcontainer.kubeapi.endpoints.metrics import MetricsApi
from matrixcontainer.kubeapi.kubelet.usage_reader import UsageReader
from matrixcontainer.kubeapi.meta.attempts import raise_if_cancelled
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.observer import Observer
from matrixcontainer.kubeapi.transport.asgi import Asgi

LEADER_CHECK_S = 1.0
CRD = "apiextensions.v1.CustomResourceDefinition"


class KubeApi:
    """`asgi` is the application to serve. `workloads` enables everything that creates, places and runs pods; without
    it, controllers elsewhere have to.
    """

    def __init__(
        self,
        core: Core,
        workloads: bool = True,
        root_ca: str = "",
        extra_bindings: list[dict[str, Any]] | None = None,
    ) -> None:
        self.core, self.store = core, core.store
        self._workloads, self._root_ca, self._extra_bindings = workloads, root_ca, extra_bindings or []
        register_builtins(core.registry, {CRD: CrdStrategy()})
        self.webhooks = Webhooks(core.store, core.registry, core.rng)
        self.app = App(core, self.webhooks)
        self.asgi = Asgi(self.app)
        self._informers = Informers(core)
        self._usages = UsageReader(core, self._informers.pods)
        self._leadership_task: asyncio.Task[None] | None = None
        self.manager = self._new_manager()

    def _new_manager(self) -> Manager:
        """New controllers, with nothing loaded yet."""
        core, writer = self.core, self.core.verbs.writer
        manager = Manager(core, self._root_ca, self._extra_bindings)
        if self._workloads:
            manager.add_workloads(self._informers, self._usages)
        writer.namespace_state = manager.namespaces.state
        writer.mutating = [
            manager.namespaces.admit,
            set_priority(core.store),
            RbacEscalation(core.authorizer),
            check_service_account(core.store),
            self.webhooks.mutate,
            keep_trace_context,
            ServiceAddresses(core.store, core.now),
        ]
        writer.validating = [self.webhooks.validate]
        if self._workloads:
            writer.validating.append(warn_of_inert_kind)
        return manager

    def observe(self, observer: Observer) -> None:
        """Report metrics to `observer` from now on, and serve its page at /metrics."""
        self.core.observer = self.webhooks.observer = observer

    async def start(self) -> None:
        """Start the API; it is ready when this returns. On a shared database only one process runs controllers."""
        if self._workloads:
            MetricsApi(self.core, self._usages, self._informers.nodes).register()
            self._informers.load()
        self._register_listeners()
        self.store.listen()
        if await self.store.try_acquire_leadership():
            await self.manager.start()
        if self.store.shared:
            self._leadership_task = asyncio.create_task(self._follow_leadership(), name="leadership")

    def _register_listeners(self) -> None:
        self.store.listeners[:] = [self.webhooks.on_change, self.core.authorizer.on_change, self.manager.on_change]
        self.manager.load()

    async def _follow_leadership(self) -> None:
        """Run the controllers while this process leads; after losing the lead start over with new ones, as another
        process has acted since."""
        while True:
            try:
                await self._check_leadership()
            except Exception as failure:
                raise_if_cancelled(failure)
                self.core.record_failure(failure, "leadership")
            await asyncio.sleep(LEADER_CHECK_S)

    async def _check_leadership(self) -> None:
        is_leader, is_running = await self.store.try_acquire_leadership(), self.manager.running
        if is_leader and not is_running:
            await self.store.read_latest()
            await self.manager.start()
        elif is_running and not is_leader:
            await self.manager.stop()
            self.manager = self._new_manager()
            self._register_listeners()

    async def stop(self) -> None:
        self.core.stopping = True
        self.core.wake_watches()
        if self._leadership_task is not None:
            self._leadership_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._leadership_task
        await self.manager.stop()
        await self.webhooks.client.close()
