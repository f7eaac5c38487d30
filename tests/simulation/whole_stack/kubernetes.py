"""Kubernetes and the operator as two more processes of the simulated stack: the embedded API and the actions of Kopf's
handlers over it.

Kopf itself is left out (its client wants real sockets): `Operator` handles every resource over and over, as its timers
would, holds what it handles by a finalizer until nothing is left, and tries again what was refused.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.fencing import FENCE, Fence
from matrixcompute.client import ComputeClient
from matrixcompute.clients.inference import Inference
from matrixcontainer.client.client import CRD, KubeClient
from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.storage.factory import open_database
from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.decision import key_of_resource
from matrixcontainer.operator.handlers import reconcilers_for
from matrixcontainer.operator.reconciler import Reconciler
from services.chassis.http import http_client
from services.operator.operator_process import FaultsOverHttp
from tests.matrixcontainer.kubeapi.asgi import build_api
from tests.matrixcontainer.kubeapi.tables import create_tables

PERIOD_S = 4.0
"""Between two looks of the operator at each resource."""
NAMES = ("k0", "k1")
"""Of the instances that Kubernetes has; what users ask over REST bears others."""
GENERATIONS = itertools.count(1)
"""Of operators: each process has one of its own, as if it had acquired the Lease."""
ADMIN = {"admin": User("admin", ("system:masters", "system:authenticated"))}


def kube_client(transport: httpx.AsyncBaseTransport) -> KubeClient:
    http = http_client("http://kube", "admin", transport=transport)
    return KubeClient(http)


class Kubernetes:
    """The embedded API over a file; `asgi` while it lives."""

    def __init__(self, file: Path, now: Callable[[], float], seed: int) -> None:
        new = not file.exists()
        self._database = open_database(f"sqlite:///{file}")
        if new:
            create_tables(self._database)
        self._api = build_api(self._database, now, Random(f"{seed}:kube"), ADMIN)
        self.asgi = self._api.asgi
        self._new = new

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        await self._api.start()
        if self._new:
            client = kube_client(httpx.ASGITransport(self.asgi))
            for definition in custom_resource_definitions():
                await client.apply(CRD, definition)
        yield
        await self._api.stop()


class Operator:
    """What the operator's process does, for as long as its `life` lasts. `scaled`: somebody has ScalingPolicies."""

    def __init__(
        self, transport_to: Callable[[str], httpx.AsyncBaseTransport], now: Callable[[], float], scaled: bool = False
    ) -> None:
        self._kube = kube_client(transport_to("kube"))
        compute = ComputeClient(http_client("http://compute", transport=transport_to("compute")))
        self._reconcilers = reconcilers_for(
            self._kube,
            compute,
            Inference(http_client("http://infer", transport=transport_to("infer"))),
            FaultsOverHttp(http_client("http://agents", transport=transport_to("agents"))),
            now,
            "http://infer/v1",
        )
        handled = self._reconcilers.policies, self._reconcilers.instances
        self._handled = handled if scaled else handled[1:]

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        working = asyncio.create_task(self._work())
        yield
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    async def _work(self) -> None:
        FENCE.set(Fence("operator", next(GENERATIONS)))
        while True:
            await asyncio.sleep(PERIOD_S)
            with suppress(MatrixError):  # the next look tries again
                for reconciler in self._handled:
                    for body in (await self._kube.list(reconciler.kind))[0]:
                        with suppress(MatrixError):
                            await self._handle(reconciler, body)

    async def _handle(self, reconciler: Reconciler, body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        name, namespace, kind = metadata["name"], metadata["namespace"], reconciler.kind
        if not metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            await self._kube.merge(kind, name, {"metadata": {"finalizers": ["cloudmatrix.io/operator"]}}, namespace)
        again_s = await reconciler.reconcile(key_of_resource(body))
        if metadata.get("deletionTimestamp") and again_s is None:
            await self._kube.merge(kind, name, {"metadata": {"finalizers": []}}, namespace)


def unsettled(resources: list[dict[str, Any]], instances: dict[str, dict[str, Any]]) -> list[str]:
    """In what Kubernetes and MatrixCompute do not agree; what somebody cancelled is not asked for again."""
    found = []
    for body in resources:
        name, key = body["metadata"]["name"], key_of_resource(body)
        instance = instances.get(key)
        if body["metadata"].get("deletionTimestamp"):
            found.append(f"CloudMatrixInstance {name} is still being deleted")
        elif instance is None:
            found.append(f"CloudMatrixInstance {name} has no instance")
        elif instance["nodes"] != body["spec"]["nodes"] and "cancelled" not in instance:
            found.append(
                f"CloudMatrixInstance {name} asks for {body['spec']['nodes']} nodes, it has {instance['nodes']}"
            )
    named = {key_of_resource(body) for body in resources}
    return found + [
        f"instance {key} has no CloudMatrixInstance" for key in instances if key in NAMES and key not in named
    ]
