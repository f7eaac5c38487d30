"""Several deployments on one instance, as a caller sees them: no node is two deployments', and none waits for ever."""

import asyncio
import json

import pytest

from infer_workload.engine.request import InferenceRequest
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out
from infer_workload.layout.division import Part
from infer_workload.serving.status import progress
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.fabric import Fabric
from infer_workload.timing.model import load_model
from tests.infer_workload import loaded_deployment
from tests.infer_workload.conftest import NODES, InferServer


async def deployment(server, name):
    return (await server.http.get(f"/v1/deployments/{name}")).json()


def condition(view, kind):
    return next(each for each in view["conditions"] if each["type"] == kind)


async def until(server, holds, *names):
    """Until this holds of the deployments; no node ever plays a role in two."""
    while True:
        views = {name: await deployment(server, name) for name in names}
        nodes = [node for view in views.values() for node in view["roles"]]
        assert len(nodes) == len(set(nodes)), views
        if holds(views):
            return views
        await asyncio.sleep(0.01)


def serve(**sizes):
    """All of them, on so many nodes."""

    def holds(views):
        return all(views[name]["state"] == "Serving" and len(views[name]["roles"]) == sizes[name] for name in sizes)

    return holds


async def test_without_sizes_they_have_even_parts_and_who_stays_has_what_is_left(serving):
    await serving.ensure("other")
    views = await until(serving, serve(r1=4, other=4), "r1", "other")
    assert condition(views["r1"], "LaidOut")["message"] == "of the 8 nodes of its instance other has 4"
    await serving.http.delete("/v1/deployments/other")
    views = await until(serving, serve(r1=8), "r1")
    assert condition(views["r1"], "LaidOut")["message"] == ""


async def test_one_with_sizes_has_them(serving):
    await serving.ensure("other", prefillNpus=8, decodeNpus=16)
    views = await until(serving, serve(r1=5, other=3), "r1", "other")
    assert views["other"]["pools"]["decodeNpus"] == 16


class YieldingDeployment(loaded_deployment.LoadedDeployment):
    """One that serves under load on twelve nodes, and is to hand four of them over."""

    yields = frozenset(loaded_deployment.NODES[:2] + loaded_deployment.NODES[-2:])

    def show(self, nodes, yields=frozenset(), beside=""):
        self.generation += 1
        fabric = Fabric.healthy(loaded_deployment.NODES, self.generation)
        self.live.apply_view(fabric, self.now, part=Part(frozenset(nodes), yields), others=beside)


def test_nodes_are_handed_over_when_nothing_runs_there_any_more():
    """No request is sent back or cut, and nothing new begins there."""
    loaded = YieldingDeployment()
    live, before = loaded.live, loaded.live.engine.deployment.pools.nodes
    assert before == set(loaded_deployment.NODES)
    loaded.show(loaded_deployment.NODES, loaded.yields)
    assert progress(live)[:2] == (True, "HandingOver")
    assert live.engine.placement.count_on_cordoned()
    while live.engine.deployment.pools.nodes & loaded.yields:
        loaded.advance(1)
        loaded.show(loaded_deployment.NODES, loaded.yields)
    assert live.engine.deployment.pools.nodes == before - loaded.yields
    assert (live.layout.requeued, live.layout.cut_off) == (0, 0)
    loaded.show(before - loaded.yields, beside="of the 12 nodes of its instance other has 4")
    loaded.advance(60)
    assert live.state == "Serving"
    assert set(live.engine.deployment.fabric.nodes) == before - loaded.yields
    assert progress(live)[0] is False


def test_requests_running_there_at_the_deadline_are_requeued():
    loaded = YieldingDeployment()
    loaded.live.intake.start_load_generator(None, loaded.now)
    for _ in range(128):
        loaded.live.submit(loaded.now, InferenceRequest(0, loaded.now, 1000, 60_000, ()))
    loaded.advance(60)
    loaded.show(loaded_deployment.NODES, loaded.yields)
    loaded.advance(590)
    assert loaded.live.engine.deployment.pools.nodes == set(loaded_deployment.NODES)
    loaded.advance(15)
    assert loaded.live.engine.deployment.pools.nodes == set(loaded_deployment.NODES) - loaded.yields
    assert loaded.live.layout.requeued > 0
    assert loaded.live.layout.cut_off == 0


async def test_what_has_no_room_waits_and_says_who_has_the_nodes(serving):
    await serving.ensure(prefillNpus=16, decodeNpus=32)
    await until(serving, serve(r1=6), "r1")
    view = (await serving.ensure("other", prefillNpus=8, decodeNpus=24)).json()
    why = "the instance has 0 usable nodes, the pools need 4; of the 8 nodes of its instance r1 has 8"
    while condition(view, "Ready")["message"] != why:
        await asyncio.sleep(0.01)
        view = await deployment(serving, "other")
    assert view["state"] == "Pending"
    answer = await serving.http.post("/v1/completions", json={"model": "other", "prompt": "x"})
    assert answer.status_code == 503
    await serving.ensure(prefillNpus=8, decodeNpus=24)
    views = await until(serving, serve(r1=4, other=4), "r1", "other")
    assert views["other"]["pools"]["prefillNpus"] == 8


async def test_a_size_for_which_others_leave_no_room_is_refused(serving):
    await serving.ensure("other", prefillNpus=8, decodeNpus=16)
    await until(serving, serve(r1=5, other=3), "r1", "other")
    larger = await serving.ensure("other", prefillNpus=16, decodeNpus=24)
    assert larger.status_code == 200, "the other one hands nodes over for it"
    await until(serving, serve(r1=3, other=5), "r1", "other")
    assert (await deployment(serving, "r1"))["pools"]["contextLength"] == load_model().context_length
    refused = await serving.ensure("other", prefillNpus=16, decodeNpus=32)
    assert (refused.status_code, refused.json()["reason"]) == (409, "InsufficientCapacity")
    assert refused.json()["blocking"] == [{"domain": "nodes", "needs": 6, "has": 5}]


async def test_a_lost_node_is_one_deployments_loss(serving):
    await serving.ensure(prefillNpus=8, decodeNpus=24)
    await serving.ensure("other", prefillNpus=8, decodeNpus=24)
    views = await until(serving, serve(r1=4, other=4), "r1", "other")
    lost, since = min(views["r1"]["roles"]), serving.now()
    serving.views.lose(lost)
    await until(serving, serve(r1=3, other=4), "r1", "other")
    serving.views.gain(lost)
    await until(serving, serve(r1=4, other=4), "r1", "other")
    changes = [
        json.loads(each.body) for each in serving.app.state.serving.store.records.changes_since("deployment", since)
    ]
    others = [(each["state"], each["roles"]) for each in changes if each["name"] == "other"]
    assert all(each == ("Serving", views["other"]["roles"]) for each in others)


async def test_after_a_restart_each_has_the_nodes_that_it_had(fresh):
    async with InferServer(fresh) as server:
        await server.ensure()
        await until(server, serve(r1=8), "r1")
        await server.ensure("other", prefillNpus=8, decodeNpus=16)
        views = await until(server, serve(r1=5, other=3), "r1", "other")
    async with InferServer(fresh) as again:
        assert await until(again, serve(r1=5, other=3), "r1", "other")
        for name, view in views.items():
            assert (await deployment(again, name))["roles"] == view["roles"]


async def test_deployments_that_an_older_version_had_on_the_same_nodes_are_parted(fresh):
    async with InferServer(fresh) as server:
        await server.ensure()
        view = await server.until("Serving")
        records = server.app.state.serving.store.records
        await server.ensure("other", instance="nowhere")
        with records.transaction() as session:
            row = server.app.state.serving.store.deployment(session, "other")
            row.request, row.roles = {**row.request, "instance": "i"}, view["roles"]
        server.app.state.serving.live.pop("other")  # nobody writes of it any more
    async with InferServer(fresh) as again:
        while sum([len((await deployment(again, name))["roles"]) for name in ("r1", "other")]) > len(NODES):
            await asyncio.sleep(0.01)
        await until(again, serve(r1=4, other=4), "r1", "other")


async def test_what_is_scaled_to_zero_leaves_its_nodes_and_has_them_back(serving):
    await serving.ensure("other", prefillNpus=8, decodeNpus=16)
    await until(serving, serve(r1=5, other=3), "r1", "other")
    await serving.http.put("/v1/deployments/other/scale", json={"prefillNodes": 0, "decodeNodes": 0})
    await until(serving, serve(r1=8), "r1", "other")
    await serving.http.delete("/v1/deployments/other/scale")
    await until(serving, serve(r1=5, other=3), "r1", "other")


@pytest.mark.parametrize("model", ["deepseek-r1", "qwen3-235b"])
async def test_each_is_timed_as_what_it_has_would_be_alone(serving, model):
    """The same as an experiment on so many nodes."""
    await serving.ensure("other", model=model)
    await until(serving, serve(r1=4, other=4), "r1", "other")
    timing = serving.app.state.serving.live["other"].engine.pool.timing
    alone = lay_out(healthy_fabric(4), load_model(model), load_calibration()).decode_timing()
    for requests in (1, 8, 24):
        assert timing.step_s(requests, requests * 4096) == pytest.approx(alone.step_s(requests, requests * 4096))
    whole = lay_out(healthy_fabric(8), load_model(model), load_calibration()).decode_timing()
    assert timing.step_s(24, 24 * 4096) != pytest.approx(whole.step_s(24, 24 * 4096), rel=0.01)
