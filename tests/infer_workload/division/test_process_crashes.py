"""Deployments of one instance over lives drawn by seed, with the process ending after any of its writes: no node is two
deployments' at any moment, no request is lost without a word, and everything settles."""

from __future__ import annotations

import shutil
from contextlib import suppress
from random import Random

import pytest

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.contract.load import LoadRequest
from infer_workload.contract.roles import DrainRequest, ScaleRequest
from infer_workload.layout.division import entitlements
from infer_workload.metering.tables import Base
from infer_workload.serving.instance_nodes import claim_of, deployments_on, draining_nodes
from infer_workload.serving.service import Serving
from infer_workload.serving.store import InferStore
from matrixcommon.model.clock import FixedSpeedClock
from matrixcommon.model.errors import Conflict, InsufficientCapacity
from matrixcommon.persistence.database_session import Database
from services.chassis.database import DatabaseEngine
from tests.infer_workload.conftest import NODES, FakeFabricViews
from tests.infer_workload.loaded_deployment import accounts_for_all_requests

NAMES = ("chat", "code", "mail")
EVENTS = (
    "ask",
    "ask",
    "resize",
    "scale",
    "zero",
    "unscale",
    "end",
    "lose",
    "join",
    "drain",
    "undrain",
    "load",
    "restart",
)


class ManualClock(FixedSpeedClock):
    """A clock that is moved by hand."""

    def __init__(self):
        self.at = 1_000_000.0

    def now(self):
        return self.at


class ProcessKilled(BaseException):
    """The process is gone: whoever called hears nothing."""


class RestartableService:
    """One process, and the next one on what it had written."""

    def __init__(self, path, seed, dies_at=None):
        self.rng, self.views, self.clock = Random(seed), FakeFabricViews(), ManualClock()
        self.engine = DatabaseEngine(f"sqlite:///{path}")
        self.writes, self.dies_at = 0, dies_at
        self.restart()

    def restart(self):
        records = Database(self.engine.sessions, Base.metadata, self.clock, self.engine.shared)
        records.wrote = self.wrote
        self.serving = Serving(InferStore(records), self.clock, self.views, Random(7))
        self.serving.restore()

    def wrote(self):
        self.writes += 1
        self.check_roles_disjoint()
        if self.writes == self.dies_at:
            raise ProcessKilled

    @property
    def deployments(self):
        return deployments_on(self.serving.live.values(), "i")

    def check_roles_disjoint(self):
        with self.serving.store.records.reading() as session:
            written = [node for row in self.serving.store.deployments(session) for node in row.roles or {}]
        assert len(written) == len(set(written)), "as it is written"

    async def check_invariants(self):
        await self.serving.watchers.observe_fabric()
        used = [node for live in self.deployments for node in (live.layout.pools.nodes if live.engine else ())]
        assert len(used) == len(set(used)), "as it is used"
        for live in self.deployments:
            assert accounts_for_all_requests(live)

    async def advance(self, seconds):
        until = self.clock.at + seconds
        while self.clock.at < until:
            self.clock.at += 5.0
            for live in self.deployments:
                while not live.advance(self.clock.at):
                    pass
            await self.check_invariants()

    async def run_despite_crashes(self, action):
        """`action`, or the process ends at one of its writes and begins anew."""
        try:
            await action()
        except ProcessKilled:
            with suppress(ProcessKilled):
                self.restart()
                return
            self.restart()  # it ended while it began

    async def run_random_event(self):
        rng, kind, name = self.rng, self.rng.choice(EVENTS), self.rng.choice(NAMES)
        there, node = name in self.serving.live, self.rng.choice(NODES)
        sizes = rng.choice([{}, {}, {"prefill_npus": 8 * rng.randint(1, 2), "decode_npus": 8 * rng.randint(1, 4)}])
        with suppress(Conflict, InsufficientCapacity):
            if (kind == "ask" and not there) or (kind == "resize" and there):
                self.serving.ensure(name, DeploymentRequest(instance="i", **sizes))
            elif kind == "scale" and there:
                pools = ScaleRequest(prefill_nodes=rng.randint(1, 2), decode_nodes=rng.randint(1, 4), deadline_s=60)
                self.serving.rescale(name, pools)
            elif kind == "zero" and there:
                self.serving.rescale(name, ScaleRequest(prefill_nodes=0, decode_nodes=0))
            elif kind == "unscale" and there:
                self.serving.rescale(name, None)
            elif kind == "end" and there:
                self.serving.delete(name)
            elif kind == "lose":
                self.views.lose(node)
            elif kind == "join":
                self.views.gain(node)
            elif kind in ("drain", "undrain"):
                for each in list(self.serving.live):
                    asked = DrainRequest(nodes=[node], deadline_s=60) if kind == "drain" else None
                    self.serving.drain(each, asked)
            elif kind == "load" and there:
                asked = None if self.serving.live[name].load else LoadRequest(requests_per_second=2.0, seed=1)
                self.serving.start_load_generator(name, asked)
            elif kind == "restart":
                raise ProcessKilled
        await self.check_invariants()
        await self.advance(rng.choice([5.0, 20.0, 120.0]))

    async def advance_until_stable(self):
        """Everything is there again, and time passes."""
        for node in NODES:
            self.views.gain(node)
        for name in list(self.serving.live):
            self.serving.start_load_generator(name, None)
            self.serving.drain(name, None)
        await self.advance(1500.0)
        deployments = self.deployments
        if not deployments:
            return
        due = entitlements(NODES, [claim_of(each) for each in deployments], draining_nodes(deployments))
        for live in deployments:
            if live.state == "Idle":
                continue
            serves = live.state == "Serving"
            assert serves == bool(due[live.name]), (live.name, live.state, live.why, due)
            if serves:
                size = claim_of(live).size
                most = due[live.name] if size is None or live.handover.scale is not None else min(size, due[live.name])
                assert len(live.layout.pools.nodes) == most, (live.name, live.why, due)
            else:
                assert live.state in ("Pending", "Unavailable")
                assert "of the 8 nodes of its instance" in live.why


@pytest.fixture
def counted_writes(monkeypatch):
    """Each record keeper says when it has written."""
    wake = Database._wake

    def woken(records):
        wake(records)
        getattr(records, "wrote", lambda: None)()

    monkeypatch.setattr(Database, "_wake", woken)


@pytest.mark.parametrize("seed", range(24))
async def test_a_life_of_deployments_on_one_instance(tmp_path, migrated, counted_writes, seed):
    service = RestartableService(shutil.copy(migrated, tmp_path / "infer.db"), seed)
    for _ in range(25):
        await service.run_despite_crashes(service.run_random_event)
    await service.advance_until_stable()


@pytest.mark.parametrize("at", range(1, 40, 3))
async def test_the_process_ends_after_any_of_its_writes(tmp_path, migrated, counted_writes, at):
    """One serves, a second one takes its part, a node is lost and comes back, the first one ends."""
    service = RestartableService(shutil.copy(migrated, tmp_path / "infer.db"), 0, dies_at=at)

    async def asked(name, **sizes):
        async def ask():
            self = service.serving
            if name not in self.live:
                self.ensure(name, DeploymentRequest(instance="i", **sizes))
            await service.advance(200.0)

        await service.run_despite_crashes(ask)
        await service.run_despite_crashes(ask)

    await asked("chat")
    await asked("code", prefill_npus=8, decode_npus=16)
    assigned = {live.name: live.layout.pools.nodes for live in service.deployments}
    assert [len(nodes) for nodes in assigned.values()] == [5, 3]

    async def again():
        raise ProcessKilled

    await service.run_despite_crashes(again)
    await service.run_despite_crashes(lambda: service.advance(200.0))
    await service.run_despite_crashes(lambda: service.advance(200.0))
    assert {live.name: live.layout.pools.nodes for live in service.deployments} == assigned, (
        "the same nodes after a restart"
    )
    lost = min(assigned["code"])
    service.views.lose(lost)
    await service.run_despite_crashes(lambda: service.advance(200.0))
    service.views.gain(lost)

    async def end():
        if "chat" in service.serving.live:
            service.serving.delete("chat")
        await service.advance(300.0)

    await service.run_despite_crashes(end)
    await service.run_despite_crashes(end)
    (left,) = service.deployments
    assert (left.name, left.state, len(left.layout.pools.nodes)) == ("code", "Serving", 3)
    assert claim_of(left).assigned == frozenset(NODES), "and all that the other one had is free"
