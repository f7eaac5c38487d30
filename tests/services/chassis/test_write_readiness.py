"""A service whose database takes no writes says so on /readyz, goes on reading, and is ready again without a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from matrixcommon.persistence import write_health
from matrixcommon.persistence.write_health import PROBE_PERIOD_WALL_S, REFUSAL_VALID_WALL_S, WriteHealth
from services.chassis.database import DatabaseEngine
from services.process_faults.database_faults import REFUSAL, allow_writes, refuse_writes
from services.resource.main import MIGRATIONS, ResourceSettings, build
from tests.clocks import FixedClock

NOT_READY = {"ready": False, "waitingFor": f"its database, which takes no writes: {REFUSAL}"}
QUOTA = "/v1/quotas/one"


class Service:
    """MatrixResource over a SQLite file."""

    def __init__(self, file: Path, http: httpx.AsyncClient) -> None:
        self.file, self.http, self.npus = file, http, 0

    async def ready(self, query: str = "") -> Any:
        answer = await self.http.get(f"/readyz{query}")
        assert answer.status_code == (200 if answer.json()["ready"] else 503)
        return answer.json()

    async def write(self) -> int:
        self.npus += 16
        return (await self.http.put(QUOTA, json={"npus": self.npus})).status_code

    async def read(self) -> int:
        return (await self.http.get(QUOTA)).status_code


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    file = tmp_path / "resource.db"
    database = DatabaseEngine(f"sqlite:///{file}")
    database.migrate(MIGRATIONS)
    app = build(ResourceSettings.load("resource", ["--state", str(tmp_path)]), FixedClock(), database)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://resource") as http:
        yield Service(file, http)
    database.close()


@pytest.fixture
def _probing_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had been written for long."""
    monkeypatch.setattr(write_health, "PROBE_PERIOD_WALL_S", 0.0)
    monkeypatch.setattr(write_health, "REFUSAL_VALID_WALL_S", 0.0)


async def test_a_refused_write_is_known_at_once_and_a_successful_one_too(service):
    assert (await service.write(), await service.ready()) == (200, {"ready": True, "waitingFor": None})
    refuse_writes(service.file)
    assert (await service.write(), await service.read()) == (503, 200)
    assert await service.ready() == NOT_READY
    assert (await service.ready("?exclude=database"))["ready"], "for load balancers: reads go on"
    allow_writes(service.file)
    assert await service.write() == 200
    assert (await service.ready())["ready"]


@pytest.mark.usefixtures("_probing_at_once")
async def test_without_writes_a_probe_finds_out(service):
    await service.write()
    refuse_writes(service.file)
    assert [await service.ready(), await service.ready()] == [NOT_READY, NOT_READY]
    allow_writes(service.file)
    assert (await service.ready())["ready"]
    etag = (await service.http.get(QUOTA)).json()["etag"]
    assert (await service.http.get("/v1/quotas")).json()["resourceVersion"] == int(etag.strip('"')), "no change"


@pytest.mark.usefixtures("_probing_at_once")
async def test_a_new_service_finds_out_before_its_first_write(service):
    refuse_writes(service.file)
    assert await service.ready() == NOT_READY


def test_a_small_probe_does_not_outweigh_a_recent_refusal():
    now, probes = [1000.0], list[float]()
    health = WriteHealth(lambda: probes.append(now[0]), lambda: now[0])
    for _ in range(10):
        health.refused(OSError("full"))
        now[0] += REFUSAL_VALID_WALL_S / 2
        assert str(health.refusal()) == "full"
    assert probes == []
    now[0] += REFUSAL_VALID_WALL_S / 2
    assert health.refusal() is None
    now[0] += PROBE_PERIOD_WALL_S
    assert health.refusal() is None
    assert len(probes) == 2
