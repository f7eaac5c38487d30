"""Pages: whoever walks them sees everything that stayed, once, whatever comes and goes meanwhile."""

from __future__ import annotations

from random import Random
from typing import Any, Literal

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from pydantic import Field

from matrixcommon.api.authorization import REDACTED_NAME, Caller, Principal, Rule, Scope, redact
from matrixcommon.api.client import list_all
from matrixcommon.api.declared_fields import require_field
from matrixcommon.api.filters import parse_filter
from matrixcommon.api.list_params import ListParams, Params
from matrixcommon.api.listing import names_on_page, page
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.resource_key import key_of, name_of, project_of, reference_to, resolve
from matrixcommon.model.resource_model import ApiModel


def params(**more: Any) -> ListParams:
    given = {"page_size": 7, "page_token": None, "matches": parse_filter(None), "order_by": None, "watch": False}
    return ListParams(**(given | {"resource_version": None} | more))


@pytest.mark.parametrize("order_by", [None, "size", "size desc", "name desc"])
@pytest.mark.parametrize("seed", range(5))
def test_remaining_items_are_listed_once_while_others_come_and_go(order_by, seed):
    rng = Random(seed)
    items = [{"name": f"n{at}", "project": rng.choice("ab"), "size": rng.randrange(5)} for at in range(60)]
    stays = {each["name"] for each in items[::2]}
    token, seen = None, []
    while True:
        answer = page(items, params(page_token=token, order_by=order_by))
        seen += [item["name"] for item in answer["items"]]
        token = answer.get("nextPageToken")
        if token is None:
            break
        items = [each for each in items if each["name"] in stays or rng.random() < 0.7]
        items.append({"name": f"new{len(seen)}", "project": "a", "size": rng.randrange(5)})
        rng.shuffle(items)
    assert len(seen) == len(set(seen))
    assert stays <= set(seen)


async def test_a_client_fetches_every_page():
    app = FastAPI()

    @app.get("/v1/things")
    async def things(params: Params) -> JSONResponse:
        return JSONResponse(page([{"name": f"n{at:04}"} for at in range(2_345)], params))

    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
    assert len(await list_all(http, "/v1/things")) == 2_345
    assert len(await list_all(http, "/v1/things", {"pageSize": 500}, filter="name!=n0007")) == 2_344


@pytest.mark.parametrize("size", [1, 3, 7, 8, 100])
def test_pages_of_names_equal_pages_of_the_whole_list(size):
    names = sorted(f"sn{number % 3}-c{number:02}" for number in range(8))
    token, walked = None, []
    while True:
        asked = params(page_token=token, page_size=size)
        shown, rest = names_on_page(lambda after: (name for name in names if name > after), asked)
        assert page([{"name": name} for name in names], asked) == {"items": [{"name": name} for name in shown], **rest}
        walked += shown
        if (token := rest.get("nextPageToken")) is None:
            break
    assert walked == names
    with pytest.raises(InvalidField):
        names_on_page(lambda _: names, params(page_token="WzFd"))


async def test_a_page_token_is_valid_only_for_its_own_list():
    """In another order, or of other resources, what comes after its place is anything, and often nothing."""
    app = FastAPI()

    @app.get("/v1/things")
    @app.get("/v1/others")
    async def things(params: Params) -> JSONResponse:
        return JSONResponse(page([{"name": f"n{at}", "size": -at} for at in range(9)], params))

    @app.exception_handler(InvalidField)
    async def refused(_: Any, why: InvalidField) -> JSONResponse:
        return JSONResponse({"field": why.field}, 422)

    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")
    asked = {"orderBy": "size", "filter": "name!=n8", "pageSize": 3}
    first = (await http.get("/v1/things", params=asked)).json()
    assert [each["name"] for each in first["items"]] == ["n7", "n6", "n5"]
    token = {"pageToken": first["nextPageToken"]}
    second = (await http.get("/v1/things", params=asked | token | {"pageSize": 2})).json()
    assert [each["name"] for each in second["items"]] == ["n4", "n3"]
    for path, other in (
        ("/v1/things", {"orderBy": "size desc"}),
        ("/v1/things", {"orderBy": "name"}),
        ("/v1/things", {"filter": "name!=n7"}),
        ("/v1/others", {}),
    ):
        answer = await http.get(path, params=asked | token | other)
        assert (answer.status_code, answer.json()) == (422, {"field": "pageToken"}), other


class Agent(ApiModel):
    status: str
    last_seen: str | None = None


class Shown(ApiModel):
    state: Literal["Available", "Lost"]
    agent: Agent | None = None
    past: list[Agent] = Field(default_factory=list)
    labels: dict[str, str] = Field(default_factory=dict)
    spec: dict[str, Any] = Field(default_factory=dict)


@pytest.mark.parametrize(
    "path", ["state", "agent.lastSeen", "past.status", "labels.app.kubernetes.io/name", "spec.any.thing", "agent"]
)
def test_declared_fields_can_be_filtered_and_ordered_by(path):
    parse_filter(f"{path}=a", Shown)
    require_field(Shown, path.split("."), "orderBy")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("colour", "there are agent, labels, past, spec, state"),
        ("stat", "did you mean 'state'?"),
        ("agent.last_seen", "did you mean 'agent.lastSeen'?"),
        ("past.colour", "there are past.lastSeen, past.status"),
        ("state.name", None),
        ("agent.status.code", None),
    ],
)
def test_undeclared_fields_are_refused_with_the_declared_ones(path, hint):
    """Everything would be as if it had no such value: an empty list, which is an answer."""
    for parameter, ask in (
        ("filter", lambda: parse_filter(f"state=Lost AND {path}=a", Shown)),
        ("orderBy", lambda: require_field(Shown, path.split("."), "orderBy")),
    ):
        with pytest.raises(InvalidField, match=f"no field '{path}'") as refused:
            ask()
        assert refused.value.field == parameter
        assert refused.value.message.partition("; ")[2] == (hint or "")


def test_holders_are_redacted_before_filtering():
    rule = Rule("GET", "/v1/nodes", "nodes", frozenset({"viewer"}), Scope.PHYSICAL, False, holders=("allocation",))
    caller = Caller(Principal("eve", "red", "viewer"), rule)
    node = {"name": "sn0-c00-n0", "allocation": "blue/a", "message": "blue/a and blue/ab"}
    assert params(caller=caller, matches=parse_filter("allocation=blue/a")).show(node) is None
    assert params(caller=caller).show(node) == {
        "name": "sn0-c00-n0",
        "allocation": "(another project's)",
        "message": "(another project's) and blue/ab",
    }
    assert redact(node, ["allocation"], lambda project: project == "blue") is node


def test_names_are_redacted_as_keys_of_a_mapping() -> None:
    run = {"instances": ["red/x", "blue/y"], "definition": {"given": {"red/x": {"nodes": 1}, "blue/y": {"nodes": 2}}}}
    shown = redact(run, ["instances", "given"], lambda project: project == "blue")
    assert shown["definition"]["given"] == {REDACTED_NAME: {"nodes": 1}, "blue/y": {"nodes": 2}}


@pytest.mark.parametrize(("project", "name"), [("default", "a"), ("red", "a")])
def test_a_key_is_a_name_in_a_project(project, name):
    key = key_of(project, name)
    assert (project_of(key), name_of(key)) == (project, name)
    assert resolve(name, project) == key
    assert resolve(reference_to(key, project), project) == key
    assert resolve(reference_to(key, "other"), "other") == key
