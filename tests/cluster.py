"""Cluster: the stack with Kubernetes in one process (`services/testing/cluster.py`), with what stories say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matrixcontainer.client.client import POD, Kind
from services.testing import cluster
from tests.matrixresource.topology.three_cabinets import three_cabinets
from tests.stack import Stack


class Cluster(cluster.Cluster, Stack):
    """`async with Cluster(tmp_path) as cluster`."""

    async def __aenter__(self) -> Cluster:
        await super().__aenter__()
        return self

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


class SmallCluster(Cluster):
    """The same on a supernode of three cabinets."""

    def __init__(self, folder: Path, *args: Any, **more: Any) -> None:
        super().__init__(folder, *args, **more)
        self.spec = three_cabinets()


def new_folder(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder
