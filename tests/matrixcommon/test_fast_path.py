"""A hot route says the same whichever way a request takes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from matrixcommon.api.authorization import EDITORS, VIEWERS, AccessRules, Caller, ResourceKind, Scope
from matrixcommon.api.fast_path import FastPath
from matrixcommon.api.resource_routes import ResourceRoutes
from matrixcommon.model.errors import Conflict, NotFound
from matrixcommon.model.resource_model import ApiModel
from services.chassis.app import create_app


class Spec(ApiModel):
    size: int
    colour_name: str = "red"


class Text(ApiModel):
    text: str


class Thing(ApiModel):
    name: str
    size: int
    if_match: str | None
    tried: bool
    way: str


class Seen(ApiModel):
    name: str
    project: str
    state: str


THINGS = ResourceKind(
    "things", Scope.PROJECT, {"LIST": VIEWERS, "GET": VIEWERS, "PUT": EDITORS, "DELETE": EDITORS}, view=Seen
)
PARTS = ResourceKind("parts", Scope.PHYSICAL, {"LIST": VIEWERS, "GET": VIEWERS})
MINE = ResourceKind("mine", Scope.PROJECT, {"PUT": EDITORS})
REPORTS = ResourceKind("reports", Scope.SERVICE, {"CREATE": EDITORS})
ACCESS = AccessRules("test", (THINGS, PARTS, MINE, REPORTS))


@pytest.fixture
def client() -> httpx.AsyncClient:
    api = ResourceRoutes()

    @api.of(THINGS).change("PUT", fast=True)
    def put(name: str, body: Spec, if_match: str | None = None, validate_only: bool = False) -> Thing:
        if body.size == 409:
            raise Conflict("taken", field="size")
        if body.size == 500:
            raise ZeroDivisionError
        return Thing(name=name, size=body.size, if_match=if_match, tried=validate_only, way=body.colour_name)

    @api.of(THINGS).change("DELETE", fast=True)
    def delete(name: str, if_match: str | None = None, validate_only: bool = False) -> Text | None:
        return None if name == "a" else Text(text=name + str(if_match))

    @api.of(MINE).change("PUT", fast=True)
    def put_mine(name: str, body: Spec, caller: Caller, if_match: str | None = None) -> Text:
        return Text(text=f"{name} {body.size} {caller.principal.name} {if_match}")

    @api.of(REPORTS).change("CREATE", fast=True, status_code=202)
    def report(body: Spec, validate_only: bool = False) -> Text:
        return Text(text=f"{body.size} {body.colour_name}")

    def look(name: str) -> Seen:
        if name in ("none", "red/none"):
            raise NotFound(f"there is no {name}", field="name")
        return Seen(name=name, project="default", state="Up")

    for kind in (THINGS, PARTS):
        api.of(kind).list(lambda: [Seen(name=each, project="default", state=each.upper()) for each in "abc"])
        api.of(kind).get(look)

    app = create_app("test", "Test", [api.router], ACCESS)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://test")


REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "/v1/things/a", {"json": {"size": 1}}),
    ("PUT", "/v1/things/a", {"json": {"size": 1, "colourName": "blue"}, "headers": {"If-Match": '"3"'}}),
    ("PUT", "/v1/things/a%20b", {"json": {"size": 1}}),
    ("PUT", "/v1/things/a", {"json": {"size": "7"}}),
    ("PUT", "/v1/things/a", {"json": {"size": 409}}),
    ("PUT", "/v1/things/a", {"json": {"size": 500}}),
    ("PUT", "/v1/things/a", {"json": {"size": 1, "more": 2}}),
    ("PUT", "/v1/things/a", {"json": {"size": "much"}}),
    ("PUT", "/v1/things/a", {"json": [1]}),
    ("PUT", "/v1/things/a", {"json": {"size": 10**30}}),
    ("PUT", "/v1/things/a", {"content": b"{", "headers": {"Content-Type": "application/json"}}),
    ("PUT", "/v1/things/a", {"content": b'{"size": 1}', "headers": {"Content-Type": "text/plain"}}),
    ("PUT", "/v1/things/a", {}),
    ("PUT", "/v1/things/", {"json": {"size": 1}}),
    ("PUT", "/v1/things/a/b", {"json": {"size": 1}}),
    ("DELETE", "/v1/things/a", {}),
    ("DELETE", "/v1/things/b", {"headers": {"If-Match": "*"}}),
    ("POST", "/v1/things/a", {"json": {"size": 1}}),
    ("PUT", "/v1/mine/a", {"json": {"size": 1}}),
    ("PUT", "/v1/mine/a?project=red", {"json": {"size": 1}}),
    ("DELETE", "/v1/things/b?project=red", {}),
    ("DELETE", "/v1/things/b?project=Red", {}),
    ("PUT", "/v1/mine/a", {"json": {"size": 1}, "headers": {"If-Match": "*"}}),
    ("POST", "/v1/reports", {"json": {"size": 1}}),
    ("POST", "/v1/reports", {"json": {"size": "much"}}),
    ("POST", "/v1/reports", {}),
    ("POST", "/v1/reports/", {"json": {"size": 1}}),
    ("GET", "/v1/reports", {}),
]


@pytest.mark.parametrize(("method", "path", "more"), REQUESTS)
async def test_fast_and_ordinary_path_answer_alike(client, method, path, more):
    direct = await client.request(method, path, **more)
    ordinary = await client.request(
        method, path + ("&" if "?" in path else "?") + "validateOnly=false", **more
    )  # which takes the ordinary way
    assert direct.status_code == ordinary.status_code
    assert comparable(direct) == comparable(ordinary)
    assert direct.headers.get("content-type") == ordinary.headers.get("content-type")


def comparable(answer: httpx.Response) -> Any:
    if "json" not in answer.headers.get("content-type", ""):
        return answer.content
    return {key: value for key, value in answer.json().items() if key != "requestId"}


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/reports?project=red"), ("PUT", "/v1/things/a?validateonly=true")]
)
async def test_a_fast_route_ignores_no_parameter(client, method, path):
    answer = await client.request(method, path, json={"size": 1})
    assert (answer.status_code, answer.json()["field"]) == (400, f"query.{path.partition('?')[2].partition('=')[0]}")


READS = [
    "things/a", "things/none", "things/a%20b", "things/", "things/a/b", "things/a%2Fb", "things/a%00", "things/a?project=red",
    "things/none?project=red", "things/a?project=Red", "things/a?project=", "things/a?of=it", "parts/a", "parts/a?project=red",
    "things", "things?pageSize=2", "things?pageSize=1000", "things?pageSize=1001", "things?pageSize=0", "things?pageSize=02",
    "things?pageSize=9&filter=state%3DA", "things?pageSize=9&filter=state%21%3DA+AND+name%3Dc", "things?pageSize=9&filter=name=b",
    "things?pageSize=9&filter=nothing%3D1", "things?pageSize=9&filter=", "things?pageSize=9&filter=%00", "things?pageSize=9&filter=%FF%3D1",
    "things?pageSize=9&filter=state", "things?pageSize=9&Filter=state%3DA", "things?pageSize=9&project=red", "things?filter=state%3DA",
    "things?pageSize=9&pageSize=1", "parts?pageSize=2", "parts?pageSize=9&filter=state%3DB", "parts?pageSize=9&filter=nothing%3D1",
    "things?pageSize=9&watch=true", "things?pageSize=9&orderBy=name%20desc", "reports",
]  # fmt: skip


@pytest.mark.parametrize("path", READS)
async def test_reads_are_answered_alike_on_both_paths(client, path, monkeypatch):
    direct = await client.get(f"/v1/{path}")
    monkeypatch.setattr(FastPath, "find", lambda *asked: None)
    ordinary = await client.get(f"/v1/{path}")
    assert direct.status_code == ordinary.status_code
    assert comparable(direct) == comparable(ordinary)
    assert direct.headers.get("content-type") == ordinary.headers.get("content-type")


@pytest.mark.parametrize(
    "path", ["things/a", "things/a?project=red", "things?pageSize=1000", "parts?pageSize=9&filter=state%3DA"]
)
async def test_a_plain_read_takes_the_fast_path(client, path, monkeypatch):
    monkeypatch.setattr("fastapi.routing.APIRoute.get_route_handler", lambda route: pytest.fail(route.path))
    assert (await client.get(f"/v1/{path}")).status_code == 200


async def test_a_page_token_from_the_fast_path_continues_the_list(client):
    asked = {"pageSize": "2", "filter": "project=default"}
    first = (await client.get("/v1/things", params=asked)).json()
    rest = await client.get("/v1/things", params=asked | {"pageToken": first["nextPageToken"]})
    assert [each["name"] for each in [*first["items"], *rest.json()["items"]]] == ["a", "b", "c"]


async def test_a_read_with_a_body_is_refused(client):
    answer = await client.request("GET", "/v1/things/a", json={"size": 1})
    assert (answer.status_code, answer.json()["field"]) == (400, "body")


async def test_query_parameters_are_applied(client):
    answer = await client.put("/v1/things/a?validateOnly=true", json={"size": 1})
    assert answer.json()["tried"] is True
