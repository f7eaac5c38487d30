"""A scaling policy that counts on spares, on the whole stack in emulated time: the load rises, the instance grows out
of its spares whoever dies on the way, and what nodes took to be there is measured and remembered."""

from __future__ import annotations

import pytest

from matrixcompute.autoscaling.node_waits import NodeWaits
from matrixcompute.store.store import InstanceRow
from tests.stack import Stack
from tests.stories.autoscaling.test_scaling_policy import (
    condition_of,
    more_than,
    nothing_lost,
    offer,
    policy,
    put_policy,
    statistics,
)

pytestmark = pytest.mark.looptime


async def with_spares(stack: Stack, spares: int) -> None:
    async def ready() -> bool:
        view = await stack.compute.find_instance("one")
        return view is not None and any(
            each.type == "SparesAvailable" and each.status == "True" for each in view.conditions
        )

    await stack.until(ready, f"{spares} spares stand ready")


async def test_policy_with_warm_spares_grows_from_spares_and_records_their_wait(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        await stack.apply("one", 4, spares=2)
        await stack.active("one", 4)
        await with_spares(stack, 2)
        before = await stack.compute.find_instance("one")
        assert before is not None
        spares = {each.node for each in before.members if each.role == "spare"}
        await stack.http["infer"].put("/v1/deployments/one", json={"instance": "one"})

        async def serves() -> bool:
            return (await stack.get("infer", "/v1/deployments/one")).json()["state"] == "Serving"

        await stack.until(serves, "it serves")
        await offer(stack, 6.0)
        answer = await put_policy(stack, warmSpares=2, maxReplicas=6)  # as many as there are spares beyond what it has
        assert (answer.status_code, answer.json()["warmSpares"]) == (200, 2)
        refused = await put_policy(stack, warmSpares=49)
        assert refused.status_code == 422
        assert "warmSpares" in refused.text

        async def measured() -> bool:
            return condition_of(await policy(stack), "ScalingActive") == ("True", "ValidMetricFound")

        await stack.until(measured, "what comes in is measured")
        size = (await policy(stack))["currentReplicas"]
        await offer(stack, 27.0)
        await stack.until(lambda: more_than(stack, size), "more nodes are asked for")
        await stack.kill("resource")
        await stack.restart("compute")
        await stack.start("resource")

        async def grown() -> bool:
            view = await stack.compute.find_instance("one")
            settled = view is not None and view.state == "Active" and view.observed_generation == view.generation
            return settled and spares <= {each.node for each in view.members if each.role == "member"}

        await stack.until(grown, "those who were spares are members")
        await with_spares(stack, 2)
        view = await stack.compute.find_instance("one")
        assert view is not None
        assert sum(each.role == "spare" for each in view.members) == 2
        nothing_lost(await statistics(stack))
        waits = waited(stack)
        assert waits.free, "its creation waited for nodes that booted"
        assert waits.spares, "and its growth for spares"
        assert 0 < waits.join_s < waits.boot_s, "from a spare sooner than from a free node"
        await stack.check()


def waited(stack: Stack) -> NodeWaits:
    """How long the instance waited for its new members, as its policy is told."""
    database = stack.slots["compute"].database
    assert database is not None
    with database.sessions() as session:
        return NodeWaits.of(session.query(InstanceRow).one().node_waits)
