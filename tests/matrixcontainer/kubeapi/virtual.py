"""A small cluster under virtual time: nodes, workloads, and waiting for what should come true."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import looptime

from matrixcontainer.kubeapi.auth.authentication import User
from matrixcontainer.kubeapi.storage.factory import open_database
from tests.matrixcontainer.kubeapi.api_session import Answer, ApiSession, ManualClock
from tests.matrixcontainer.kubeapi.asgi import build_api
from tests.matrixcontainer.kubeapi.tables import create_tables

NS = "/api/v1/namespaces/default"
PODS = f"{NS}/pods"
APPS = "/apis/apps/v1/namespaces/default"
DEPLOYMENTS, SETS = f"{APPS}/deployments", f"{APPS}/replicasets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"

Story = Callable[["Cluster"], Awaitable[None]]


class Cluster(ApiSession):
    """The API with its controllers; `restart` stops and starts it over the same store."""

    def __init__(self, api: Any) -> None:
        super().__init__(api, ManualClock())

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def node(self, name: str = "n1", **capacity: str) -> None:
        """A Ready node."""
        await self.post("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        current = {"cpu": "8", "memory": "32Gi", "pods": "110"} | {
            k.replace("__", "/").replace("_", "."): v for k, v in capacity.items()
        }
        status = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": current, "allocatable": current}
        reported = await self.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        assert reported.code == 200, reported.body

    async def eventually(self, path: str, wanted: Callable[[Any], Any], within_s: float = 120.0) -> Any:
        """The body at `path` once `wanted` holds of it."""
        ends = self.now + within_s
        while True:
            reported = await self.get(path)
            if reported.code == 200 and wanted(reported.body):
                return reported.body
            assert self.now < ends, f"{path} never came to be as wanted: {reported.body}"
            await asyncio.sleep(0.25)

    async def items(self, path: str, **query: Any) -> list[Any]:
        reported = await self.get(path, **query)
        assert reported.code == 200, reported.body
        return reported.body["items"]  # type: ignore[no-any-return]

    async def create(self, path: str, body: dict[str, Any]) -> Answer:
        reported = await self.post(path, body)
        assert reported.code == 201, reported.body
        return reported

    async def settle(self, for_s: float = 3600.0) -> int:
        """Writes during the next hour in which nobody asks for anything."""
        before = self.api.store.revision
        await asyncio.sleep(for_s)
        return self.api.store.revision - before

    async def restart(self) -> None:
        database = self.api.store.database
        await self.api.stop()
        self.api = _api(database, self.api.core.rng)
        await self.api.start()


def _api(database: Any, chance: random.Random) -> Any:
    loop = asyncio.get_running_loop()
    return build_api(
        database,
        lambda: 1_790_000_000.0 + loop.time(),
        chance,
        {"admin": User("admin", ("system:masters", "system:authenticated"))},
    )


@asynccontextmanager
async def a_cluster() -> AsyncIterator[Cluster]:
    database = open_database("sqlite://")
    create_tables(database)
    cluster = Cluster(_api(database, random.Random(7)))
    await cluster.api.start()
    try:
        yield cluster
    finally:
        failures = list(cluster.api.core.failures)
        await cluster.api.stop()
        assert not failures, failures


def in_virtual_time(story: Story) -> Callable[[], None]:
    """A test over a fresh cluster; hours of it take no time."""

    @functools.wraps(story)
    def test() -> None:
        async def reported() -> None:
            async with a_cluster() as cluster:
                await story(cluster)

        loop = looptime.patch_event_loop(asyncio.new_event_loop(), start=0)
        try:
            loop.run_until_complete(reported())
        finally:
            loop.close()

    del test.__wrapped__  # type: ignore[attr-defined]
    return test


def a_deployment(name: str = "web", replicas: int = 3, image: str = "web:1", **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    pod = spec.pop("pod", {})
    notes = spec.pop("notes", None)
    template: dict[str, Any] = {
        "metadata": {"labels": labels} | ({"annotations": notes} if notes else {}),
        "spec": {"containers": [{"name": "c", "image": image} | spec.pop("container", {})]} | pod,
    }
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template} | spec,
    }


def rolled_out(body: dict[str, Any]) -> bool:
    """What `kubectl rollout status` waits for."""
    spec, status = body["spec"], body.get("status", {})
    wanted = spec["replicas"]
    return (
        status.get("observedGeneration", 0) >= body["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted == status.get("replicas", 0)
        and status.get("availableReplicas", 0) == wanted
    )


def condition_of(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return next((c for c in body.get("status", {}).get("conditions", []) if c["type"] == kind), {})
