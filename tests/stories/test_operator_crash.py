"""An operator that dies with a request on its way: whatever is made of that later has its resource, or goes again."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcompute.client import ComputeClient
from matrixcontainer.client.client import INSTANCE
from matrixcontainer.operator.handlers import reconcilers_for
from tests.cluster import Cluster

pytestmark = pytest.mark.looptime


class Killed(Exception):
    """The process ends here."""


class CutOff(ComputeClient):
    """The first request that is to make an instance is sent, and whoever sent it dies; `arrive` has it carried out."""

    sent: tuple[tuple[Any, ...], dict[str, Any]]

    async def ensure_instance(self, *args: Any, **more: Any) -> Any:
        self.sent = args, more
        raise Killed

    async def arrive(self) -> None:
        args, more = self.sent
        await super().ensure_instance(*args, **more)


async def test_late_request_of_a_killed_operator_is_cleaned_up(tmp_path):
    async with Cluster(tmp_path) as cluster:
        compute, beside = CutOff(cluster.http["compute"]), cluster.operator
        now = cluster.clock.now
        cluster.operator = reconcilers_for(
            cluster.kube, compute, beside.infers._inference, beside.faults._faults, now, ""
        )
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        with pytest.raises(Killed):
            await cluster.reconcile_resources()
        cluster.operator = beside
        await cluster.operator.take_over()
        await cluster.kube.delete(INSTANCE, "one", "default")
        await cluster.reconcile_resources()
        assert await cluster.compute.instances() == []
        await compute.arrive()
        gone = lambda body: body is None  # noqa: E731
        await cluster.settles(INSTANCE, "one", gone, "the resource is gone")
        assert await cluster.compute.instances() == []


async def test_resources_of_the_new_leader_are_deleted_at_once(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.operator.take_over()
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2, "dryRun": True})
        await cluster.reconcile_resources()
        await cluster.kube.delete(INSTANCE, "one", "default")
        await cluster.reconcile_resources()
        assert await cluster.kube.find(INSTANCE, "one", "default") is None
