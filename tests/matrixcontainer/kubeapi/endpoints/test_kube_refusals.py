"""What is the client's mistake and what is the server's: each is told as what it is, and costs nobody else anything."""

import json
from typing import Any

import pytest

from matrixcontainer.kubeapi.endpoints.read import ReadHandler
from tests.matrixcontainer.kubeapi.api_session import MERGE, TABLE, WIDGETS, ApiSession, a_crd, a_widget

PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize("failure", [TypeError("no such thing"), KeyError("spec")])
async def test_server_error_is_recorded_as_internal_error(
    session: ApiSession, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def broken(*_: Any) -> None:
        raise failure

    monkeypatch.setattr(ReadHandler, "read", broken)
    reported = await session.get("/api/v1/namespaces")
    assert (reported.code, reported.body["reason"]) == (500, "InternalError")
    assert [type(failure).__name__ in text for text in session.api.core.failures] == [True]
    session.api.core.failures.clear()


async def test_too_deep_nesting_is_a_bad_request(session: ApiSession) -> None:
    await session.define(a_crd(spec={"type": "object", "x-kubernetes-preserve-unknown-fields": True}))
    await session.post(WIDGETS, a_widget(spec={}))
    deep = b'{"spec":' + b'{"a":' * 300 + b"1" + b"}" * 301
    for query in ({}, {"dryRun": "All"}):
        reported = await session.ask("PATCH", f"{WIDGETS}/one", deep, content_type=MERGE, **query)
        assert (reported.code, reported.body["reason"]) == (400, "BadRequest")


async def test_deepest_object_is_served_in_every_form(session: ApiSession) -> None:
    await session.define(a_crd(spec={"type": "object", "x-kubernetes-preserve-unknown-fields": True}))
    for depth in range(256, 0, -1):
        spec: Any = 1
        for _ in range(depth):
            spec = {"a": spec}
        body = json.dumps(a_widget(spec=spec))
        if (await session.post(WIDGETS, body.encode())).code == 201:
            break
    for accept in (TABLE, PARTIAL, "application/json", "application/yaml"):
        reported = await session.get(WIDGETS, accept=accept, includeObject="Object")
        assert (reported.code, depth > 200) == (200, True)
    async with session.watch(WIDGETS, accept=TABLE, includeObject="Object") as stream:
        assert (await stream.brief())[0] == "ADDED"
