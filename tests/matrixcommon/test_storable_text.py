"""A body with a text that no database keeps is refused with its field, whichever way it takes and however it is written."""

from __future__ import annotations

import json

import httpx
import pytest

from matrixcommon.api.authorization import EDITORS, AccessRules, ResourceKind, Scope
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.resource_model import ApiModel
from services.chassis.app import create_app


class Spec(ApiModel):
    reason: str = ""
    labels: dict[str, str] = {}
    documents: list[dict[str, object]] = []


THINGS = ResourceKind("things", Scope.PROJECT, {"PUT": EDITORS})
SLOW = ResourceKind("slow", Scope.PROJECT, {"PUT": EDITORS})


@pytest.fixture
def client() -> httpx.AsyncClient:
    api = ResourceRoutes()

    @api.of(THINGS).change("PUT", fast=True)
    def put_fast(name: str, body: Spec, if_match: str | None = None) -> Spec:
        return body

    @api.of(SLOW).change("PUT")
    def put(name: str, body: Spec) -> Spec:
        return body

    app = create_app("test", "Test", [api.router], AccessRules("test", (THINGS, SLOW)))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def put(client: httpx.AsyncClient, kind: str, content: bytes) -> httpx.Response:
    return await client.put(f"/v1/{kind}/a", content=content, headers={"Content-Type": "application/json"})


REFUSED = [
    (rb'{"reason": "a\u0000"}', "reason"),
    (rb'{"reason": "\uD800 alone"}', "reason"),
    (rb'{"reason": "the other half \udfff"}', "reason"),
    (rb'{"labels": {"a": "b", "key\u0000": ""}}', "labels"),
    (rb'{"documents": [{}, {"deep": [1, {"er": "\u0000"}]}]}', "documents[1].deep[1].er"),
    (b'{"reason": "\xed\xa0\x80 in bytes"}', "reason"),
    (json.dumps({"reason": "\0"}).encode("utf-16"), "reason"),
]
ACCEPTED = [
    (rb'{"reason": "\ud83d\ude00"}', "\U0001f600"),
    (rb'{"reason": "\\u0000"}', "\\u0000"),
    (rb'{"reason": "\\\\ud800"}', "\\\\ud800"),
    ('{"reason": "\ud55c\uad6d \U0001f600"}'.encode(), "\ud55c\uad6d \U0001f600"),
    (json.dumps({"reason": "wide"}).encode("utf-16"), "wide"),
]


@pytest.mark.parametrize("kind", ["things", "slow"])
@pytest.mark.parametrize(("content", "field"), REFUSED)
async def test_unstorable_texts_are_refused(client, kind, content, field) -> None:
    answer = await put(client, kind, content)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


@pytest.mark.parametrize("kind", ["things", "slow"])
@pytest.mark.parametrize(("content", "kept"), ACCEPTED)
async def test_similar_but_storable_texts_are_accepted(client, kind, content, kept) -> None:
    answer = await put(client, kind, content)
    assert (answer.status_code, answer.json()["reason"]) == (200, kept), answer.text


@pytest.mark.parametrize("kind", ["things", "slow"])
@pytest.mark.parametrize("depth", [100, 900, 5_000, 200_000])
async def test_a_deeply_nested_document_is_answered(client, kind, depth) -> None:
    deep = b'{"a":' * depth + rb'"\u0000"' + b"}" * depth
    answer = await put(client, kind, b'{"documents": [' + deep + b"]}")
    assert answer.status_code in (400, 413, 422), answer.text
