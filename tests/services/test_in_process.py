"""A service that is a client of its own application."""

from __future__ import annotations

from matrixcommon.api.authorization import AccessRules
from matrixcommon.model.fencing import FENCE, Fence
from services.chassis.app import create_app
from services.chassis.http import InProcessTransport, http_client
from services.chassis.logging import REQUEST_ID


async def test_who_asks_its_own_application_still_acts_in_the_same_leaders_name() -> None:
    """The edge sets for each request in whose name it is made: that is the request's, and not the caller's."""
    app = create_app("x", "X", [], AccessRules("X", ()))
    leader = Fence("x", 3)
    FENCE.set(leader)
    REQUEST_ID.set("mine")
    async with http_client("http://x", transport=InProcessTransport(app)) as own:
        assert (await own.get("/healthz")).text == "ok"
        assert (await own.get("/nothing")).status_code == 404
    assert FENCE.get() is leader
    assert REQUEST_ID.get() == "mine"
