"""A parameter that is one value may be given once, one of several as often as there are values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Query
from fastapi.routing import APIRouter

from matrixcommon.api.query_parameters import QueryParameters
from services.chassis.problems import install_error_handlers

SEVERAL = (list[str], tuple[str, ...], set[str], Sequence[str], list[str] | None)
ONE = (str, str | None)


@pytest.mark.parametrize(
    ("annotation", "status"), [*((each, 200) for each in SEVERAL), *((each, 400) for each in ONE)], ids=str
)
async def test_no_repeated_value_is_ignored(annotation: Any, status: int) -> None:
    async def handler(which: Any) -> dict[str, Any]:
        return {"which": sorted(which)}

    handler.__annotations__["which"] = Annotated[annotation, Query(max_length=9)]
    parameters = QueryParameters()
    router = APIRouter(dependencies=[Depends(parameters.refuse_unknown)])
    router.add_api_route("/v1/things", handler, methods=["GET"])
    app = FastAPI()
    app.include_router(router)
    install_error_handlers(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answer = await client.get("/v1/things?which=a&which=b")
    assert answer.status_code == status, answer.text
    assert answer.json().get("which") == (["a", "b"] if status == 200 else None)
