"""What is longer than the layout holds is refused as what can be mended by asking for less, whenever that shows: at once,
or once the layout has changed under a request that waits; and whoever names a model is served by a deployment that holds
what it asks for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.infer_workload.conftest import NODES, FakeFabricViews, InferServer

LONG = {"prompt": "one two", "max_tokens": 150_000, "ignore_eos": True}
"""More than the one decode node of a layout of two holds, and less than the two of a layout of three."""


async def in_flight(server: InferServer) -> Any:
    """The one request that decodes."""
    live = server.app.state.serving.live["r1"]
    while True:
        for request in list(live.engine.in_flight.values()):
            if request.state == "Decoding":
                return request
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("path", "asked", "field"), [
    ("completions", {}, "prompt"),
    ("chat/completions", {"messages": [{"role": "user", "content": "Why?"}]}, "messages"),
])  # fmt: skip
async def test_a_request_too_long_for_the_layout_it_is_left_with_is_refused_as_at_once(
    fresh: Any, path: str, asked: dict[str, Any], field: str, streamed: bool
) -> None:
    views = FakeFabricViews(NODES[:3])
    async with InferServer(fresh, views, scale=200.0) as server:
        await server.ensure()
        await server.until("Serving")
        body = {"model": "r1", "stream": streamed} | LONG | asked
        answering = asyncio.ensure_future(server.http.post(f"/v1/{path}", json=body))
        request = await in_flight(server)
        views.lose(request.die.node)
        answer = await asyncio.wait_for(answering, 20)
        at_once = await server.http.post(f"/v1/{path}", json=body)
    assert (at_once.status_code, at_once.json()["error"]["code"]) == (400, "context_length_exceeded")
    if streamed:
        assert json.loads(answer.text.splitlines()[-2].removeprefix("data: "))["error"] == at_once.json()["error"]
    else:
        assert (answer.status_code, answer.json()) == (400, at_once.json())
        assert "retry-after" not in answer.headers
    assert at_once.json()["error"]["param"] == field


async def test_a_model_takes_what_any_of_its_deployments_holds(fresh: Any) -> None:
    class OneIsSmaller(FakeFabricViews):
        async def fabric_view(self, instance: str) -> Any:
            self.nodes = list(NODES[:2] if instance == "small" else NODES[2:6])
            return await super().fabric_view(instance)

    async with InferServer(fresh, OneIsSmaller()) as server:
        for name in ("small", "large"):
            await server.ensure(name, instance=name)
            await server.until("Serving", name)
        lengths = {each["id"]: each["max_model_len"] for each in (await server.http.get("/v1/models")).json()["data"]}
        assert lengths["small"] < 12_000 < lengths["large"] == lengths["deepseek-r1"]
        body = LONG | {"model": "deepseek-r1", "max_tokens": 12_000}
        answers = await asyncio.gather(*(server.http.post("/v1/completions", json=body) for _ in range(4)))
        assert [answer.status_code for answer in answers] == [200] * 4
        refused = await server.http.post("/v1/completions", json=body | {"max_tokens": 200_000})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert f"is {lengths['deepseek-r1']} tokens" in refused.json()["error"]["message"]


async def test_a_chat_that_names_no_length_is_answered_as_far_as_there_is_room(fresh: Any) -> None:
    """As vLLM does: the answer ends for its length, and is refused only where the prompt alone leaves no room."""
    async with InferServer(fresh, FakeFabricViews(NODES[:2])) as server:
        await server.ensure()
        await server.until("Serving")
        limit = (await server.http.get("/v1/models/r1")).json()["max_model_len"]

        async def chat(tokens: int, **more: Any) -> Any:
            content = " ".join("w" for _ in range(tokens - 1))  # the role is a token too
            body = {"model": "r1", "messages": [{"role": "user", "content": content}]}
            return await server.http.post("/v1/chat/completions", json=body | more)

        for room in (3, 1):
            answer = (await chat(limit - room)).json()
            assert answer["usage"] == answer["usage"] | {"completion_tokens": room, "total_tokens": limit}
            assert answer["choices"][0]["finish_reason"] == "length"
        refused = await chat(limit)
        asked_for_more = await chat(limit - 3, max_tokens=4)
    for answer in (refused, asked_for_more):
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert f"{limit + 1} ({limit} in the prompt, 1 for the answer)" in refused.json()["error"]["message"]


async def test_how_much_a_model_takes_is_not_known_before_it_is_laid_out(fresh: Any) -> None:
    """None, as vLLM has it where it does not know; a client takes 0 for a limit."""
    async with InferServer(fresh) as server:
        await server.ensure(instance="nowhere")
        listed = (await server.http.get("/v1/models")).json()["data"]
    assert [each["max_model_len"] for each in listed] == [None, None]
