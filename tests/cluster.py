"""Cluster: the stack with CloudMatrix-Infer, the embedded Kubernetes API and the operator's actions, in one process.

Kopf is left out (its own client wants real sockets; tests/e2e runs it): `tick` does what its handlers would, for every
resource there is, in whatever order, so a action that is not idempotent shows.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
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
    NODE,
    POD,
    RECOVERY_POLICY,
    SCALING_POLICY,
    SCENARIO,
    Kind,
    KubeClient,
)
from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.storage.opening import open_database
from matrixcontainer.mirrors.mirrors import Mirrors
from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.decision import key_of_resource
from matrixcontainer.operator.handlers import reconcilers_for
from matrixcontainer.operator.reconciler import Reconciler
from matrixcontainer.scheduler.scheduler import PodScheduler
from services.chassis.database import DatabaseEngine
from services.chassis.http import http_client
from services.infer import main as infer_main
from services.operator.main import FaultsOverHttp
from tests.asgi import StreamingASGITransport
from tests.matrixcontainer.kubeapi.asgi import build_api
from tests.matrixcontainer.kubeapi.tables import create_tables
from tests.stack import Stack


class Cluster(Stack):
    """`async with Cluster(tmp_path) as cluster`."""

    def __init__(self, folder: Path, *args: Any, **more: Any) -> None:
        super().__init__(folder, *args, **more)
        self._to_inference = StreamingASGITransport(None)
        self._to_inference.down = True
        self.http["infer"] = http_client("http://infer", transport=self._to_inference)

    async def __aenter__(self) -> Cluster:
        await super().__aenter__()
        self._inference_life = AsyncExitStack()
        await self._serve_inference()
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
        await self._inference_life.aclose()
        await self.kube_api.stop()
        await super().__aexit__()

    async def _serve_inference(self) -> None:
        database = DatabaseEngine(f"sqlite:///{self.folder / 'infer.db'}")
        database.migrate(infer_main.MIGRATIONS)
        settings = infer_main.InferSettings(state=self.folder, seed=self.seed)
        hardware = infer_main.HardwareOverHttp(self.http["agents"])
        app = infer_main.build(settings, self.clock, database, self.link, hardware)
        await self._inference_life.enter_async_context(app.router.lifespan_context(app))
        self._to_inference.app = app
        self._to_inference.down = False

    async def restart_inference(self) -> None:
        """Begin another life of CloudMatrix-Infer on what this one wrote."""
        self._to_inference.cut()
        await self._inference_life.aclose()
        await self._serve_inference()

    async def _serve_kubernetes(self) -> None:
        database = open_database(f"sqlite:///{self.folder / 'kube.db'}")
        create_tables(database)
        admin = User("admin", ("system:masters", "system:authenticated"))
        api = build_api(database, self.clock.now, random.Random(self.seed), {"admin": admin})
        self.kube_api = api
        await self.kube_api.start()
        headers = {"Authorization": "Bearer admin"}
        self.kube = KubeClient(
            httpx.AsyncClient(base_url="http://kube", transport=StreamingASGITransport(api.asgi), headers=headers)
        )

    async def _served(self) -> bool:
        for kind in (INSTANCE, INFER, SCALING_POLICY, RECOVERY_POLICY, DISRUPTION_BUDGET, FAULT, SCENARIO):
            await self.kube.list(kind)
        return True

    async def _slices(self) -> list[dict[str, Any]]:
        return await list_all(self.http["link"], "/v1/slices")

    async def tick(self) -> None:
        """Everything the operator does, once."""
        for reconciler in self.operator.all:
            for body in (await self.kube.list(reconciler.kind))[0]:
                await self._handle(reconciler, body)
        for body in (await self.kube.list(INFER))[0]:
            await self.operator.infers.measure(key_of_resource(body))
        self.mirrors.cordons.see((await self.kube.list(NODE))[0])  # what the operator's watch of Nodes brings
        await self.mirrors.reconcile()
        await self.scheduler.reconcile()

    async def _handle(self, reconciler: Reconciler, body: dict[str, Any]) -> None:
        """What Kopf does of a resource: hold it by a finalizer until, once deleted, nothing is left; retry refusals."""
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

    async def settles(
        self, kind: Kind, name: str, holds: Any, sentence: str, within_s: float = 3600, namespace: str = "default"
    ) -> dict[str, Any]:
        """Tick until it holds of the resource (None: it is gone)."""
        found: list[Any] = []

        async def now() -> bool:
            await self.tick()
            found.append(await self.kube.find(kind, name, namespace if kind.namespaced else None))
            return bool(holds(found[-1]))

        await self.until(now, sentence, within_s, every_s=5)
        return found[-1]

    async def apply_resource(
        self, kind: Kind, name: str, spec: dict[str, Any], namespace: str = "default"
    ) -> dict[str, Any]:
        body = {"metadata": {"name": name, "namespace": namespace} if kind.namespaced else {"name": name}, "spec": spec}
        return await self.kube.apply(kind, body)

    async def pods(self) -> list[dict[str, Any]]:
        return (await self.kube.list(POD))[0]


def new_folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder
