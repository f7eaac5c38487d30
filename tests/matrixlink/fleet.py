"""A stack for the tests of MatrixLink: the service over ASGI on its own SQLite file, and a fleet of real link agents
whose hardware the tests break. Time stands until it is moved; nothing sleeps."""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from random import Random

import httpx

from matrixcommon.model.hardware_names import NodeName
from matrixlink.agent import AgentProbing, LinkAgent, link_stages
from matrixlink.contract.slices import SliceRequest
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.probing.plan import probe_plan
from matrixresource.agent.hardware import EmulatedNode
from matrixresource.topology import Supernode
from services.chassis.database import DatabaseEngine
from services.link.main import MIGRATIONS, LinkSettings, build
from services.node_agent.network.probe_network import EmulatedProbeTransport
from services.node_agent.network.traffic import EmulatedTraffic
from tests.clocks import FixedClock, StandingClock
from tests.databases import close_whole
from tests.matrixlink.client import FullLinkClient

NODES = [f"sn0-c00-n{n}" for n in range(4)]


def slice_request(plane="ub", members=None, **changes) -> SliceRequest:
    """A sound spec; say only what matters."""
    terms = {"allocation": "a", "instance": "a", "plane": plane, "members": members or NODES, "qos_class": "Guaranteed"}
    floor = {"ub": 100.0, "rdma": 20.0, "vpc": 2.0}[plane]
    if terms["qos_class"] != "BestEffort" and changes.get("qos_class") != "BestEffort":
        terms["floor_gbps_per_npu"] = floor
    return SliceRequest.model_validate(terms | changes)


@functools.cache
def migrated_database() -> Path:
    """An empty database at the newest revision, made once."""
    path = Path(tempfile.mkdtemp()) / "link.db"
    database = DatabaseEngine(f"sqlite:///{path}")
    database.migrate(MIGRATIONS)
    close_whole(database)
    return path


class LinkStack:
    """The service, its client and the agents. `restart()` is a new process over the same database."""

    def __init__(self, tmp_path, nodes=None):
        self.clock = FixedClock()
        self.standing = StandingClock(self.clock)
        self.url = f"sqlite:///{tmp_path / 'link.db'}"
        shutil.copy(migrated_database(), tmp_path / "link.db")
        self.settings = LinkSettings(state=tmp_path, lease_grace=60)
        built = Fabric([Supernode()]).built
        self.hardware = {name: EmulatedNode(NodeName(name)) for name in nodes or NODES}
        probe_transport, plan = EmulatedProbeTransport(self.hardware, Supernode().spec), probe_plan(Supernode())
        self.traffic = EmulatedTraffic(self.hardware, Supernode().spec, self.clock)
        self.agents = {
            name: LinkAgent(
                node, built, link_stages(), self.clock, Random(name), lease_s=30.0,
                probing=AgentProbing(name, lambda: plan, probe_transport), meters=self.traffic,
            )
            for name, node in self.hardware.items()
        }  # fmt: skip
        self.silent: set[str] = set()
        self.restart()

    @property
    def runner(self):
        return self.workflows._action.__self__

    async def carry(self):
        """Workflows, until each has ended or waits for something."""
        self.runner.nudge()
        await self.workflows.step()
        while self.runner.busy:
            await asyncio.sleep(0)

    def restart(self):
        self.database = DatabaseEngine(self.url)
        self.app = build(self.settings, self.standing, self.database)
        transport = httpx.ASGITransport(app=self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://link")
        self.client = FullLinkClient(self.http)
        self.health = self.app.state.watchers["link-health"]
        self.workflows = self.app.state.watchers["workflow-resumption"]

    def passes(self, seconds):
        """Time in which the process runs; what it sleeps through (a jump of the clock) is no silence of others."""
        pauses = self.health._action.__self__._pauses
        for _ in range(seconds):
            self.clock.at += 1
            pauses.record_beat()

    def slice_controller(self):
        return self.health._action.__self__._slice_controller

    def remembering(self):
        """What keeps something of nodes in memory: what the watcher of departed supernodes tells."""
        return self.app.state.watchers["departed"]._action.__self__._memories

    async def work(self):
        """Every agent that can works off its specs."""
        for name, agent in self.agents.items():
            if name not in self.silent:
                await agent.drain_queue()

    async def report(self):
        """Everybody who is not silent reports and takes up the answer."""
        speaking = [agent for name, agent in self.agents.items() if name not in self.silent]
        answers = await self.client.report([agent.report() for agent in speaking])
        for agent, answer in zip(speaking, answers, strict=True):
            assert answer.accepted, answer
            agent.apply_answer(answer.desired)
        return answers

    async def settle(self, rounds=3):
        """Reports, work and the health watcher until everybody agrees."""
        for _ in range(rounds):
            await self.report()
            await self.work()
            await self.health.step()
        await self.report()
        await self.carry()

    async def active(self, name="a-ub", request=None):
        await self.client.admit(name, request or slice_request())
        await self.client.program(name)
        await self.settle()
        view = await self.client.find_slice(name)
        assert view.state == "Active", view
        return view

    @contextmanager
    def quiet(self, *nodes):
        self.silent |= set(nodes)
        yield
        self.silent -= set(nodes)
