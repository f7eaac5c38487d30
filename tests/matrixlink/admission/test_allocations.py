"""Slices take nodes of their allocation and no others, as MatrixResource says; while it is away they are admitted."""

import httpx
import pytest

from matrixcommon.model.errors import InvalidField
from matrixresource.client import ResourceClient
from services.chassis.database import DatabaseEngine
from services.link import main as link
from services.link.allocations import CACHED_S, ReservedNodes
from services.resource.main import MIGRATIONS, ResourceSettings, build
from tests.clocks import FixedClock
from tests.matrixlink.client import FullLinkClient
from tests.matrixlink.fleet import NODES, slice_request


class UnavailableTransport(httpx.AsyncBaseTransport):
    """MatrixResource over ASGI, and a switch that takes it away."""

    def __init__(self, app):
        self._there = httpx.ASGITransport(app=app)
        self.away = False

    async def handle_async_request(self, request):
        if self.away:
            raise httpx.ConnectError("nobody listens")
        return await self._there.handle_async_request(request)


@pytest.fixture
async def reserved(tmp_path):
    """An allocation `a` of two nodes of four that are up: the port, the way to MatrixResource, the clock, the nodes."""
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'resource.db'}")
    database.migrate(MIGRATIONS)
    clock = FixedClock()
    way = UnavailableTransport(build(ResourceSettings(state=tmp_path), clock, database))
    http = httpx.AsyncClient(transport=way, base_url="http://resource")
    reported = {"epoch": 1, "sequence": 1, "leaseS": 60, "status": "Clean", "generation": 1}
    answer = await http.post("/v1/node-reports", json={"reports": [reported | {"node": node} for node in NODES]})
    assert all(each["accepted"] for each in answer.json()["answers"])
    answer = await http.put("/v1/allocations/a", json={"nodes": 2})
    assert answer.status_code == 200, answer.text
    yield ReservedNodes(ResourceClient(http), clock), way, clock, [m["node"] for m in answer.json()["members"]]
    database.close()


async def test_members_are_nodes_of_the_allocation(reserved):
    port, _, _, nodes = reserved
    await port.check("a", nodes)
    outside = next(node for node in NODES if node not in nodes)
    with pytest.raises(InvalidField) as refused:
        await port.check("a", [nodes[0], outside])
    assert (refused.value.field, outside in refused.value.message) == ("members[1]", True)
    with pytest.raises(InvalidField) as refused:
        await port.check("nobody", nodes)
    assert refused.value.field == "allocation"


async def test_cached_members_are_accepted_for_a_while_but_never_refused_from_cache(reserved):
    port, way, clock, nodes = reserved
    await port.check("a", nodes)
    await port.check("a", nodes[:1])
    assert port.counters["asked"] == 1
    clock.at += CACHED_S + 1
    way.away = True
    await port.check("a", nodes)
    await port.check("a", ["sn0-c11-n3"])
    assert dict(port.counters) == {"asked": 3, "away": 2}


async def test_foreign_nodes_are_refused_without_a_change(reserved, tmp_path):
    port, _, clock, nodes = reserved
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'link.db'}")
    database.migrate(link.MIGRATIONS)
    app = link.build(link.LinkSettings(state=tmp_path), clock, database, port._resource)
    client = FullLinkClient(httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://link"))
    with pytest.raises(InvalidField) as refused:
        await client.admit("a-ub", slice_request(members=NODES))
    assert refused.value.field.startswith("members[")
    assert await client.slices() == []
    assert (await client.admit("a-ub", slice_request(members=nodes))).state == "Admitted"
