"""Cluster: the stack with CloudMatrix-Infer, the embedded Kubernetes API and the operator's actions, in one process.

Kopf is left out, because its client needs real sockets. `tick` does what its handlers would, for every existing
resource and in no particular order, so an action that is not idempotent is exposed.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx

from matrixcommon.api.client import list_all
from matrixcommon.model.errors import MatrixError
from matrixcompute.clients.inference import Inference
from matrixcontainer.client.client import (
    CRD,
    DISRUPTION_BUDGET,
    FAULT,
    INFER,
    INSTANCE,
    RECOVERY_POLICY,
    SCALING_POLICY,
    SCENARIO,
    KubeClient,
)
from matrixcontainer.kubeapi.auth.authentication import TokenAuthenticator, User
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.server import KubeApi
from matrixcontainer.kubeapi.storage.factory import open_database
from matrixcontainer.kubeapi.storage.store import Store
from matrixcontainer.mirrors.cordons import MANAGED_OBJECTS
from matrixcontainer.mirrors.mirrors import MIRRORED, Mirrors
from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.decision import key_of_resource
from matrixcontainer.operator.handlers import reconcilers_for
from matrixcontainer.operator.reconciler import Reconciler
from matrixcontainer.scheduler.scheduler import PodScheduler
from services.kube.database import migrate
from services.operator.operator_process import FaultsOverHttp
from services.testing.asgi import StreamingASGITransport
from services.testing.stack import InProcessStack

ADMIN = "admin"
"""The administrator's token, valid in this process only."""


class Cluster(InProcessStack):
    """`async with Cluster(folder) as cluster`."""

    def __init__(self, folder: Path, *args: Any, **more: Any) -> None:
        super().__init__(folder, *args, **{"infer": True, **more})

    async def __aenter__(self) -> Cluster:
        await super().__aenter__()
        await self._serve_kubernetes()
        now = self.clock.now
        self.operator = reconcilers_for(
            self.kube,
            self.compute,
            Inference(self.http["infer"]),
            FaultsOverHttp(self.http["agents"]),
            now,
            "http://infer/v1",
        )
        self.mirrors = Mirrors(self.kube, self.resource, self._slices, now)
        self.scheduler = PodScheduler(self.kube, self.resource, now)
        for crd in custom_resource_definitions():
            await self.kube.apply(CRD, crd)
        await self.until(self._served, "the definitions are served")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kube_api.stop()
        self.kube_api.store.close()
        await super().__aexit__()

    async def restart_inference(self) -> None:
        """Restart CloudMatrix-Infer on its database."""
        await self.restart("infer")

    async def _serve_kubernetes(self) -> None:
        url = f"sqlite:///{self.folder / 'kube.db'}"
        migrate(url)
        rng, now = random.Random(self.seed), self.clock.now
        admin = User("admin", ("system:masters", "system:authenticated"))
        access = TokenAuthenticator({ADMIN: admin}, rng.randbytes(32), now)
        self.kube_api = KubeApi(Core(Store(open_database(url), now), now, rng, access))
        await self.kube_api.start()
        self.kube_http = httpx.AsyncClient(
            base_url="http://kube",
            transport=StreamingASGITransport(self.kube_api.asgi),
            headers={"Authorization": f"Bearer {ADMIN}"},
        )
        self.kube = KubeClient(self.kube_http)

    async def _served(self) -> bool:
        for kind in (INSTANCE, INFER, SCALING_POLICY, RECOVERY_POLICY, DISRUPTION_BUDGET, FAULT, SCENARIO):
            await self.kube.list(kind)
        return True

    async def _slices(self) -> list[dict[str, Any]]:
        return await list_all(self.http["link"], "/v1/slices")

    async def tick(self) -> None:
        """Run everything the operator does, once."""
        await self.reconcile_resources()
        await self.update_metrics()
        await self.mirror()
        await self.scheduler.reconcile()

    async def reconcile_resources(self) -> None:
        """Reconcile every resource of the operator's kinds, once."""
        for reconciler in self.operator.all:
            for body in (await self.kube.list(reconciler.kind))[0]:
                await self._handle(reconciler, body)

    async def update_metrics(self) -> None:
        """Measure deployments for the autoscalers."""
        await self.operator.infers.update_metrics()

    async def mirror(self) -> None:
        """Mirror the supernode's nodes and slices into Kubernetes."""
        for kind in MIRRORED:  # the operator learns of these from its watches
            self.mirrors.replace(kind, (await self.kube.list(kind, labels=MANAGED_OBJECTS))[0])
        await self.mirrors.reconcile()

    async def _handle(self, reconciler: Reconciler, body: dict[str, Any]) -> None:
        """Do Kopf's part for a resource: add a finalizer, remove it when deletion is complete, retry after errors."""
        metadata = body["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
        if not metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            finalizers = {"metadata": {"finalizers": ["cloudmatrix.io/operator"]}}
            await self.kube.merge(reconciler.kind, name, finalizers, namespace)
        try:
            again_s = await reconciler.reconcile(key_of_resource(body))
        except MatrixError:
            return  # the next tick tries again
        if metadata.get("deletionTimestamp") and again_s is None:
            await self.kube.merge(reconciler.kind, name, {"metadata": {"finalizers": []}}, namespace)
