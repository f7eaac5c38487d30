"""Completions as OpenAI's clients ask for them, and what is refused in OpenAI's form."""

import asyncio
import gc
import json

import openai
import pytest

from infer_workload.access import ACCESS
from infer_workload.engine.request import InferenceRequest
from infer_workload.metering.accounts import Charge
from infer_workload.openai.answers import OPENAI
from matrixcommon.api.authorization import EVERY_PROJECT, Principal
from services.chassis.access import add_token
from tests.infer_workload.conftest import InferServer


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
    assert [model.id async for model in serving.openai.models.list()] == ["r1", "deepseek-r1"]


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
        {"name": "anyone.r1.deepseek-r1", "project": "default", "key": "anyone", "deployment": "r1", "model": "deepseek-r1", "requests": 2, "promptTokens": 3000,
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
        ([1], 400, "Malformed", "body"),
    ],
)
async def test_bad_completions_are_refused_in_openais_form(serving, body, status, code, param):
    answer = await serving.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("path", "asked", "param"),
    [
        ("completions", {"prompt": "half an emoji: \ud83d"}, "prompt"),
        ("chat/completions", {"messages": [{"role": "user", "content": "\udc00"}]}, "messages[0].content"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "\ud83d"}]}]},
            "messages[0].content",
        ),
        ("completions", {"model": "\ud83d", "prompt": "x"}, "model"),
    ],
)
async def test_half_a_surrogate_pair_is_refused_by_name(serving, path, asked, param):
    """A client that cuts a text within a character sends one, escaped as JSON has it."""
    answer = await serving.http.post(f"/v1/{path}", content=json.dumps({"model": "r1"} | asked))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_body_that_is_nested_too_deeply_to_be_read_is_refused(serving):
    answer = await serving.http.post("/v1/completions", content=b'{"prompt": ' + b"[" * 100_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "Malformed")


@pytest.mark.parametrize(
    ("method", "path", "asked", "status", "code"),
    [
        ("GET", "/v1/chat/completions", {}, 405, "MethodNotAllowed"),
        ("DELETE", "/v1/models/r1", {}, 405, "MethodNotAllowed"),
        ("POST", "/v1/completions", {"content": b" " * (1 << 20) + b"{}"}, 413, "TooLarge"),
        ("GET", "/v1/models", {"headers": {"authorization": "Bearer nobody"}}, 401, "invalid_api_key"),
        ("POST", "/v1/chat/completions", {"headers": {"authorization": ""}, "json": {}}, 401, "invalid_api_key"),
        ("POST", "/v1/completions", {"headers": {"authorization": "Bearer cm_agent"}, "json": {}}, 403, "Forbidden"),
        ("GET", "/v1/models/r1/more", {}, 404, "model_not_found"),
        ("GET", "/v1/models/r1%2Fmore", {}, 404, "model_not_found"),
        ("POST", "/v1/embeddings", {"json": {"model": "r1", "input": "x"}}, 404, "NotFound"),
        ("POST", "/v1/responses", {"headers": {"authorization": ""}, "json": {}}, 401, "invalid_api_key"),
        ("DELETE", "/v1/files/f/content", {}, 404, "NotFound"),
        ("POST", "/v1/audio/speech", {"content": b" " * (1 << 20) + b"{}"}, 413, "TooLarge"),
        ("POST", "/v1/chat/completions/", {"headers": {"authorization": ""}, "json": {}}, 401, "invalid_api_key"),
    ],
)
async def test_whoever_refuses_an_openai_client_does_it_in_openais_form(
    fresh, tmp_path, method, path, asked, status, code
):
    tokens = tmp_path / "tokens.json"
    add_token(tokens, "cm_admin", Principal("boss", EVERY_PROJECT, "admin"))
    add_token(tokens, "cm_agent", Principal("card", EVERY_PROJECT, "agent", "sn0-c00-n0"))
    async with InferServer(fresh, tokens=tokens) as server:
        answer = await server.http.request(method, path, **({"headers": {"authorization": "Bearer cm_admin"}} | asked))
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", code)
        assert error["message"]
        assert ("allow" in answer.headers) == (status == 405)
        other = await server.http.request("PATCH", "/v1/deployments", headers={"authorization": "Bearer cm_admin"})
        assert (other.status_code, other.json()["reason"]) == (405, "MethodNotAllowed")
        assert other.headers["content-type"] == "application/problem+json"


async def test_a_model_name_with_a_slash_is_not_found(serving):
    """Names of models have them elsewhere."""
    with pytest.raises(openai.NotFoundError) as refused:
        await serving.openai.models.retrieve("deepseek-ai/DeepSeek-R1")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")


async def test_health_is_answered_without_a_token_as_by_vllm(fresh, tmp_path):
    """Who looks after processes and balances load has none."""
    add_token(tmp_path / "tokens.json", "cm_admin", Principal("boss", EVERY_PROJECT, "admin"))
    async with InferServer(fresh, tokens=tmp_path / "tokens.json") as server:
        answer = await server.http.get("/health")
        assert (answer.status_code, answer.content) == (200, b"")
        assert (await server.http.get("/metrics")).status_code == 401
        asked = await server.http.get("/v1/models")
        assert (asked.status_code, asked.headers["www-authenticate"]) == (401, 'Bearer realm="cloudmatrix"')


def test_no_collection_of_the_services_own_is_refused_in_openais_form():
    own = {rule.path.split("/")[2] for rule in ACCESS.by_route.values() if rule.path.startswith("/v1/")}
    assert own & OPENAI == {"chat", "completions", "models"}


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
        ({"priority": 0.5}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"max_completion_tokens": True}, "max_completion_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"stream": True, "stream_options": 5}, "stream_options"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 2}, "logprobs"),
        ({"logprobs": 1}, "logprobs"),
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


@pytest.mark.parametrize(
    "given", [{"echo": True}, {"best_of": 2}, {"suffix": "the end"}, {"logprobs": 0}, {"logprobs": 5}]
)
async def test_what_a_text_completion_would_not_do_is_refused_by_name(serving, given):
    answer = await serving.http.post("/v1/completions", json={"model": "r1", "prompt": "x", "max_tokens": 1} | given)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, *given)


@pytest.mark.parametrize("stop", [3, ["a", 3], ["a"] * 5, {"text": "a"}])
async def test_the_refusal_of_a_stop_says_what_is_accepted(serving, stop):
    answer = await serving.http.post("/v1/completions", json={"model": "r1", "prompt": "x", "stop": stop})
    assert answer.json()["error"]["message"] == "stop: must be a string or a list of at most 4 strings"


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "image_url", "image_url": {"url": "data:,x"}}, ".type"),
        ({"type": "input_audio", "input_audio": {}}, ".type"),
        ({"type": "text", "text": 5}, ".text"),
        ({"type": "text"}, ".text"),
        ({"type": "refusal", "text": "x"}, ".refusal"),
        ({"type": 5}, ""),
        (5, ""),
    ],
)
async def test_a_part_of_a_message_that_is_no_text_is_refused_by_name(serving, part, param):
    """An answer that passed over it would be one to another question."""
    parts = [{"type": "text", "text": "Why?"}, part]
    asked = {"model": "r1", "messages": [{"role": "user", "content": parts}], "max_tokens": 1}
    answer = await serving.http.post("/v1/chat/completions", json=asked)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, f"messages[0].content[1]{param}")


async def test_parts_that_are_text_count_as_their_text(serving):
    parts = ["Why", {"type": "text", "text": "is"}, {"type": "refusal", "refusal": "it"}, {"text": "so?"}]
    counted = []
    for content in (parts, "Why is it so?"):
        asked = {"model": "r1", "messages": [{"role": "user", "content": content}], "max_tokens": 1}
        answer = await serving.http.post("/v1/chat/completions", json=asked)
        counted.append(answer.json()["usage"]["prompt_tokens"])
    assert counted == [5, 5]


@pytest.mark.parametrize("asked", [{}, {"prompt": None}, {"prompt": []}, {"prompt": [-1]}, {"prompt": ["a", "b"]}])
async def test_a_text_completion_without_one_prompt_is_refused(serving, asked):
    answer = await serving.http.post("/v1/completions", json={"model": "r1", "max_tokens": 1} | asked)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")


async def test_parameters_at_openais_bounds_and_fields_nobody_knows_are_taken(serving):
    edge = {"temperature": 2, "top_p": 0, "presence_penalty": -2, "frequency_penalty": 2.0, "n": 1, "stop": ["a"] * 4,
            "logit_bias": {"5": -100}, "seed": -1, "user": "u", "priority": -3, "stream": False, "stream_options": None,
            "tool_choice": "auto", "max_tokens": 1, "top_k": "of no concern"}  # fmt: skip
    for path, asked in (
        (
            "chat/completions",
            {"messages": [{"role": "developer", "content": "x"}], "logprobs": False, "top_logprobs": None},
        ),
        ("completions", {"prompt": "x", "logprobs": None, "best_of": 1, "echo": False, "suffix": ""}),
    ):
        answer = await serving.http.post(f"/v1/{path}", json={"model": "r1"} | edge | asked)
        assert answer.status_code == 200, answer.text


async def test_a_stream_has_all_its_tokens_however_long_charging_them_takes(serving, monkeypatch):
    """The answer goes on, and may end, while what there was of it is written down."""
    live, ahead = serving.app.state.serving.live["r1"], Charge.precharge

    async def slow(self, *given):
        await ahead(self, *given)
        while live.engine.in_flight:
            await asyncio.sleep(0.005)

    monkeypatch.setattr(Charge, "precharge", slow)
    asked = {"model": "r1", "prompt": "one two", "max_tokens": 2000, "ignore_eos": True, "stream": True}
    answer = await serving.http.post("/v1/completions", json=asked | {"stream_options": {"include_usage": True}})
    documents = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert sum(len(each["choices"]) for each in documents) == 2000
    assert documents[-1]["usage"]["completion_tokens"] == 2000


async def test_a_stream_whose_deployment_is_deleted_while_its_tokens_are_charged_ends_and_says_so(fresh, monkeypatch):
    """Nobody plays a deployment that is gone, so there is no news of it to wait for."""
    async with InferServer(fresh, scale=60.0) as server:
        await server.ensure()
        await server.until("Serving")
        service, ahead = server.app.state.serving, Charge.precharge

        async def deleted_meanwhile(self, *given):
            await ahead(self, *given)
            if "r1" in service.live:
                service.delete("r1")

        monkeypatch.setattr(Charge, "precharge", deleted_meanwhile)
        asked = {"model": "r1", "prompt": "one two", "max_tokens": 5000, "ignore_eos": True, "stream": True}
        answer = await asyncio.wait_for(server.http.post("/v1/completions", json=asked), 10)
    last = json.loads(answer.text.splitlines()[-2].removeprefix("data: "))
    assert "the deployment was deleted" in last["error"]["message"]


async def test_the_first_chunk_of_a_chat_comes_with_its_first_token(serving):
    """vLLM's does, and its load generator takes the time of that chunk for that of the first token."""
    live = serving.app.state.serving.live["r1"]
    body = {"model": "r1", "messages": [{"role": "user", "content": "Why?"}], "max_tokens": 4, "stream": True}
    asked, began = [{"type": "http.request", "body": json.dumps(body).encode()}], []
    taken: list[InferenceRequest] = []
    submit = live.submit

    def noted(*given):
        taken.append(submit(*given))
        return taken[-1]

    live.submit = noted

    async def receive():
        return asked.pop() if asked else await asyncio.Event().wait()

    async def send(message):
        if message.get("body"):
            began.append((message["body"], taken[0].first_token_at))

    path = "/v1/chat/completions"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": [],
             "query_string": b"", "http_version": "1.1", "scheme": "http", "client": ("c", 1), "server": ("infer", 80),
             "root_path": "", "asgi": {"version": "3.0", "spec_version": "2.4"}}  # fmt: skip
    await serving.app(scope, receive, send)
    first, first_token_at = began[0]
    assert first_token_at > 0
    assert first.count(b'"role":"assistant"') == 1
    assert first.index(b'"role":"assistant"') < first.index(b'{"content":"')
    assert b'"role"' not in b"".join(body for body, _ in began[1:])


async def test_a_prompt_is_not_kept_while_its_answer_is_generated(serving):
    prompt = " ".join(f"w{number}" for number in range(6000))
    body = {"model": "r1", "prompt": prompt, "max_tokens": 60_000, "ignore_eos": True}
    answering = [asyncio.create_task(serving.http.post("/v1/completions", json=body)) for _ in range(3)]
    while (await serving.statistics())["decoding"] < 3:
        await asyncio.sleep(0.01)
    # httpx is in this process too and keeps what it sent, so the bytes of bodies cannot be counted.
    prompts = [each for each in gc.get_objects() if type(each) is list and len(each) == 6000 and each[0] == "w0"]
    in_flight = (await serving.statistics())["inFlight"]
    for each in answering:
        each.cancel()
    await asyncio.wait(answering)
    assert in_flight == 3
    assert not prompts
