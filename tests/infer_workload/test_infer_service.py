"""The service as a caller sees it: deployments, completions, loss and return of nodes, restart."""

import asyncio
import json
from math import inf

import pytest

from infer_workload.engine.decode_pool import DecodePool
from infer_workload.serving.live import served_layout
from infer_workload.serving.states import DEPLOYMENT_STATES
from tests.infer_workload.conftest import NODES, FakeFabricViews, InferServer


async def test_a_deployment_loads_and_serves(server):
    first = (await server.ensure()).json()
    assert first["state"] in ("Pending", "Loading")
    view = await server.until("Serving")
    assert view["pools"]["prefillNpus"] == 16
    assert view["pools"]["decodeNpus"] == 48
    assert sorted(view["roles"]) == NODES
    assert {condition["type"]: condition["status"] for condition in view["conditions"]} == {
        "Ready": "True",
        "LaidOut": "True",
        "Progressing": "False",
    }
    again = (await server.ensure()).json()
    assert again["generation"] == 1
    assert again["etag"] == (await server.http.get("/v1/deployments/r1")).json()["etag"]


async def test_a_deployment_without_a_fabric_answers_503_with_retry_after(server):
    await server.ensure(instance="nowhere")
    answer = await server.http.post("/v1/completions", json={"model": "r1", "prompt": "x"})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["type"] == "service_unavailable_error"
    assert (await server.http.get("/v1/deployments/r1")).json()["state"] == "Pending"


@pytest.mark.parametrize(
    ("name", "body", "status", "field"),
    [
        ("r1", {"instance": "i", "colour": 1}, 422, "colour"),
        ("r1", {"instance": "i", "prefillNpus": 0}, 422, "prefillNpus"),
        ("r1", {"instance": "i", "decodeNpus": 10**9}, 422, "decodeNpus"),
        ("r1", {"instance": "i", "blockTokens": 64}, 422, "blockTokens"),
        ("r1", {"instance": "i", "model": "other"}, 422, "model"),
        ("Not_A_Name", {"instance": "i"}, 422, "name"),
    ],
)
async def test_bad_deployments_are_refused_with_the_field(server, name, body, status, field):
    answer = await server.http.put(f"/v1/deployments/{name}", json=body)
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert (await server.http.get("/v1/deployments")).json()["items"] == []


async def test_etags_validation_and_what_cannot_change(serving):
    wrong = await serving.http.put("/v1/deployments/r1", json={"instance": "i"}, headers={"If-Match": '"999999"'})
    assert wrong.status_code == 412
    moved = await serving.http.put("/v1/deployments/r1", json={"instance": "other"})
    assert moved.status_code == 409
    tried = await serving.http.put("/v1/deployments/r2?validateOnly=true", json={"instance": "i"})
    assert tried.status_code == 200
    assert (await serving.http.get("/v1/deployments/r2")).status_code == 404
    large = await serving.ensure(decodeNpus=800)
    assert (large.status_code, large.json()["reason"]) == (409, "InsufficientCapacity")
    assert (await serving.http.get("/v1/deployments/r1")).json()["generation"] == 1
    smaller = await serving.ensure(decodeNpus=32)
    assert smaller.json()["pools"]["decodeNpus"] == 32
    assert smaller.json()["generation"] == 2


async def test_a_deployment_is_settled_only_when_it_serves_as_asked_or_is_to_be_idle(fresh):
    """`everything is as specified` of one that was never laid out would be no help to anybody."""

    def progressing(view):
        return next((c["status"], c["reason"]) for c in view["conditions"] if c["type"] == "Progressing")

    async with InferServer(fresh, scale=60.0) as server:
        view = (await server.ensure(prefillNpus=800)).json()
        why = "the instance has 8 usable nodes, the pools need 101"
        while view["conditions"][0]["message"] != why:
            await asyncio.sleep(0.01)
            view = (await server.http.get("/v1/deployments/r1")).json()
        assert (view["state"], progressing(view)) == ("Pending", ("False", "NoLayout"))
        await server.ensure()
        assert progressing(await server.until("Loading")) == ("True", "Loading")
        zero = await server.http.put("/v1/deployments/r1/scale", json={"prefillNodes": 0, "decodeNodes": 0})
        assert progressing(zero.json()) == ("False", "Settled")
        await server.until("Idle")


async def test_a_deployment_may_be_reshaped_and_lose_nodes_while_it_loads(fresh):
    async with InferServer(fresh, scale=60.0) as server:
        await server.ensure()
        await server.until("Loading")
        assert (await server.ensure(decodeNpus=32)).json()["pools"]["decodeNpus"] == 32
        server.views.lose(NODES[0])
        view = await server.until("Serving")
        assert view["pools"]["decodeNpus"] == 32
        assert NODES[0] not in view["roles"]


async def test_a_lost_node_degrades_and_its_return_heals(serving):
    before = serving.now()
    serving.views.lose(NODES[0])
    view = await serving.next_view_in("Degraded", before)
    assert NODES[0] not in view["roles"]
    after = await serving.until("Serving")
    assert after["pools"]["decodeNpus"] == 40
    serving.views.gain("sn0-c02-n0")
    while "sn0-c02-n0" not in (await serving.until("Serving"))["roles"]:
        await asyncio.sleep(0.01)
    assert (await serving.until("Serving"))["pools"]["decodeNpus"] == 48


async def test_an_answer_continues_over_a_lost_node(fresh):
    async with InferServer(fresh, scale=60.0) as server:
        await server.ensure()
        await server.until("Serving")
        asked = {"model": "r1", "prompt": "Go on.", "max_tokens": 4000, "ignore_eos": True, "stream": True}
        answer = asyncio.create_task(server.http.post("/v1/completions", json=asked))
        live = server.app.state.serving.live["r1"]
        while not live.engine.pool.active:
            await asyncio.sleep(0.005)
        request = next(iter(live.engine.in_flight.values()))
        while live.tokens_of(request) < 50:
            await asyncio.sleep(0.005)
        server.views.lose(request.die.node)
        events = [line for line in (await answer).text.split("\n\n") if line]
        words = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events[:-1]]
        assert len(words) == 4000
        assert all(words)
        assert events[-1] == "data: [DONE]"
        assert request.attempts == 2
        assert live.engine.preemptions == 1


async def test_when_too_few_nodes_are_left_nobody_is_left_hanging(serving):
    hanging = asyncio.create_task(
        serving.http.post(
            "/v1/completions", json={"model": "r1", "prompt": "x", "max_tokens": 150_000, "ignore_eos": True}
        )
    )
    while not serving.app.state.serving.live["r1"].engine.in_flight:
        await asyncio.sleep(0.005)
    serving.views.lose(*NODES[1:])
    answer = await hanging
    assert answer.status_code == 503
    assert "retry-after" in answer.headers
    view = await serving.until("Unavailable")
    assert view["roles"] == {}
    serving.views.gain(*NODES)
    await serving.until("Serving")


async def test_latencies_of_nothing_are_not_known_rather_than_zero(fresh):
    async with InferServer(
        fresh, scale=20.0
    ) as server:  # a minute, of which statistics are, is some seconds of the wall
        await server.ensure()
        await server.until("Serving")
        seen = await server.statistics()
        assert (seen["ttft"], seen["tpot"], seen["cacheHitRateTokens"], seen["cacheHitRateBlocks"]) == (None,) * 4
        answer = await server.http.post("/v1/completions", json={"model": "r1", "prompt": "x", "max_tokens": 1})
        assert answer.status_code == 200
        seen = await server.statistics()
        assert seen["ttft"]["p50"] > 0
        assert seen["tpot"] is None, "there was no further token"
        assert seen["cacheHitRateTokens"] == 0.0


async def test_a_step_that_cannot_end_takes_no_number_of_milliseconds(serving, monkeypatch):
    """While no bytes come through to a node; JSON has no infinity."""
    monkeypatch.setattr(DecodePool, "step_s", property(lambda pool: inf))
    assert (await serving.statistics())["decodeStepMs"] is None


async def test_a_deployment_that_loads_for_longer_than_it_may_is_listed_as_stuck(server, monkeypatch):
    monkeypatch.setattr(served_layout, "cold_start_s", lambda *_: inf)
    await server.ensure()
    await server.until("Loading")
    while not (found := (await server.http.get("/v1/stuck")).json()["items"]):
        await asyncio.sleep(0.02)
    (stuck,) = found
    assert (stuck["name"], stuck["state"], stuck["reason"]) == ("r1", "Loading", "DeadlineExceeded")
    assert stuck["seconds"] > DEPLOYMENT_STATES.states["Loading"].deadline_s
    assert "loading weights" in stuck["message"]
    server.app.state.serving.live["r1"].layout.loading.serves_from = server.clock.now()
    await server.until("Serving")
    assert (await server.http.get("/v1/stuck")).json()["items"] == []


async def test_built_in_load_is_served_measured_and_metered(serving):
    put = await serving.http.put(
        "/v1/deployments/r1/load", json={"requestsPerSecond": 0.5, "seed": 4, "inputTokensMax": 4000}
    )
    assert put.json()["load"]["requestsPerSecond"] == 0.5
    at_its_rate = pytest.approx(0.5 * 343, rel=0.5)
    # More than once: a process that is held up for 0.3 s is ten minutes behind this clock and skips what was to come.
    while (seen := await serving.statistics(window_s=600))["finished"] < 200 or seen["tokensPerSecond"] != at_its_rate:
        await asyncio.sleep(0.02)
    assert 0 < seen["ttft"]["p50"] < seen["ttft"]["p99"]
    assert 0 < seen["tpot"]["p50"] < 0.1
    assert len(seen["samples"]) == 600
    metrics = (await serving.http.get("/metrics")).text
    assert 'vllm:generation_tokens_total{model_name="r1"}' in metrics
    assert 'vllm:time_to_first_token_seconds_bucket{le="0.25",model_name="r1"}' in metrics
    assert (await serving.http.delete("/v1/deployments/r1/load")).status_code == 204
    assert (await serving.http.get("/v1/deployments/r1/load")).status_code == 404
    used = (await serving.http.get("/v1/usage", params={"project": "load"})).json()["items"]
    assert used[0]["requests"] >= 200


async def test_deployments_usage_and_load_outlive_the_process(fresh):
    async with InferServer(fresh) as first:
        await first.ensure(blockTokens=256)
        await first.until("Serving")
        await first.http.put("/v1/deployments/r1/load", json={"requestsPerSecond": 1})
        await first.openai.completions.create(model="r1", prompt="one two three", max_tokens=5)
        before = (await first.http.get("/v1/usage", params={"project": "default"})).json()
    async with InferServer(fresh) as second:
        view = await second.until("Serving")
        assert view["blockTokens"] == 256
        assert view["load"]["requestsPerSecond"] == 1
        assert (await second.http.get("/v1/usage", params={"project": "default"})).json() == before
        assert (await second.http.delete("/v1/deployments/r1")).status_code == 204
        assert (await second.http.get("/v1/deployments/r1")).status_code == 404
        assert (await second.http.get("/v1/deployments")).json()["items"] == []


async def test_nodes_keep_their_roles_over_a_restart(fresh):
    """Weights lie where they lay: a process that starts again must not make prefill and decode change places."""
    views = FakeFabricViews(NODES[4:])
    async with InferServer(fresh, views) as before:
        await before.ensure()
        await before.until("Serving")
        views.gain(*NODES[:4])
        while len(roles := (await before.until("Serving"))["roles"]) < len(NODES):
            await asyncio.sleep(0.01)
    async with InferServer(fresh, views) as after:
        assert (await after.http.get("/v1/deployments/r1")).json()["roles"] == roles, "shown before it is laid out"
        assert (await after.until("Serving"))["roles"] == roles
    views.nodes = []
    async with InferServer(fresh, views) as after:
        while (await after.http.get("/v1/deployments/r1")).json()["roles"]:
            await asyncio.sleep(0.01)


async def test_a_watch_tells_of_every_state(server):
    first = (await server.ensure()).json()
    assert first["name"] == "r1"
    await server.until("Serving")
    changes = server.app.state.serving.store.records.changes_since("deployment", 0)
    states = [json.loads(change.body)["state"] for change in changes]
    assert [state for at, state in enumerate(states) if at == 0 or states[at - 1] != state] == [
        "Pending",
        "Loading",
        "Serving",
    ]


async def test_a_drain_says_which_of_its_nodes_the_deployment_does_not_have(serving):
    """Who asks may name who has just left; a slip of the finger is seen."""

    async def drain(*nodes):
        return await serving.http.put("/v1/deployments/r1/drain", json={"nodes": nodes})

    refused = await drain("nope")
    assert (refused.status_code, refused.json()["field"]) == (422, "nodes[0]")
    assert "expected one like 'sn0-c03-n2'" in refused.json()["detail"]
    shown = (await drain(NODES[0], "sn7-c00-n0")).json()["drain"]
    assert (shown["nodes"], shown["absent"]) == ([NODES[0], "sn7-c00-n0"], ["sn7-c00-n0"])


async def test_a_drain_belongs_to_who_asked_for_it(serving):
    async def drain(status, *nodes, **more):
        answer = await serving.http.put("/v1/deployments/r1/drain", json={"nodes": nodes, **more})
        assert answer.status_code == status, answer.text
        return answer.json()

    assert (await serving.until("Serving"))["readyNodes"] == sorted(NODES)
    made = (await drain(200, NODES[0], by="move-one-1"))["drain"]
    assert (made["by"], made["nodes"], made["absent"]) == ("move-one-1", [NODES[0]], [])
    for more in ({}, {"by": "move-one-2"}):
        refused = await drain(409, NODES[1], **more)
        assert (refused["field"], refused["detail"]) == ("nodes", f"already draining {NODES[0]} for move-one-1")
    again = (await drain(200, NODES[0], by="repair-one-2", deadlineS=5))["drain"]
    assert (again["by"], again["deadlineAt"]) == ("repair-one-2", made["deadlineAt"]), "whoever came before is over"
    assert (await drain(200, NODES[0]))["drain"]["by"] == "repair-one-2", "who has no name takes it from nobody"
    assert (await drain(409, NODES[1], by="move-one-1"))["detail"] == f"already draining {NODES[0]} for repair-one-2"
    refused = await drain(409, *NODES[1:], by="repair-one-2", keepServing=True)
    assert (refused["reason"], refused["field"]) == ("InsufficientCapacity", "nodes")
    while (shown := await serving.until("Serving"))["drain"]["state"] != "Drained":
        await asyncio.sleep(0.01)
    assert shown["readyNodes"] == sorted(NODES[1:])
    assert (await serving.http.delete("/v1/deployments/r1/drain")).status_code == 204
    while (await serving.until("Serving"))["readyNodes"] != sorted(NODES):
        await asyncio.sleep(0.01)
    assert (await drain(200, NODES[1]))["drain"]["by"] == ""
    assert (await drain(200, NODES[2], by="move-one-3"))["drain"]["by"] == "move-one-3", "nobody's is replaced"
