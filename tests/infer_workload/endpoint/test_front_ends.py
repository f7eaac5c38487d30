"""Several front ends over one process with the engines: one state, and requests that outlive that process."""

import asyncio
import json
from contextlib import asynccontextmanager
from itertools import pairwise

import httpx
import openai

from services.infer.front_end import FrontEndSettings, _pass_through, build
from services.testing.asgi import StreamingASGITransport
from tests.infer_workload.conftest import InferServer

TEXT = {"model": "r1", "prompt": "one two three", "max_tokens": 8, "ignore_eos": True}


class FrontEnds:
    """Front ends in this process, before an engine that may go away."""

    def __init__(self, count=2, hold_s=60.0):
        self.engine = StreamingASGITransport(None)
        self.apps = [
            build(
                FrontEndSettings(hold_s=hold_s),
                httpx.AsyncClient(transport=self.engine, base_url="http://engine", timeout=None),
            )
            for _ in range(count)
        ]
        self.http = [
            httpx.AsyncClient(transport=StreamingASGITransport(app), base_url="http://door", timeout=30)
            for app in self.apps
        ]

    @asynccontextmanager
    async def in_front_of(self, server):
        self.engine.app, self.engine.down = server.app, False
        try:
            yield
        finally:
            self.engine.down = True
            self.engine.cut()

    @property
    def waiting(self):
        return sum(app.state.front_end.waiting for app in self.apps)


async def test_front_ends_have_one_state(fresh):
    front_ends = FrontEnds()
    async with InferServer(fresh) as server, front_ends.in_front_of(server):
        await front_ends.http[0].put("/v1/deployments/r1", json={"instance": "i"})
        await server.until("Serving")
        await front_ends.http[1].put("/v1/usage-limits/small", json={"requestsPerDay": 3})
        clients = [
            openai.AsyncOpenAI(base_url="http://door/v1", api_key="none", http_client=http, max_retries=0)
            for http in front_ends.http
        ]
        for client in clients:
            assert [model.id async for model in client.models.list()] == ["r1", "deepseek-r1"]
            stream = await client.completions.create(model="r1", prompt="x y", max_tokens=3, stream=True)
            assert [chunk.choices[0].finish_reason async for chunk in stream][-1] in ("length", "stop")
        answers = [await http.post("/v1/completions", json=TEXT) for http in front_ends.http]
        assert [answer.status_code for answer in answers] == [200, 429], "one limit for all front ends"
        assert (await front_ends.http[0].head("/metrics")).status_code == 200
        (used,) = (await front_ends.http[1].get("/v1/usage")).json()["items"]
        assert used["requests"] == 3


async def test_waiting_requests_survive_an_engine_restart(fresh):
    """kill -9 while requests wait for a deployment that is scaled to zero: they are sent again and answered, once."""
    front_ends = FrontEnds()
    async with InferServer(fresh) as first, front_ends.in_front_of(first):
        await first.ensure()
        await first.until("Serving")
        zero = {"prefillNodes": 0, "decodeNodes": 0}
        assert (await first.http.put("/v1/deployments/r1/scale", json=zero)).status_code == 200
        asked = [
            asyncio.create_task(http.post("/v1/completions", json=TEXT | {"stream": streamed}))
            for http in front_ends.http
            for streamed in (False, True)
        ]
        while first.app.state.serving.live["r1"].activation.waiting < 4:
            await asyncio.sleep(0.01)
    while front_ends.waiting < 4:
        await asyncio.sleep(0.01)
    assert not any(each.done() for each in asked)
    async with InferServer(fresh) as second, front_ends.in_front_of(second):
        while second.app.state.serving.live["r1"].activation.waiting < 4:
            await asyncio.sleep(0.01)
        assert (await second.http.get("/v1/usage")).json()["items"] == []
        await second.http.delete("/v1/deployments/r1/scale")
        answers = await asyncio.gather(*asked)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert all("[DONE]" in answer.text or answer.json()["choices"] for answer in answers)
        (used,) = (await second.http.get("/v1/usage")).json()["items"]
        assert (used["requests"], used["completionTokens"]) == (4, 32)


async def test_a_started_answer_that_is_cut_ends_with_an_error(fresh):
    front_ends = FrontEnds(count=1, hold_s=0.0)
    async with InferServer(fresh, scale=60.0) as server, front_ends.in_front_of(server):
        await server.ensure()
        await server.until("Serving")
        seen = []
        asked = TEXT | {"max_tokens": 5000, "stream": True}
        async with front_ends.http[0].stream("POST", "/v1/completions", json=asked) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: ")))
                if len(seen) == 40:
                    front_ends.engine.down = True
                    front_ends.engine.cut()
        assert 40 <= len(seen) < 5000
        assert seen[-1]["error"]["type"] == "service_unavailable_error"
        refused = await front_ends.http[0].post("/v1/completions", json=TEXT)
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "service_unavailable_error")
        assert int(refused.headers["retry-after"]) >= 1
        lost = await front_ends.http[0].get("/v1/deployments")
        assert (lost.status_code, lost.json()["reason"]) == (503, "Unavailable")
        front_ends.engine.down = False
        large = await front_ends.http[0].put("/v1/deployments/r1", content=b" " * (1 << 20) + b"{}")
        assert (large.status_code, large.json()["reason"]) == (413, "TooLarge")
        large = await front_ends.http[0].post("/v1/completions", content=b" " * (1 << 20) + b"{}")
        assert (large.status_code, large.json()["error"]["code"]) == (413, "TooLarge")
        front_ends.engine.down = True
        lost = await front_ends.http[0].get("/v1/models")
        assert (lost.status_code, lost.json()["error"]["type"]) == (503, "service_unavailable_error")


async def test_a_stream_passes_whole_wherever_its_bytes_are_cut():
    """The connection cuts where it likes, between the two line ends of an event too."""
    whole = b'data: {"choices":[1]}\n\ndata: {"choices":[2]}\n\ndata: [DONE]\n\n'

    async def pieces(*cuts):
        for start, end in pairwise((0, *cuts, len(whole))):
            yield whole[start:end]

    for cuts in [(), *((at,) for at in range(1, len(whole))), tuple(range(1, len(whole)))]:
        passed = [events async for events in _pass_through(httpx.Response(200, content=pieces(*cuts)), stream=True)]
        assert b"".join(passed) == whole, cuts
        assert all(events.endswith(b"\n\n") for events in passed)
