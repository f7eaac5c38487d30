"""The way out to other services: the URL that is asked, and what is left out of an answer."""

from __future__ import annotations

import httpx
import pytest

from matrixcommon.api import client
from matrixcommon.api.client import call
from services.chassis.http import http_client


@pytest.fixture
def seen() -> list[httpx.Request]:
    return []


@pytest.fixture
def http(seen: list[httpx.Request]) -> httpx.AsyncClient:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={}, headers={"set-cookie": "of=theirs"})

    return http_client("http://there/below", transport=httpx.MockTransport(answer))


async def test_parameters_that_look_alike_are_told_apart_however_often_they_are_asked(http, seen):
    for _ in range(2):
        for value in (True, "True", 1, "1", None, ["a", "b"]):
            await call(http, "GET", "/v1/nodes", params={"of": value})
        await call(http, "GET", "/v1/nodes?project=red")
        await call(http, "PUT", "/v1/nodes")
    asked = [str(request.url).removeprefix("http://there/below/v1/nodes") for request in seen]
    assert asked == ["?of=true", "?of=True", "?of=1", "?of=1", "?of=", "?of=a&of=b", "?project=red", ""] * 2


async def test_clients_of_several_services_ask_their_own(http, seen):
    async with http_client("http://elsewhere", transport=http._transport) as other:
        for each in (http, other, http):
            await call(each, "GET", "/v1/nodes")
    assert [request.url.host for request in seen] == ["there", "elsewhere", "there"]


async def test_of_many_urls_some_are_remembered(http, seen, monkeypatch):
    monkeypatch.setattr(client, "URLS_MAX", 4)
    monkeypatch.setattr(client, "_urls", {})
    for number in range(20):
        await call(http, "GET", f"/v1/nodes/n{number}")
        assert len(client._urls) <= 4
    assert [request.url.path for request in seen] == [f"/below/v1/nodes/n{number}" for number in range(20)]


async def test_a_cookie_of_an_answer_is_never_sent_back(http, seen):
    await call(http, "GET", "/v1/nodes")
    await call(http, "GET", "/v1/nodes")
    assert [request.headers.get("cookie") for request in seen] == [None, None]
