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
from infer_workload.layout.division import entitled
from infer_workload.metering.tables import Base
from infer_workload.serving.instance_nodes import claim_of, leaving, on_instance
from infer_workload.serving.service import Serving
from infer_workload.serving.store import InferStore
from matrixcommon.model.clock import Steady
from matrixcommon.model.errors import Conflict, InsufficientCapacity
from matrixcommon.persistence.database_session import Database
from services.chassis.database import DatabaseEngine
from tests.infer_workload.conftest import NODES, Views
from tests.infer_workload.loaded import everything_is_accounted_for

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


class Hand(Steady):
    """A clock that is moved by hand."""

    def __init__(self):
        self.at = 1_000_000.0

    def now(self):
        return self.at


class Ended(BaseException):
    """The process is gone: whoever called hears nothing."""


class Life:
    """One process, and the next one on what it had written."""

    def __init__(self, path, seed, dies_at=None):
        self.rng, self.views, self.clock = Random(seed), Views(), Hand()
        self.engine = DatabaseEngine(f"sqlite:///{path}")
        self.writes, self.dies_at = 0, dies_at
        self.begin()

    def begin(self):
        records = Database(self.engine.sessions, Base.metadata, self.clock, self.engine.shared)
        records.wrote = self.wrote
        self.serving = Serving(InferStore(records), self.clock, self.views, Random(7))
        self.serving.restore()

    def wrote(self):
        self.writes += 1
        self.each_node_is_ones()
        if self.writes == self.dies_at:
            raise Ended

    @property
    def lives(self):
        return on_instance(self.serving.live.values(), "i")

    def each_node_is_ones(self):
        with self.serving.store.records.reading() as session:
            written = [node for row in self.serving.store.deployments(session) for node in row.roles or {}]
        assert len(written) == len(set(written)), "as it is written"

    async def looks(self):
        await self.serving.watchers.follow_fabric()
        used = [node for live in self.lives for node in (live.layout.pools.nodes if live.engine else ())]
        assert len(used) == len(set(used)), "as it is used"
        for live in self.lives:
            assert everything_is_accounted_for(live)

    async def plays(self, seconds):
        until = self.clock.at + seconds
        while self.clock.at < until:
            self.clock.at += 5.0
            for live in self.lives:
                while not live.play(self.clock.at):
                    pass
            await self.looks()

    async def survives(self, happens):
        """`happens`, or the process ends at one of its writes and begins anew."""
        try:
            await happens()
        except Ended:
            with suppress(Ended):
                self.begin()
                return
            self.begin()  # it ended while it began

    async def event(self):
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
                raise Ended
        await self.looks()
        await self.plays(rng.choice([5.0, 20.0, 120.0]))

    async def settles(self):
        """Everything is there again, and time passes."""
        for node in NODES:
            self.views.gain(node)
        for name in list(self.serving.live):
            self.serving.start_load_generator(name, None)
            self.serving.drain(name, None)
        await self.plays(1500.0)
        lives = self.lives
        if not lives:
            return
        due = entitled(NODES, [claim_of(each) for each in lives], leaving(lives))
        for live in lives:
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
    life = Life(shutil.copy(migrated, tmp_path / "infer.db"), seed)
    for _ in range(25):
        await life.survives(life.event)
    await life.settles()


@pytest.mark.parametrize("at", range(1, 40, 3))
async def test_the_process_ends_after_any_of_its_writes(tmp_path, migrated, counted_writes, at):
    """One serves, a second one takes its part, a node is lost and comes back, the first one ends."""
    life = Life(shutil.copy(migrated, tmp_path / "infer.db"), 0, dies_at=at)

    async def asked(name, **sizes):
        async def ask():
            self = life.serving
            if name not in self.live:
                self.ensure(name, DeploymentRequest(instance="i", **sizes))
            await life.plays(200.0)

        await life.survives(ask)
        await life.survives(ask)

    await asked("chat")
    await asked("code", prefill_npus=8, decode_npus=16)
    assigned = {live.name: live.layout.pools.nodes for live in life.lives}
    assert [len(nodes) for nodes in assigned.values()] == [5, 3]

    async def again():
        raise Ended

    await life.survives(again)
    await life.survives(lambda: life.plays(200.0))
    await life.survives(lambda: life.plays(200.0))
    assert {live.name: live.layout.pools.nodes for live in life.lives} == assigned, "the same nodes after a restart"
    lost = min(assigned["code"])
    life.views.lose(lost)
    await life.survives(lambda: life.plays(200.0))
    life.views.gain(lost)

    async def end():
        if "chat" in life.serving.live:
            life.serving.delete("chat")
        await life.plays(300.0)

    await life.survives(end)
    await life.survives(end)
    (left,) = life.lives
    assert (left.name, left.state, len(left.layout.pools.nodes)) == ("code", "Serving", 3)
    assert claim_of(left).assigned == frozenset(NODES), "and all that the other one had is free"
