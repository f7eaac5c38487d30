"""The service as a caller sees it: deployments, completions, loss and return of nodes, restart."""

import asyncio
import json
import shutil
import time

import httpx
import openai
import pytest

from infer_workload.experiments.experiment import healthy_fabric
from matrixcommon.model.clock import ScaledClock
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric_view import FabricView, NodePorts, PlaneView
from services.chassis.database import DatabaseEngine
from services.infer.main import MIGRATIONS, InferSettings, build

SCALE = 2000.0
NODES = healthy_fabric(8).nodes


class Views:
    """MatrixLink's answer, set by the test."""

    def __init__(self, nodes=NODES):
        self.generation = 1
        self.nodes = list(nodes)
        self.ub_uplink = 448.0

    def lose(self, *nodes):
        self.nodes = [node for node in self.nodes if node not in nodes]
        self.generation += 1

    def gain(self, *nodes):
        self.nodes = sorted({*self.nodes, *nodes})
        self.generation += 1

    async def fabric_view(self, instance):
        if not self.nodes or instance == "nowhere":
            return None
        ports = {
            Plane.UB: NodePorts(uplink_gbps=[self.ub_uplink] * 7, endpoint_gbps=[28.0] * 7),
            Plane.RDMA: NodePorts(uplink_gbps=[400.0], endpoint_gbps=[25.0]),
            Plane.VPC: NodePorts(uplink_gbps=[50.0], endpoint_gbps=[50.0]),
        }
        planes = {
            plane: PlaneView(nodes=dict.fromkeys(self.nodes, current), latency_us=2.0)
            for plane, current in ports.items()
        }
        return FabricView(slice="s", instance=instance, generation=self.generation, planes=planes)


class Stage:
    """The application, running, with clients that speak to it in one process."""

    def __init__(self, path, views=None, scale=SCALE):
        self.views = views or Views()
        self.database = DatabaseEngine(f"sqlite:///{path}")
        self.clock = ScaledClock(scale, time.time())
        self.app = build(InferSettings(seed=1), self.clock, self.database, self.views)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://infer", timeout=20)
        self.openai = openai.AsyncOpenAI(
            base_url="http://infer/v1", api_key="none", http_client=self.http, max_retries=0, timeout=20
        )

    async def __aenter__(self):
        self._life = self.app.router.lifespan_context(self.app)
        await self._life.__aenter__()
        return self

    async def __aexit__(self, *why):
        await self._life.__aexit__(*why)

    async def ensure(self, name="r1", **fields):
        return await self.http.put(f"/v1/deployments/{name}", json={"instance": "i", **fields})

    async def until(self, state, name="r1"):
        while True:
            view = (await self.http.get(f"/v1/deployments/{name}")).json()
            if view["state"] == state:
                return view
            await asyncio.sleep(0.01)

    def now(self):
        """The number of the newest change, to look for what comes after it."""
        return self._records.latest()

    async def passed(self, state, since):
        """The first view after `since` in that state, from the journal: a state may pass between two looks."""
        while True:
            for change in self._records.changes_since("deployment", since):
                if (view := json.loads(change.body))["state"] == state:
                    return view
                since = change.rv
            await self._records.changed(1.0)

    @property
    def _records(self):
        return self.app.state.serving.store.records

    async def statistics(self, name="r1", window_s=60):
        return (await self.http.get(f"/v1/deployments/{name}/statistics", params={"windowS": window_s})).json()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """An empty database with its tables, migrated once."""
    path = tmp_path_factory.mktemp("migrated") / "infer.db"
    database = DatabaseEngine(f"sqlite:///{path}")
    database.migrate(MIGRATIONS)
    database.close()
    return path


@pytest.fixture
def fresh(tmp_path, migrated):
    return shutil.copy(migrated, tmp_path / "infer.db")


@pytest.fixture
async def stage(fresh):
    async with Stage(fresh) as running:
        yield running


@pytest.fixture
async def serving(stage):
    await stage.ensure()
    await stage.until("Serving")
    return stage


async def test_a_deployment_loads_and_serves(stage):
    first = (await stage.ensure()).json()
    assert first["state"] in ("Pending", "Loading")
    view = await stage.until("Serving")
    assert view["pools"]["prefillNpus"] == 16
    assert view["pools"]["decodeNpus"] == 48
    assert sorted(view["roles"]) == NODES
    assert {condition["type"]: condition["status"] for condition in view["conditions"]} == {
        "Ready": "True",
        "LaidOut": "True",
    }
    again = (await stage.ensure()).json()
    assert again["generation"] == 1
    assert again["etag"] == (await stage.http.get("/v1/deployments/r1")).json()["etag"]


async def test_chat_through_the_openai_client(serving):
    answer = await serving.openai.chat.completions.create(
        model="r1", messages=[{"role": "user", "content": "Why is the sky blue?"}], max_tokens=24
    )
    text = answer.choices[0].message.content
    assert len(text.split()) == answer.usage.completion_tokens <= 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    same = await serving.openai.chat.completions.create(
        model="deepseek-r1", messages=[{"role": "user", "content": "Why is the sky blue?"}], max_tokens=24
    )
    assert same.choices[0].message.content == text
    assert [model.id async for model in serving.openai.models.list()] == ["r1"]


async def test_a_stream_has_a_chunk_for_each_token_then_usage(serving):
    stream = await serving.openai.chat.completions.create(
        model="r1",
        messages=[{"role": "user", "content": [{"type": "text", "text": "Count."}]}],
        max_completion_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True, "unknown": 1},
    )
    chunks = [chunk async for chunk in stream]
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    assert len(words) == 40
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 40


async def test_a_text_completion_counts_what_is_cached(serving):
    prompt = " ".join(f"w{number}" for number in range(1500))
    first = await serving.openai.completions.create(model="r1", prompt=prompt, max_tokens=8)
    again = await serving.openai.completions.create(model="r1", prompt=prompt, max_tokens=8)
    assert first.usage.prompt_tokens == 1500
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens == 1024
    used = (await serving.http.get("/v1/usage")).json()["items"]
    assert used == [
        {"name": "anyone.r1", "project": "default", "key": "anyone", "deployment": "r1", "requests": 2, "promptTokens": 3000,
         "cachedTokens": 1024, "completionTokens": first.usage.completion_tokens + again.usage.completion_tokens}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"model": "nobody", "messages": [{"role": "user", "content": "x"}]}, 404, "model_not_found", "model"),
        ({"messages": []}, 400, "InvalidField", "model"),
        ({"model": "r1", "messages": []}, 400, "InvalidField", "messages"),
        ({"model": "r1", "messages": [{"content": "x"}]}, 400, "InvalidField", "messages[0]"),
        ({"model": "r1", "messages": [{"role": "user", "content": 5}]}, 400, "InvalidField", "messages[0].content"),
        (
            {"model": "r1", "messages": [{"role": "user", "content": "x"}], "max_tokens": 0},
            400,
            "InvalidField",
            "max_tokens",
        ),
        ({"model": "r1", "messages": [{"role": "user", "content": "x"}], "n": 2}, 400, "InvalidField", "n"),
        (
            {"model": "r1", "messages": [{"role": "user", "content": "x"}], "max_tokens": 10**9},
            400,
            "context_length_exceeded",
            "messages",
        ),
        ([1], 400, "Malformed", None),
    ],
)
async def test_bad_completions_are_refused_in_openais_form(serving, body, status, code, param):
    answer = await serving.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"temperature": 9}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 7}, "top_p"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"n": 0}, "n"),
        ({"n": "1"}, "n"),
        ({"seed": 1.5}, "seed"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"user": 5}, "user"),
        ({"max_completion_tokens": True}, "max_completion_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"stream": True, "stream_options": 5}, "stream_options"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    ],
)
async def test_parameters_out_of_openais_bounds_are_refused_by_name(serving, given, param):
    asked = {"model": "r1", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    answer = await serving.http.post("/v1/chat/completions", json=asked | given)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert param.split(".")[-1].split("[")[0] in error["message"] or "role" in error["message"]


async def test_parameters_at_openais_bounds_and_fields_nobody_knows_are_taken(serving):
    edge = {"temperature": 2, "top_p": 0, "presence_penalty": -2, "frequency_penalty": 2.0, "n": 1, "stop": ["a"] * 4,
            "logit_bias": {"5": -100}, "seed": -1, "user": "u", "stream": False, "stream_options": None,
            "tool_choice": "auto", "max_tokens": 1, "top_k": "of no concern"}  # fmt: skip
    for path, asked in (
        (
            "chat/completions",
            {"messages": [{"role": "developer", "content": "x"}], "logprobs": True, "top_logprobs": 20},
        ),
        ("completions", {"prompt": "x", "logprobs": 5, "best_of": 1}),
    ):
        answer = await serving.http.post(f"/v1/{path}", json={"model": "r1"} | edge | asked)
        assert answer.status_code == 200, answer.text


async def test_a_deployment_without_a_fabric_answers_503_with_retry_after(stage):
    await stage.ensure(instance="nowhere")
    answer = await stage.http.post("/v1/completions", json={"model": "r1", "prompt": "x"})
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["type"] == "service_unavailable_error"
    assert (await stage.http.get("/v1/deployments/r1")).json()["state"] == "Pending"


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
async def test_bad_deployments_are_refused_with_the_field(stage, name, body, status, field):
    answer = await stage.http.put(f"/v1/deployments/{name}", json=body)
    assert (answer.status_code, answer.json()["field"]) == (status, field)
    assert (await stage.http.get("/v1/deployments")).json()["items"] == []


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


async def test_a_deployment_may_be_reshaped_and_lose_nodes_while_it_loads(fresh):
    async with Stage(fresh, scale=60.0) as stage:
        await stage.ensure()
        await stage.until("Loading")
        assert (await stage.ensure(decodeNpus=32)).json()["pools"]["decodeNpus"] == 32
        stage.views.lose(NODES[0])
        view = await stage.until("Serving")
        assert view["pools"]["decodeNpus"] == 32
        assert NODES[0] not in view["roles"]


async def test_a_lost_node_degrades_and_its_return_heals(serving):
    before = serving.now()
    serving.views.lose(NODES[0])
    view = await serving.passed("Degraded", before)
    assert NODES[0] not in view["roles"]
    after = await serving.until("Serving")
    assert after["pools"]["decodeNpus"] == 40
    serving.views.gain("sn0-c02-n0")
    while "sn0-c02-n0" not in (await serving.until("Serving"))["roles"]:
        await asyncio.sleep(0.01)
    assert (await serving.until("Serving"))["pools"]["decodeNpus"] == 48


async def test_an_answer_continues_over_a_lost_node(fresh):
    async with Stage(fresh, scale=60.0) as stage:
        await stage.ensure()
        await stage.until("Serving")
        asked = {"model": "r1", "prompt": "Go on.", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        answer = asyncio.create_task(stage.http.post("/v1/completions", json=asked))
        live = stage.app.state.serving.live["r1"]
        while not live.engine.pool.active:
            await asyncio.sleep(0.005)
        request = next(iter(live.engine.in_flight.values()))
        while live.tokens_of(request) < 50:
            await asyncio.sleep(0.005)
        stage.views.lose(request.die.node)
        events = [line for line in (await answer).text.split("\n\n") if line]
        words = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events[:-1]]
        assert len(words) == 1500
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


async def test_built_in_load_is_served_measured_and_metered(serving):
    put = await serving.http.put(
        "/v1/deployments/r1/load", json={"requestsPerSecond": 0.5, "seed": 4, "inputTokensMax": 4000}
    )
    assert put.json()["load"]["requestsPerSecond"] == 0.5
    while (await serving.statistics())["finished"] < 200:
        await asyncio.sleep(0.02)
    seen = await serving.statistics(window_s=600)
    assert seen["tokensPerSecond"] == pytest.approx(0.5 * 343, rel=0.5)
    assert 0 < seen["ttft"]["p50"] < seen["ttft"]["p99"]
    assert 0 < seen["tpot"]["p50"] < 0.1
    assert len(seen["samples"]) == 600
    metrics = (await serving.http.get("/metrics")).text
    assert 'vllm:generation_tokens_total{model_name="r1"}' in metrics
    assert 'vllm:time_to_first_token_seconds_bucket{le="0.05",model_name="r1"}' in metrics
    assert (await serving.http.delete("/v1/deployments/r1/load")).status_code == 204
    assert (await serving.http.get("/v1/deployments/r1/load")).status_code == 404
    used = (await serving.http.get("/v1/usage", params={"project": "load"})).json()["items"]
    assert used[0]["requests"] >= 200


async def test_deployments_usage_and_load_outlive_the_process(fresh):
    async with Stage(fresh) as first:
        await first.ensure(blockTokens=256)
        await first.until("Serving")
        await first.http.put("/v1/deployments/r1/load", json={"requestsPerSecond": 1})
        await first.openai.completions.create(model="r1", prompt="one two three", max_tokens=5)
        before = (await first.http.get("/v1/usage", params={"project": "default"})).json()
    async with Stage(fresh) as second:
        view = await second.until("Serving")
        assert view["request"]["blockTokens"] == 256
        assert view["load"]["requestsPerSecond"] == 1
        assert (await second.http.get("/v1/usage", params={"project": "default"})).json() == before
        assert (await second.http.delete("/v1/deployments/r1")).status_code == 204
        assert (await second.http.get("/v1/deployments/r1")).status_code == 404
        assert (await second.http.get("/v1/deployments")).json()["items"] == []


async def test_nodes_keep_their_roles_over_a_restart(fresh):
    """Weights lie where they lay: a process that starts again must not make prefill and decode change places."""
    views = Views(NODES[4:])
    async with Stage(fresh, views) as before:
        await before.ensure()
        await before.until("Serving")
        views.gain(*NODES[:4])
        while len(roles := (await before.until("Serving"))["roles"]) < len(NODES):
            await asyncio.sleep(0.01)
    async with Stage(fresh, views) as after:
        assert (await after.http.get("/v1/deployments/r1")).json()["roles"] == roles, "shown before it is laid out"
        assert (await after.until("Serving"))["roles"] == roles
    views.nodes = []
    async with Stage(fresh, views) as after:
        while (await after.http.get("/v1/deployments/r1")).json()["roles"]:
            await asyncio.sleep(0.01)


async def test_a_watch_tells_of_every_state(stage):
    first = (await stage.ensure()).json()
    assert first["name"] == "r1"
    await stage.until("Serving")
    changes = stage.app.state.serving.store.records.changes_since("deployment", 0)
    states = [json.loads(change.body)["state"] for change in changes]
    assert [state for at, state in enumerate(states) if at == 0 or states[at - 1] != state] == [
        "Pending",
        "Loading",
        "Serving",
    ]
