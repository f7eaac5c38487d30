"""A request that fails for a reason nobody foresaw is answered, counted and named like any other."""

from __future__ import annotations

import sqlite3
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from sqlalchemy.exc import DBAPIError, IntegrityError, InternalError, OperationalError

from matrixcommon.api.authorization import AccessRules
from matrixcommon.model.resource_model import ApiModel
from services.chassis.app import create_app
from services.chassis.problems import to_matrix_error
from services.testing.asgi import StreamingASGITransport


async def fails() -> None:
    raise RuntimeError("nobody foresaw this")


async def fails_midway() -> StreamingResponse:
    async def pieces() -> object:
        yield b"one"
        raise RuntimeError("nor this")

    return StreamingResponse(pieces())  # type: ignore[arg-type]


@pytest.fixture
def client() -> httpx.AsyncClient:
    router = APIRouter()
    router.add_api_route("/v1/things", fails, methods=["POST"])
    router.add_api_route("/v1/streams", fails_midway, methods=["GET"])
    access = AccessRules("Test", ())
    access.check = lambda routers: None  # type: ignore[method-assign]
    app = create_app("test", "Test", [router], access)
    return httpx.AsyncClient(transport=StreamingASGITransport(app), base_url="http://test")


async def test_it_is_a_problem_with_its_id_and_trace_and_is_counted(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/things", headers={"x-request-id": "mine"})
    assert (answer.status_code, answer.json()["reason"]) == (500, "InternalError")
    assert answer.headers["x-request-id"] == answer.json()["requestId"] == "mine"
    assert "traceparent" in answer.headers
    counted = 'cloudmatrix_http_requests_total{method="POST",status="500"} 1.0'
    assert counted in (await client.get("/metrics")).text


async def test_what_has_begun_to_be_answered_gets_no_second_answer(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/streams")
    assert (answer.status_code, answer.content) == (200, b"one")


@pytest.mark.parametrize("sent", [[], [b'{"reason": ']])
async def test_what_did_not_arrive_whole_is_not_done(sent: list[bytes]) -> None:
    """A body that may be left out would else be taken for one that was."""
    done: list[str] = []
    router = APIRouter()
    router.add_api_route("/v1/things/{name}:close", lambda name: done.append(name), methods=["POST"])
    access = AccessRules("Test", ())
    access.check = lambda routers: None  # type: ignore[method-assign]
    arriving = iter([*({"type": "http.request", "body": part, "more_body": True} for part in sent)])
    answered: list[Any] = []

    async def receive() -> Any:
        return next(arriving, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        answered.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/v1/things/a:close", "raw_path": b"/v1/things/a:close",
        "query_string": b"", "headers": [(b"content-length", b"24"), (b"content-type", b"application/json")],
    }  # fmt: skip
    await create_app("test", "Test", [router], access)(scope, receive, send)
    assert (done, answered[0]["status"]) == ([], 400)


class Part(ApiModel):
    cpu_gib: int = 0


class Thing(ApiModel):
    nodes: int = 0
    parts: list[Part] | None = None


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"node": 1}, "node: unknown field; did you mean 'nodes'?"),
        ({"speed": 1}, "speed: unknown field; there are nodes, parts"),
        ({"parts": [{}, {"cpuGb": 1}]}, "parts[1].cpuGb: unknown field; did you mean 'parts.cpuGib'?"),
        ({"parts": [{"x": 1}]}, "parts[0].x: unknown field; there are parts.cpuGib"),
    ],
)
async def test_an_unknown_field_is_answered_with_those_that_there_are(body: Any, detail: str) -> None:
    async def put(thing: Thing) -> None: ...

    router = APIRouter()
    router.add_api_route("/v1/things", put, methods=["PUT"])
    access = AccessRules("Test", ())
    access.check = lambda routers: None  # type: ignore[method-assign]
    transport = StreamingASGITransport(create_app("test", "Test", [router], access))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.put("/v1/things", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)


class StandbyRefusal(Exception):
    """As psycopg tells that a standby takes no writes."""

    sqlstate = "25006"


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        (OperationalError("INSERT", None, Exception("database is locked")), 503),
        (IntegrityError("INSERT", None, sqlite3.IntegrityError("attempt to write a readonly database")), 503),
        (InternalError("INSERT", None, StandbyRefusal("cannot execute INSERT in a read-only transaction")), 503),
        (IntegrityError("INSERT", None, sqlite3.IntegrityError("UNIQUE constraint failed: nodes.name")), 500),
    ],
    ids=lambda value: str(getattr(value, "orig", value)),
)
def test_a_database_that_takes_no_writes_is_away_and_not_our_fault(wrong: DBAPIError, status: int) -> None:
    assert to_matrix_error(wrong, "/v1/things").status == status
