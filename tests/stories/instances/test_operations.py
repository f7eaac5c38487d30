"""Operations over REST: waited for by the clock, cancelled while that can be undone, overtaken by a newer verb."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from matrixcompute.store.store import OperationRow
from matrixcontainer.client.client import EVENT, INSTANCE
from tests.cluster import Cluster
from tests.stack import Stack
from tests.stories.test_kubernetes_life import condition, ready

pytestmark = pytest.mark.looptime


async def operation_of(stack: Stack, instance: str) -> dict[str, Any]:
    view = await stack.compute.find_instance(instance)
    assert view is not None
    return (await stack.get("compute", f"/v1/operations/{view.operation}")).json()


async def at_step(stack: Stack, instance: str, step: str) -> dict[str, Any]:
    """The instance's operation once it stands at that step."""

    async def reached() -> bool:
        return (await operation_of(stack, instance))["step"] == step

    await stack.until(reached, f"{instance} is at {step}", within_s=600)
    return await operation_of(stack, instance)


async def ask(stack: Stack, operation: dict[str, Any], verb: str, **params: Any) -> Any:
    return await stack.http["compute"].post(f"/v1/operations/{operation['name']}:{verb}", params=params)


async def ended(stack: Stack, operation: dict[str, Any]) -> dict[str, Any]:
    while not (answer := await ask(stack, operation, "wait")).json()["done"]:
        assert answer.status_code == 200
    return answer.json()


async def test_cancelled_creation_releases_everything_and_waits_for_retry(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4, spares=1)
        operation = await at_step(stack, "one", "await_ready")
        answer = await ask(stack, operation, "cancel", validateOnly="true")
        assert (answer.status_code, answer.json()["state"]) == (202, "Undoing")
        assert (await operation_of(stack, "one"))["state"] == "Running", "it was only validated"
        answer = await ask(stack, operation, "cancel")
        assert (answer.status_code, answer.json()["state"]) == (202, "Undoing")
        again = await ask(stack, operation, "cancel")
        assert (again.status_code, again.json()["name"]) == (202, operation["name"])
        done = await ended(stack, operation)
        assert (done["state"], done["error"]["reason"]) == ("Cancelled", "Cancelled")
        assert "cancelled at await_ready" in done["message"]
        await stack.nothing_left()
        await asyncio.sleep(300)
        view = await stack.compute.find_instance("one")
        assert (view.state, view.operation) == ("Pending", operation["name"]), "nobody tries again by himself"
        shown = {each.type: (each.status, each.reason) for each in view.conditions}
        assert shown["Scheduled"] == shown["Progressing"] == ("False", "Cancelled")
        await stack.http["compute"].post("/v1/instances/one:retry")
        await stack.active("one", 4)
        await stack.check()


@pytest.mark.parametrize("change", ["resize", "move"])
async def test_cancelled_change_restores_the_shape(tmp_path, change):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        before = await stack.active("one", 3)
        spread = {"policy": "spread", "level": "cabinet", "maxPerDomain": 1, "required": True}
        if change == "resize":
            await stack.apply("one", 6)
            operation = await at_step(stack, "one", "await_ready")
        else:
            assert (await stack.http["compute"].post("/v1/instances/one:move", json=spread)).status_code == 202
            operation = await at_step(stack, "one", "await_successors")
        assert (await ask(stack, operation, "cancel")).status_code == 202
        assert (await ended(stack, operation))["state"] == "Cancelled"
        after = await stack.active("one", 3)
        assert {(m.node, m.rank) for m in after.members} == {(m.node, m.rank) for m in before.members}
        assert (after.nodes, after.placement) == (before.nodes, before.placement)
        assert after.generation == after.observed_generation == 3, "going back is a change too"
        await stack.check()


@pytest.mark.parametrize("taken", [False, True])
async def test_cancelled_shrink_restores_nodes_unless_taken(tmp_path, taken):
    """Where others did, it works on with those that it has, and asks for the rest as for any larger size."""
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 6)
        await stack.apply("other", 42)
        before = await stack.active("one", 6)
        await stack.active("other", 42)
        await stack.kill("link")
        await stack.apply("one", 3)
        operation = await at_step(stack, "one", "admit_slices")
        if taken:

            async def cleaned() -> bool:
                nodes = (await stack.get("resource", "/v1/nodes?filter=state%3DAvailable&pageSize=500")).json()["items"]
                return len(nodes) == 3

            await stack.until(cleaned, "its nodes are free", within_s=600)
            await stack.apply("other", 45)

            async def has_them() -> bool:
                return (await stack.get("resource", "/v1/allocations/other")).json()["nodes"] == 45

            await stack.until(has_them, "others have its nodes", within_s=600)
        assert (await ask(stack, operation, "cancel")).status_code == 202
        await stack.start("link")
        assert (await ended(stack, operation))["state"] == "Cancelled"
        if taken:
            await stack.until(
                lambda: waits_with(stack, 3), "it is Active, and waits for room for the others", within_s=600
            )
            events = (await stack.get("compute", "/v1/events?filter=about%3Done&pageSize=500")).json()["items"]
            assert [each["message"].split(":")[0] for each in events if each["reason"] == "NotRestored"] == [
                "it could not be restored and keeps 3 members"
            ]
            await stack.check()
            await stack.apply("other", 40)
        after = await stack.active("one", 6)
        assert {m.node for m in before.members[:3]} <= {m.node for m in after.members}
        assert (after.generation, after.cancelled.shape.nodes) == (after.observed_generation, 3)
        await stack.check()


async def waits_with(stack: Stack, nodes: int) -> bool:
    """Whether "one" is Active with so many nodes, and waits for room for more."""
    view = await stack.compute.find_instance("one")
    why = next(each.reason for each in view.conditions if each.type == "Progressing")
    return (view.state, view.ready_nodes, why) == ("Active", nodes, "InsufficientCapacity")


async def test_cancelled_stop_or_start_is_not_repeated(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        before = await stack.active("one", 3)
        for verb, state, power in (("stop", "Active", "On"), ("start", "Stopped", "Off")):
            assert (await stack.http["compute"].post(f"/v1/instances/one:{verb}")).status_code == 202
            operation = await at_step(stack, "one", "await_ready")
            assert (await ask(stack, operation, "cancel")).status_code == 202
            assert (await ended(stack, operation))["state"] == "Cancelled"
            await asyncio.sleep(600)
            view = await stack.compute.find_instance("one")
            assert (view.state, view.power, view.nodes) == (state, power, 3), verb
            assert view.generation == view.observed_generation, "going back is a change too"
            assert view.cancelled.operation == operation["name"]
            assert {m.node for m in view.members} == {m.node for m in before.members}
            assert (await stack.http["compute"].post("/v1/instances/one:stop")).status_code == 202
            await stack.until(lambda: is_state(stack, "Stopped"), "it is stopped", within_s=1200)
        await stack.check()


async def test_cancelled_stop_reverts_only_the_power(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 3)
        await stack.active("one", 3)
        await stack.apply("one", 4, power="Off")
        operation = await at_step(stack, "one", "await_ready")
        assert operation["name"].startswith("stop-instance")
        assert (await ask(stack, operation, "cancel")).status_code == 202
        assert (await ended(stack, operation))["state"] == "Cancelled"
        after = await stack.active("one", 4)
        assert (after.power, after.cancelled.shape.power) == ("On", "Off")
        await stack.check()


async def is_state(stack: Stack, state: str) -> bool:
    view = await stack.compute.find_instance("one")
    return view is not None and view.state == state


async def test_refused_cancellation_names_cancellable_operations(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        await stack.active("one", 2)
        answer = await ask(stack, await operation_of(stack, "one"), "cancel")
        assert answer.status_code == 409
        assert "create-instance has ended: it is Done" in answer.json()["detail"]
        await stack.compute.delete_instance("one")
        answer = await ask(stack, await operation_of(stack, "one"), "cancel")
        assert answer.status_code == 409
        assert "create-instance before mark_active" in answer.json()["detail"]
        assert (await ask(stack, {"name": "nothing"}, "cancel")).status_code == 404
        await stack.gone("one")


async def test_superseded_operation_is_cancelled(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        operation = await at_step(stack, "one", "await_ready")
        await stack.compute.delete_instance("one")
        view = (await stack.get("compute", f"/v1/operations/{operation['name']}")).json()
        assert (view["state"], view["done"], view["message"]) == ("Cancelled", True, "overtaken by delete-instance")
        assert 0 < view["progress"] < 1
        assert view["finishedAt"]
        await stack.gone("one")


async def test_operation_wait_times_out_despite_wake_ups(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        operation = await at_step(stack, "one", "await_ready")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        wait = asyncio.create_task(ask(stack, operation, "wait", timeoutSeconds=10))
        for count in range(40):
            await asyncio.sleep(0.1)
            await stack.apply("one", 2, labels={"count": f"{count}"})
        assert not wait.done(), "forty changes in four seconds are not forty seconds"
        assert not (await wait).json()["done"]
        assert loop.time() - begun == pytest.approx(10, abs=0.5)


async def test_operation_unknown_to_this_release_is_stuck_at_once(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 4)
        operation = await at_step(stack, "one", "await_ready")
        assert (await stack.get("compute", "/v1/stuck")).json()["items"] == []
        await stack.kill("compute")
        with stack.slots["compute"].database.sessions.begin() as session:
            session.get(OperationRow, operation["name"]).verb = "of-another-release"
        await stack.start("compute")

        async def listed() -> list[dict[str, Any]]:
            return (await stack.get("compute", "/v1/stuck")).json()["items"]

        await stack.until(listed, "it is listed", within_s=60)
        (stuck,) = await listed()
        assert (stuck["name"], stuck["state"], stuck["reason"]) == ("one", "Provisioning", "UnknownVerb")
        assert "knows no of-another-release" in stuck["message"]

        async def counted() -> bool:
            return "\nmatrixcompute_instances_stuck 1.0" in (await stack.get("compute", "/metrics")).text

        await stack.until(counted, "and counted", within_s=120)


# -- of a Kubernetes resource ------------------------------------------------------------------------------------------


async def cancelled_resize(cluster: Cluster, nodes: int) -> str:
    """Ask for that many nodes, and cancel it while it waits for them; the operation's name."""
    await cluster.apply_resource(INSTANCE, "one", {"nodes": nodes})
    body = await cluster.settles(INSTANCE, "one", lambda b: b["status"]["state"] == "Updating", "it changes")
    operation = body["status"]["operation"]
    answer = await cluster.http["compute"].post(f"/v1/operations/{operation}:cancel")
    assert answer.status_code == 202, answer.text
    return operation


def events_of(events: list[dict[str, Any]], reason: str) -> list[dict[str, Any]]:
    return [
        each for each in events if each["reason"] == reason and each["source"]["component"] == "cloudmatrix-operator"
    ]


async def operation_names(cluster: Cluster) -> set[str]:
    return {each["name"] for each in (await cluster.get("compute", "/v1/operations")).json()["items"]}


async def test_cancelled_change_is_reported_and_not_repeated(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.settles(INSTANCE, "one", ready(2), "it is ready")
        operation = await cancelled_resize(cluster, 4)
        back = lambda b: b["status"]["state"] == "Active" and condition(b, "Synced") == "False"  # noqa: E731
        body = await cluster.settles(INSTANCE, "one", back, "it is what it was", within_s=600)
        synced = next(each for each in body["status"]["conditions"] if each["type"] == "Synced")
        assert (synced["reason"], synced["observedGeneration"]) == ("Cancelled", body["metadata"]["generation"])
        assert operation in synced["message"]
        assert body["status"]["observedGeneration"] < body["metadata"]["generation"], "the spec is not followed"
        before = await operation_names(cluster)
        for _ in range(5):
            await cluster.tick()
        assert await operation_names(cluster) == before
        assert (await cluster.compute.find_instance("one")).nodes == 2
        events = events_of((await cluster.kube.list(EVENT))[0], "Cancelled")
        messages = [each["message"] for each in events if each["message"] == synced["message"]]
        assert len(messages) == 1

        # Back to what runs, which is no change, and to what was cancelled: that is asked for now.
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        body = await cluster.settles(INSTANCE, "one", ready(2), "it is as its spec says")
        assert condition(body, "Synced") is None
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 4})
        body = await cluster.settles(INSTANCE, "one", ready(4), "it has four nodes")
        assert condition(body, "Synced") is None
        assert (await cluster.compute.find_instance("one")).cancelled is None


@pytest.mark.soak
async def test_new_spec_applies_at_once_after_a_cancelled_change(tmp_path):
    async with Cluster(tmp_path) as cluster:
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 2})
        await cluster.settles(INSTANCE, "one", ready(2), "it is ready")
        await cancelled_resize(cluster, 4)
        await cluster.apply_resource(INSTANCE, "one", {"nodes": 3})
        await cluster.settles(INSTANCE, "one", ready(3), "it has three nodes")
        view = await cluster.compute.find_instance("one")
        await cluster.compute.ensure_instance("one", view.request().model_copy(update={"nodes": 5}))
        await cluster.settles(INSTANCE, "one", ready(3), "it is back at three", within_s=3600)
        assert (await cluster.compute.find_instance("one")).nodes == 3


async def test_abandoned_operation_is_reconciled_afterwards(tmp_path):
    async with Stack(tmp_path) as stack:
        await stack.apply("one", 2)
        await stack.active("one")
        await stack.apply("one", 3)
        operation = await at_step(stack, "one", "await_ready")
        url = f"/v1/operations/{operation['name']}:abandon"
        refused = await stack.http["compute"].post(url, json={})
        assert (refused.status_code, refused.json()["field"]) == (422, "reason")
        answer = await stack.http["compute"].post(url, json={"reason": "it takes too long"})
        assert answer.status_code == 202, answer.text
        done = answer.json()
        assert (done["state"], done["done"], done["error"]["reason"]) == ("Failed", True, "Abandoned")
        again = await stack.http["compute"].post(url, json={"reason": "it takes too long"})
        assert again.status_code == 409
        view = await stack.compute.find_instance("one")
        assert view is not None
        assert view.state == "Active"
        progressing = next(each for each in view.conditions if each.type == "Progressing")
        assert (progressing.status, progressing.reason) == ("False", "Abandoned")
        await asyncio.sleep(300)
        assert (await operation_of(stack, "one"))["name"] == operation["name"], "nothing is tried by itself"
        await stack.http["compute"].post("/v1/instances/one:retry")
        await stack.active("one", 3)
        await stack.check()
        await stack.compute.delete_instance("one")
        deletion = await operation_of(stack, "one")
        kept = await stack.http["compute"].post(f"/v1/operations/{deletion['name']}:abandon", json={"reason": "no"})
        assert kept.status_code == 409
        assert "given back in any case" in kept.json()["detail"]
        await stack.gone("one")
        await stack.nothing_left()


async def test_instance_requested_during_a_workflow_drain_is_created_afterwards(tmp_path):
    async with Stack(tmp_path) as stack:
        http = stack.http["compute"]
        await stack.apply("early", 1)
        await at_step(stack, "early", "await_ready")
        drained = {"reason": "release 8", "graceSeconds": 3600}
        assert (await http.put("/v1/workflow-drains/upgrade", json=drained)).status_code == 200
        await stack.apply("late", 1)
        await stack.active("early", 1)

        async def all_rest() -> bool:
            return (await stack.get("compute", "/v1/workflow-drains/upgrade")).json()["state"] == "Drained"

        await stack.until(all_rest, "no workflow runs")
        await stack.restart("compute")
        await asyncio.sleep(600)
        view = (await stack.get("compute", "/v1/workflow-drains/upgrade")).json()
        assert (view["state"], view["running"], view["waiting"]) == ("Drained", 0, 1)
        waiting = await operation_of(stack, "late")
        assert (waiting["state"], waiting["done"], waiting["steps"][0]["state"]) == ("Waiting", False, "Waiting")
        assert "drained by upgrade" in waiting["message"]
        events = (await stack.get("compute", "/v1/events", params={"filter": "about=late"})).json()["items"]
        assert any(each["reason"] == "WaitsForDrain" and "drained by upgrade" in each["message"] for each in events)
        assert [each.name for each in await stack.resource.allocations()] == ["early"]
        assert (await http.delete("/v1/workflow-drains/upgrade")).status_code == 204
        await stack.active("late", 1)
