"""A CRD that somebody deletes is installed again, without its objects; what they stood for has been released."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from matrixcontainer.client.client import CRD, INSTANCE, SUPERNODE, Kind
from matrixcontainer.operator.crd_installer import CrdInstaller
from matrixcontainer.operator.crds import custom_resource_definitions
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime


def crd_name(kind: Kind) -> str:
    return f"{kind.plural}.{kind.api_version.partition('/')[0]}"


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING, logger="matrixcontainer.operator.crd_installer")
    return lambda: [(each.crd, each.objects, each.names) for each in caplog.records if hasattr(each, "crd")]


async def test_deleted_crd_is_installed_again_and_its_instances_are_released(tmp_path, warned):
    async with Cluster(tmp_path) as cluster:
        keeping = asyncio.create_task(CrdInstaller(cluster.kube, custom_resource_definitions()).keep())
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.settles(INSTANCE, "one", lambda body: body["status"]["state"] == "Active", "it is Active")
        crd = await cluster.kube.find(CRD, crd_name(INSTANCE))
        await cluster.kube.delete(CRD, crd_name(INSTANCE))

        async def again() -> bool:
            found = await cluster.kube.find(CRD, crd_name(INSTANCE))
            if found is not None and found["metadata"]["uid"] == crd["metadata"]["uid"]:
                await cluster.reconcile_resources()
                return False
            return found is not None and len(warned()) == 2

        await cluster.until(again, "the CRD is installed again", 600)
        assert warned() == [(crd_name(INSTANCE), 1, "default/one")] * 2
        assert (await cluster.kube.list(INSTANCE))[0] == []
        assert await cluster.compute.instances() == []
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.settles(INSTANCE, "one", lambda body: body["status"]["state"] == "Active", "it is Active again")
        keeping.cancel()


async def test_mirrors_of_a_deleted_crd_are_written_again(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.mirror()
        installer = CrdInstaller(cluster.kube, custom_resource_definitions(), cluster.mirrors.resync)
        keeping = asyncio.create_task(installer.keep())
        crd = await cluster.kube.find(CRD, crd_name(SUPERNODE))
        await cluster.kube.delete(CRD, crd_name(SUPERNODE))

        async def again() -> bool:
            found = await cluster.kube.find(CRD, crd_name(SUPERNODE))
            return found is not None and found["metadata"]["uid"] != crd["metadata"]["uid"]

        await cluster.until(again, "the CRD is installed again", 60)
        await cluster.until(lambda: mirrored(cluster), "the supernode is mirrored again", 60)
        keeping.cancel()


async def mirrored(cluster: Cluster) -> bool:
    await cluster.mirrors.reconcile()
    return bool((await cluster.kube.list(SUPERNODE))[0])


async def test_crd_deleted_while_no_operator_ran_is_installed_by_the_next(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.kube.delete(CRD, crd_name(INSTANCE))
        keeping = asyncio.create_task(CrdInstaller(cluster.kube, custom_resource_definitions()).keep())
        await cluster.until(lambda: served(cluster), "instances are served again", 60)
        keeping.cancel()


async def served(cluster: Cluster) -> bool:
    await cluster.kube.list(INSTANCE)
    return True
