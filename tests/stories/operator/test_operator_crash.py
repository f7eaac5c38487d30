"""An operator that dies with a request on its way: nothing is made of that once its successor has been heard."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcommon.model.errors import StaleLeader
from matrixcommon.model.fencing import FENCE, HEADER, Fence
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


async def test_late_request_of_a_killed_operator_is_refused_and_deletion_does_not_wait(tmp_path):
    async with Cluster(tmp_path) as cluster:
        compute, beside = CutOff(cluster.http["compute"]), cluster.operator
        now = cluster.clock.now
        cluster.operator = reconcilers_for(
            cluster.kube, compute, beside.infers._inference, beside.faults._faults, now, ""
        )
        FENCE.set(Fence("operator-u", 1))
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        with pytest.raises(Killed):
            await cluster.reconcile_resources()
        cluster.operator = beside
        FENCE.set(Fence("operator-u", 2))
        await cluster.kube.delete(INSTANCE, "one", "default")
        await cluster.reconcile_resources()
        assert await cluster.kube.find(INSTANCE, "one", "default") is None
        FENCE.set(Fence("operator-u", 1))
        with pytest.raises(StaleLeader):
            await compute.arrive()
        FENCE.set(None)
        assert await cluster.compute.instances() == []


@pytest.mark.parametrize("service", ["compute", "infer", "agents"])
async def test_services_refuse_an_older_operator_even_after_their_own_restart(tmp_path, service):
    """By every service that the operator changes something in, while other operators' requests go on."""
    paths = {"compute": "/v1/instances", "infer": "/v1/deployments", "agents": "/v1/faults"}
    async with Cluster(tmp_path) as cluster:

        async def status_for(token: str) -> int:
            answer = await cluster.http[service].get(paths[service], headers={HEADER: token})
            return answer.status_code

        assert await status_for("operator-u/2") == 200
        assert await status_for("operator-u/1") == 409
        assert await status_for("operator-another/1") == 200
        if service != "agents":
            await cluster.restart(service)
        assert await status_for("operator-u/1") == 409
        assert await status_for("operator-u/2") == 200
