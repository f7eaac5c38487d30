"""Every answer bears one Date: of who made it, whoever else passes it on."""

from __future__ import annotations

import httpx
from starlette.responses import PlainTextResponse

from services.chassis.http_server.emulated_date import EmulatedDate
from tests.clocks import FixedClock


async def test_an_answer_that_is_passed_on_keeps_the_one_date_that_it_has() -> None:
    engine, front_end = FixedClock(), FixedClock()
    front_end.at = engine.at + 3600
    made = EmulatedDate(PlainTextResponse("ok"), engine)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(EmulatedDate(made, front_end)), base_url="http://door"
    ) as http:
        answer = await http.get("/")
    assert answer.headers.get_list("date") == [made.date().decode()]
    own = EmulatedDate(PlainTextResponse("busy", 503), front_end)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(own), base_url="http://door") as http:
        assert (await http.get("/")).headers["date"] == own.date().decode() != made.date().decode()
