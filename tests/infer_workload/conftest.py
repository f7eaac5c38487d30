"""MatrixInfer on a stage: its fabric is set by the test, its clock runs fast."""

from __future__ import annotations

import asyncio
import json
import shutil
import time

import httpx
import openai
import pytest

from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.metering.tables import DAY_S
from matrixcommon.model.clock import ScaledClock
from matrixcommon.model.planes import Plane
from matrixlink.fabric.condition.fabric_view import FabricView, NodePorts, PlaneView
from services.chassis.database import DatabaseEngine
from services.infer.main import MIGRATIONS, InferSettings, build

SCALE = 2000.0
NODES = healthy_fabric(8).nodes


class FakeFabricViews:
    """MatrixLink's answer, set by the test."""

    def __init__(self, nodes=NODES):
        self.generation = 1
        self.nodes = list(nodes)
        self.ub_uplink = 448.0
        self.machine = "CloudMatrix384"

    def lose(self, *nodes):
        self.nodes = [node for node in self.nodes if node not in nodes]
        self.generation += 1

    def gain(self, *nodes):
        self.nodes = sorted({*self.nodes, *nodes})
        self.generation += 1

    async def fabric_view(self, instance):
        if not self.nodes or instance == "nowhere":
            return None
        ports = {
            Plane.UB: NodePorts(uplink_gbps=[self.ub_uplink] * 7, endpoint_gbps=[28.0] * 7),
            Plane.RDMA: NodePorts(uplink_gbps=[400.0], endpoint_gbps=[25.0]),
            Plane.VPC: NodePorts(uplink_gbps=[50.0], endpoint_gbps=[50.0]),
        }
        planes = {
            plane: PlaneView(nodes=dict.fromkeys(self.nodes, current), latency_us=2.0)
            for plane, current in ports.items()
        }
        return FabricView(slice="s", instance=instance, machine=self.machine, generation=self.generation, planes=planes)


class InferServer:
    """The application, running, with clients that speak to it in one process."""

    def __init__(self, path, views=None, scale=SCALE, **settings):
        self.views = views or FakeFabricViews()
        self.database = DatabaseEngine(f"sqlite:///{path}")
        # From the start of a day: with its end come new limits, and it is most of a minute away at this pace.
        now = time.time()
        self.clock = ScaledClock(scale, now, now // DAY_S * DAY_S)
        self.app = build(InferSettings(seed=1, agents_url="", **settings), self.clock, self.database, self.views)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://infer", timeout=20)
        self.openai = openai.AsyncOpenAI(
            base_url="http://infer/v1", api_key="none", http_client=self.http, max_retries=0, timeout=20
        )

    async def __aenter__(self):
        self._lifespan = self.app.router.lifespan_context(self.app)
        await self._lifespan.__aenter__()
        return self

    async def __aexit__(self, *why):
        await self._lifespan.__aexit__(*why)

    async def ensure(self, name="r1", **fields):
        return await self.http.put(f"/v1/deployments/{name}", json={"instance": "i", **fields})

    async def until(self, state, name="r1"):
        while True:
            view = (await self.http.get(f"/v1/deployments/{name}")).json()
            if view["state"] == state:
                return view
            await asyncio.sleep(0.01)

    def now(self):
        """The number of the newest change, to look for what comes after it."""
        return self._records.latest()

    async def next_view_in(self, state, since):
        """The first view after `since` in that state, from the journal: a state may pass between two looks."""
        while True:
            for change in self._records.changes_since("deployment", since):
                if (view := json.loads(change.body))["state"] == state:
                    return view
                since = change.rv
            await self._records.changed(1.0)

    @property
    def _records(self):
        return self.app.state.serving.store.records

    async def statistics(self, name="r1", window_s=60):
        return (await self.http.get(f"/v1/deployments/{name}/statistics", params={"windowS": window_s})).json()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """An empty database with its tables, migrated once."""
    path = tmp_path_factory.mktemp("migrated") / "infer.db"
    database = DatabaseEngine(f"sqlite:///{path}")
    database.migrate(MIGRATIONS)
    database.close()
    return path


@pytest.fixture
def fresh(tmp_path, migrated):
    return shutil.copy(migrated, tmp_path / "infer.db")


@pytest.fixture
async def server(fresh):
    async with InferServer(fresh) as running:
        yield running


@pytest.fixture
async def serving(server):
    await server.ensure()
    await server.until("Serving")
    return server
