"""The caches of a deployment lie in memory that MatrixResource has granted: found, made, resized and released, also
where the process ends after any of its requests; no allocation is left behind, and what is granted is what is used."""

from __future__ import annotations

from random import Random

import pytest

from infer_workload.contract.deployments import DeploymentRequest
from infer_workload.ems.memory_grant import GIB, allocation_key
from infer_workload.metering.tables import Base
from infer_workload.serving.service import Serving
from infer_workload.serving.store import InferStore
from matrixcommon.model.errors import Forbidden, Gone, StaleGeneration, StaleTopology, TooManyRequests, Unavailable
from matrixcommon.persistence.database_session import Database
from matrixresource.contract.quotas import QuotaRequest
from services.chassis.database import DatabaseEngine
from tests.infer_workload.conftest import NODES, Views
from tests.matrixresource.machine import Machine

WEIGHTS_GB = 671.0
DRAM_GIB = 2048


class Killed(BaseException):
    """The process ends here."""


class OverRest:
    """MatrixResource, asked as its client asks; `dies_after` so many changes, `away` or not."""

    def __init__(self, machine):
        self.machine, self.dies_after, self.away, self.changes = machine, None, False, 0

    async def find_allocation(self, name):
        self._reachable()
        return next((each for each in await self.allocations() if each.key == name), None)

    async def allocations(self):
        self._reachable()
        with self.machine.store.reading() as session:
            return [row.view() for row in self.machine.store.allocations(session)]

    async def reserve(self, name, request):
        self._reachable()
        view = self.machine.allocator.reserve(name, request)
        self._changed()
        return view

    async def release(self, name):
        self._reachable()
        gone = self.machine.allocator.release(name) is None
        self._changed()
        return gone

    def _reachable(self):
        if self.away:
            raise Unavailable("MatrixResource does not answer")

    def _changed(self):
        self.changes += 1
        if self.changes == self.dies_after:
            raise Killed


class World:
    """One deployment after another over one database, with MatrixResource beside it."""

    def __init__(self, fresh, folder):
        self.machine = Machine(folder)
        self.clock = self.machine.clock
        self.memory = OverRest(self.machine)
        self.views = Views()
        self.database = DatabaseEngine(f"sqlite:///{fresh}")
        self.begin()

    def begin(self):
        """A next life of the process."""
        store = InferStore(Database(self.database.sessions, Base.metadata, self.clock))
        self.serving = Serving(store, self.clock, self.views, Random(1), memory=self.memory)
        self.serving.restore()

    async def look(self, times=2):
        for _ in range(times):
            await self.serving.watchers.follow_fabric()
            await self.serving.watchers.hold_memory()
            self.clock.at += 1.0

    async def serves(self, name="r1", **more):
        self.serving.ensure(name, DeploymentRequest.model_validate({"instance": "i", **more}))
        await self.look()
        self.clock.at += 600.0
        live = self.serving.live[name]
        live.play(self.clock.now())
        return live

    def allocated(self, name="r1"):
        if allocation_key(name) not in self.machine.names():
            return {}
        return {member.node: member.memory_gib for member in self.machine.allocation(allocation_key(name)).members}

    def condition(self, name="r1"):
        return next(each for each in self.serving.view(name).conditions if each.type == "CacheMemory")


@pytest.fixture
def world(fresh, tmp_path):
    made = World(fresh, tmp_path)
    yield made
    made.machine.check()


def used_bytes(live):
    """What its caches take at the most, of all nodes."""
    deployment = live.engine.deployment
    weights = sum(live.layout.weights.granted_bytes.values())
    return weights + live.engine.cache.capacity * deployment.block_bytes


async def test_a_deployment_holds_the_memory_that_its_caches_use(world):
    live = await world.serves(cacheGbPerNode=100)
    allocated = world.allocated()
    each = -(-(100e9 + WEIGHTS_GB * 1e9 / 8) // GIB)
    assert allocated == dict.fromkeys(NODES, each)
    assert (live.state, live.engine.cache.nodes) == ("Serving", tuple(NODES))
    assert used_bytes(live) <= sum(allocated.values()) * GIB
    assert live.engine.cache.capacity == pytest.approx(8 * 100e9 / live.engine.deployment.block_bytes, rel=1e-3)
    assert (world.condition().status, world.condition().reason) == ("True", "Granted")
    shown = world.serving.view("r1").cache_memory
    assert (shown.allocation, shown.granted_gib, shown.nodes) == ("r1-ems", sum(allocated.values()), allocated)


async def test_nothing_is_cached_before_it_is_granted(world):
    world.memory.away = True
    live = await world.serves()
    assert (live.state, live.engine.cache.capacity, world.condition().reason) == ("Serving", 0, "Unavailable")
    world.memory.away = False
    await world.look()
    assert live.engine.cache.capacity > 0
    assert world.condition().status == "True"


@pytest.mark.parametrize("verb", ["find_allocation", "reserve", "release"])
@pytest.mark.parametrize("refusal", [TooManyRequests, StaleGeneration, StaleTopology, Forbidden, Gone])
async def test_what_one_deployment_is_refused_keeps_no_other_waiting(world, monkeypatch, verb, refusal):
    """It shows, is asked for again, and what is asked for the others, or released, goes on."""
    live = await world.serves()
    before = world.allocated()
    ask = getattr(OverRest, verb)

    async def refused(self, name, *given):
        if name == allocation_key("r1"):
            raise refusal("not now")
        return await ask(self, name, *given)

    with monkeypatch.context() as at_first:
        at_first.setattr(OverRest, verb, refused)
        wanted = {"modelCacheGbPerNode": 0, "contextCache": False} if verb == "release" else {"cacheGbPerNode": 60}
        world.serving.ensure("r1", DeploymentRequest.model_validate({"instance": "i", **wanted}))
        await world.serves("r2")
        assert world.allocated("r2"), "it comes after the one that is refused"
        assert (live.lending.reason, live.lending.message) == (refusal.__name__, "not now")
        assert world.allocated() == before
    await world.look()
    assert (world.allocated() == {}) is (verb == "release")
    assert live.lending.reason == "Granted"


async def test_without_caches_nothing_is_held(world):
    await world.serves(contextCache=False, modelCacheGbPerNode=0)
    assert world.machine.names() == []


async def test_a_refusal_shows_and_the_deployment_serves_without(world):
    world.machine.ask("taken", memoryGibByNode={NODES[0]: DRAM_GIB - 10})
    live = await world.serves()
    refused = world.condition()
    assert (refused.status, refused.reason) == ("False", "InsufficientCapacity")
    assert f"{NODES[0]} has 10 GiB of memory to give" in refused.message
    assert (live.state, live.engine.cache.capacity, world.allocated()) == ("Serving", 0, {})
    world.machine.allocator.release("taken")
    await world.look()
    assert live.engine.cache.capacity > 0
    assert world.condition().reason == "Granted"


async def test_a_quota_of_the_project_bounds_it(world):
    world.machine.quotas.put("default", QuotaRequest(memory_gib=100))
    live = await world.serves()
    assert (world.condition().reason, live.engine.cache.capacity) == ("QuotaExceeded", 0)


async def test_a_refused_growth_leaves_what_there_is(world):
    live = await world.serves(cacheGbPerNode=100)
    before, blocks = world.allocated(), live.engine.cache.capacity
    asked = {"instance": "i", "cacheGbPerNode": 3000}
    world.serving.ensure("r1", DeploymentRequest.model_validate(asked))
    await world.look()
    assert (world.allocated(), world.condition().reason) == (before, "InsufficientCapacity")
    assert live.engine.cache.capacity == pytest.approx(blocks, rel=2e-2), "whole GiB are held"
    world.serving.ensure("r1", DeploymentRequest.model_validate({"instance": "i", "cacheGbPerNode": 50}))
    await world.look()
    assert max(world.allocated().values()) < min(before.values())
    assert live.engine.cache.capacity == pytest.approx(blocks / 2, rel=1e-2)


async def test_a_lost_node_takes_its_blocks_and_its_part_and_nothing_else(world):
    live = await world.serves(cacheGbPerNode=100, modelCacheGbPerNode=0)
    before = world.allocated()
    cache = live.engine.cache
    keys = list(range(1, 400))
    cache.add_in_flight(keys, 0)
    cache.store(keys, 0)
    where = {block.key: block.node for block in cache.list_stored()}
    world.views.lose(NODES[-1])
    await world.look(times=3)
    assert world.allocated() == {node: gib for node, gib in before.items() if node != NODES[-1]}
    assert {block.key: block.node for block in cache.list_stored()} == {
        key: node for key, node in where.items() if node != NODES[-1]
    }
    assert cache.counts.lost == sum(node == NODES[-1] for node in where.values()) > 0


async def test_a_deployment_that_is_laid_out_nowhere_holds_nothing(world):
    await world.serves()
    world.views.nodes = []
    await world.look()
    assert world.machine.names() == []


async def test_a_name_that_is_taken_is_left_alone(world):
    world.machine.ask("r1-ems", memoryGibByNode={NODES[0]: 1})
    live = await world.serves()
    assert (world.condition().reason, live.engine.cache.capacity) == ("NameTaken", 0)
    assert world.allocated() == {NODES[0]: 1}
    world.serving.delete("r1")
    await world.look()
    assert world.allocated() == {NODES[0]: 1}


async def test_a_restart_finds_what_is_held_and_asks_for_nothing_new(world):
    await world.serves(cacheGbPerNode=100)
    before, changes = world.machine.allocation("r1-ems"), world.memory.changes
    world.begin()
    await world.serving.watchers.hold_memory()
    assert world.memory.changes == changes, "not before it is known where the deployment is laid out"
    await world.look()
    after = world.machine.allocation("r1-ems")
    assert (after.generation, after.members) == (before.generation, before.members)
    assert world.serving.live["r1"].engine.cache.capacity > 0


async def test_what_was_granted_on_a_former_instance_is_given_back_and_asked_for_anew(world):
    live = await world.serves(cacheGbPerNode=100)
    before = world.machine.allocation("r1-ems")
    world.clock.at += 60.0
    made = world.machine.ask("i", nodes=8)  # in place of the one that it lay on
    world.clock.at += 60.0
    world.begin()
    changes = world.memory.changes
    await world.look()
    after = world.machine.allocation("r1-ems")
    assert world.memory.changes == changes + 2, "given back and asked for"
    assert before.created_at < made.created_at < after.created_at
    assert world.allocated() == {member.node: member.memory_gib for member in before.members}
    live = world.serving.live["r1"]
    assert (world.condition().reason, live.engine.cache.capacity > 0) == ("Granted", True)
    world.clock.at += 60.0
    await world.look()
    assert world.memory.changes == changes + 3, "looked at again, and kept"
    assert world.machine.allocation("r1-ems").created_at == after.created_at


async def life(world):
    """Made, grown, less a node, deleted: every kind of change."""
    if "r1" not in world.serving.live and not world.done:
        world.serving.ensure("r1", DeploymentRequest.model_validate({"instance": "i", "cacheGbPerNode": 10}))
    await world.look()
    if not world.done:
        world.serving.ensure("r1", DeploymentRequest.model_validate({"instance": "i", "cacheGbPerNode": 20}))
        await world.look()
        world.views.nodes = list(NODES[:-1])
        world.views.generation += 1
        await world.look()
        world.done = True
        world.serving.delete("r1")
    await world.look(times=3)


@pytest.mark.parametrize("step", range(1, 5))
async def test_it_converges_where_the_process_ends_after_a_request(world, step):
    world.done = False
    world.memory.dies_after = step
    with pytest.raises(Killed):
        await life(world)
    world.machine.check()
    world.begin()
    await life(world)
    assert world.machine.names() == [], "no orphan"
    assert world.memory.changes in (4, 5)


async def test_what_a_deleted_deployment_left_is_released_by_the_next_life(world):
    await world.serves()
    world.memory.away = True
    world.serving.delete("r1")
    await world.look()
    assert world.allocated()
    world.begin()
    world.memory.away = False
    await world.look()
    assert world.machine.names() == []


async def test_what_one_deployment_left_and_cannot_be_released_keeps_no_other_allocation(world, monkeypatch):
    for name in ("r1", "r2"):
        await world.serves(name)
    release = OverRest.release

    async def refused(self, name):
        if name == allocation_key("r1"):
            raise StaleGeneration("not now")
        return await release(self, name)

    with monkeypatch.context() as at_first:
        at_first.setattr(OverRest, "release", refused)
        for name in ("r1", "r2"):
            world.serving.delete(name)
        await world.look()
        assert world.machine.names() == [allocation_key("r1")]
    await world.look()
    assert world.machine.names() == []


async def test_a_cold_pool_reads_its_other_models_one_after_the_other(world):
    live = await world.serves(warmModelCache=False, modelCacheModels=["qwen3-235b", "llama-3.1-70b"])
    assert live.layout.weights.models == {"deepseek-r1"}
    await world.look(times=1)
    world.clock.at += 235.0 / 2.5 + 1.0
    await world.look(times=1)
    assert live.layout.weights.models == {"deepseek-r1", "qwen3-235b"}
    world.clock.at += 100.0
    await world.look(times=1)
    assert live.layout.weights.models == {"deepseek-r1", "qwen3-235b", "llama-3.1-70b"}
