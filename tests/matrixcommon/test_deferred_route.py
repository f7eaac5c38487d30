"""A route that is worked out when it is asked answers, refuses and is described like one that was at the start."""

from __future__ import annotations

import copy
from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel

from matrixcommon.api.deferred_route import DeferredRoute


class Thing(BaseModel):
    size: int


async def require_colour(request: Request, colour: Annotated[str, Query(max_length=5)] = "red") -> str:
    return f"{colour} {request.scope['route'].path}"


def router(route_class: type[APIRoute]) -> APIRouter:
    api = APIRouter(prefix="/v1", dependencies=[Depends(require_colour)], route_class=route_class)

    @api.get("/things/{name}", response_model=Thing)
    async def get_thing(name: str) -> Any:
        return {"size": len(name), "secret": 1}

    @api.put("/things/{name}", status_code=201)
    async def put_thing(name: str, body: Thing, seen: Annotated[str, Depends(require_colour)]) -> dict[str, Any]:
        return {"name": name, "size": body.size, "seen": seen}

    @api.post("/things/{name}:grow")
    async def grow_thing(name: str, by: Annotated[int, Query(ge=1)]) -> dict[str, Any]:
        return {"name": name, "by": by}

    return api


def app_of(route_class: type[APIRoute]) -> FastAPI:
    app = FastAPI()
    app.router.routes.extend(router(route_class).routes)
    return app


REQUESTS = [
    ("GET", "/v1/things/abc", None),
    ("GET", "/v1/things/abc?colour=purple", None),
    ("PUT", "/v1/things/abc?colour=blue", {"size": 3}),
    ("PUT", "/v1/things/abc", {"size": "large"}),
    ("POST", "/v1/things/abc:grow?by=2", None),
    ("POST", "/v1/things/abc:grow?by=0", None),
    ("POST", "/v1/things/abc:grow", None),
    ("DELETE", "/v1/things/abc", None),
    ("HEAD", "/v1/things/abc", None),
    ("GET", "/v1/nothing", None),
    ("GET", "/v1/things/abc/", None),
]


async def send(app: FastAPI, method: str, path: str, body: Any) -> tuple[int, Any, Any]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        answer = await http.request(method, path, json=body)
        return answer.status_code, answer.text, {name: answer.headers.get(name) for name in ("allow", "location")}


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
async def test_a_deferred_route_answers_like_an_ordinary_one(method: str, path: str, body: Any) -> None:
    deferred, others = app_of(DeferredRoute), app_of(APIRoute)
    expected = await send(others, method, path, body)
    assert await send(deferred, method, path, body) == expected
    assert await send(deferred, method, path, body) == expected, "and so it does again"


def test_a_deferred_route_has_the_same_openapi_description() -> None:
    assert app_of(DeferredRoute).openapi() == app_of(APIRoute).openapi()


async def test_an_unused_route_is_not_analysed() -> None:
    app = app_of(DeferredRoute)
    get, put, grow = (each for each in app.router.routes if isinstance(each, DeferredRoute))
    assert await send(app, "PUT", "/v1/things/abc", {"size": 3}) != ()
    assert [bool("dependant" in vars(each)) for each in (get, put, grow)] == [False, True, False]
    assert (get.path, get.methods, [each.dependency for each in get.dependencies]) == (
        "/v1/things/{name}",
        {"GET"},
        [require_colour],
    )


def test_unknown_attributes_raise_attribute_error() -> None:
    route = next(each for each in app_of(DeferredRoute).router.routes if isinstance(each, DeferredRoute))
    assert not hasattr(route, "colour")
    assert route.dependant.path_params[0].name == "name", "and it is worked out nevertheless"
    assert copy.copy(route) == route
