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
from tests.infer_workload.conftest import NODES, FakeFabricViews
from tests.matrixresource.machine import Machine

WEIGHTS_GB = 671.0
DRAM_GIB = 2048


class ProcessKilled(BaseException):
    """The process ends here."""


class FakeServerMemory:
    """MatrixResource, asked as its client asks; `dies_after` so many changes, `unavailable` or not."""

    def __init__(self, machine):
        self.machine, self.dies_after, self.unavailable, self.changes = machine, None, False, 0

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
        if self.unavailable:
            raise Unavailable("MatrixResource does not answer")

    def _changed(self):
        self.changes += 1
        if self.changes == self.dies_after:
            raise ProcessKilled


class RestartableService:
    """One deployment after another over one database, with MatrixResource beside it."""

    def __init__(self, fresh, folder):
        self.machine = Machine(folder)
        self.clock = self.machine.clock
        self.memory = FakeServerMemory(self.machine)
        self.views = FakeFabricViews()
        self.database = DatabaseEngine(f"sqlite:///{fresh}")
        self.restart()

    def restart(self):
        """A next life of the process."""
        store = InferStore(Database(self.database.sessions, Base.metadata, self.clock))
        self.serving = Serving(store, self.clock, self.views, Random(1), memory=self.memory)
        self.serving.restore()

    async def reconcile(self, times=2):
        for _ in range(times):
            await self.serving.watchers.observe_fabric()
            await self.serving.watchers.reconcile_memory()
            self.clock.at += 1.0

    async def serve(self, name="r1", **more):
        self.serving.ensure(name, DeploymentRequest.model_validate({"instance": "i", **more}))
        await self.reconcile()
        self.clock.at += 600.0
        live = self.serving.live[name]
        live.advance(self.clock.now())
        return live

    def allocated(self, name="r1"):
        if allocation_key(name) not in self.machine.names():
            return {}
        return {member.node: member.memory_gib for member in self.machine.allocation(allocation_key(name)).members}

    def condition(self, name="r1"):
        return next(each for each in self.serving.view(name).conditions if each.type == "CacheMemory")


@pytest.fixture
def service(fresh, tmp_path):
    made = RestartableService(fresh, tmp_path)
    yield made
    made.machine.check()


def used_bytes(live):
    """What its caches take at the most, of all nodes."""
    deployment = live.engine.deployment
    weights = sum(live.layout.weights.granted_bytes.values())
    return weights + live.engine.cache.capacity * deployment.block_bytes


async def test_a_deployment_holds_the_memory_that_its_caches_use(service):
    live = await service.serve(cacheGbPerNode=100)
    allocated = service.allocated()
    each = -(-(100e9 + WEIGHTS_GB * 1e9 / 8) // GIB)
    assert allocated == dict.fromkeys(NODES, each)
    assert (live.state, live.engine.cache.nodes) == ("Serving", tuple(NODES))
    assert used_bytes(live) <= sum(allocated.values()) * GIB
    assert live.engine.cache.capacity == pytest.approx(8 * 100e9 / live.engine.deployment.block_bytes, rel=1e-3)
    assert (service.condition().status, service.condition().reason) == ("True", "Granted")
    shown = service.serving.view("r1").cache_memory
    assert (shown.allocation, shown.granted_gib, shown.nodes) == ("r1-ems", sum(allocated.values()), allocated)


async def test_nothing_is_cached_before_it_is_granted(service):
    service.memory.unavailable = True
    live = await service.serve()
    assert (live.state, live.engine.cache.capacity, service.condition().reason) == ("Serving", 0, "Unavailable")
    service.memory.unavailable = False
    await service.reconcile()
    assert live.engine.cache.capacity > 0
    assert service.condition().status == "True"


@pytest.mark.parametrize("verb", ["find_allocation", "reserve", "release"])
@pytest.mark.parametrize("refusal", [TooManyRequests, StaleGeneration, StaleTopology, Forbidden, Gone])
async def test_a_refusal_of_one_deployment_delays_no_other(service, monkeypatch, verb, refusal):
    """It shows, is asked for again, and what is asked for the others, or released, goes on."""
    live = await service.serve()
    before = service.allocated()
    ask = getattr(FakeServerMemory, verb)

    async def refused(self, name, *given):
        if name == allocation_key("r1"):
            raise refusal("not now")
        return await ask(self, name, *given)

    with monkeypatch.context() as at_first:
        at_first.setattr(FakeServerMemory, verb, refused)
        wanted = {"modelCacheGbPerNode": 0, "contextCache": False} if verb == "release" else {"cacheGbPerNode": 60}
        service.serving.ensure("r1", DeploymentRequest.model_validate({"instance": "i", **wanted}))
        await service.serve("r2")
        assert service.allocated("r2"), "it comes after the one that is refused"
        assert (live.memory_grant.reason, live.memory_grant.message) == (refusal.__name__, "not now")
        assert service.allocated() == before
    await service.reconcile()
    assert (service.allocated() == {}) is (verb == "release")
    assert live.memory_grant.reason == "Granted"


async def test_without_caches_nothing_is_held(service):
    await service.serve(contextCache=False, modelCacheGbPerNode=0)
    assert service.machine.names() == []


async def test_a_refusal_shows_and_the_deployment_serves_without(service):
    service.machine.reserve("taken", memoryGibByNode={NODES[0]: DRAM_GIB - 10})
    live = await service.serve()
    refused = service.condition()
    assert (refused.status, refused.reason) == ("False", "InsufficientCapacity")
    assert f"{NODES[0]} has 10 GiB of memory to give" in refused.message
    assert (live.state, live.engine.cache.capacity, service.allocated()) == ("Serving", 0, {})
    service.machine.allocator.release("taken")
    await service.reconcile()
    assert live.engine.cache.capacity > 0
    assert service.condition().reason == "Granted"


async def test_a_quota_of_the_project_bounds_it(service):
    service.machine.quotas.put("default", QuotaRequest(memory_gib=100))
    live = await service.serve()
    assert (service.condition().reason, live.engine.cache.capacity) == ("QuotaExceeded", 0)


async def test_a_refused_growth_leaves_what_there_is(service):
    live = await service.serve(cacheGbPerNode=100)
    before, blocks = service.allocated(), live.engine.cache.capacity
    asked = {"instance": "i", "cacheGbPerNode": 3000}
    service.serving.ensure("r1", DeploymentRequest.model_validate(asked))
    await service.reconcile()
    assert (service.allocated(), service.condition().reason) == (before, "InsufficientCapacity")
    assert live.engine.cache.capacity == pytest.approx(blocks, rel=2e-2), "whole GiB are held"
    service.serving.ensure("r1", DeploymentRequest.model_validate({"instance": "i", "cacheGbPerNode": 50}))
    await service.reconcile()
    assert max(service.allocated().values()) < min(before.values())
    assert live.engine.cache.capacity == pytest.approx(blocks / 2, rel=1e-2)


async def test_a_lost_node_takes_its_blocks_and_its_part_and_nothing_else(service):
    live = await service.serve(cacheGbPerNode=100, modelCacheGbPerNode=0)
    before = service.allocated()
    cache = live.engine.cache
    keys = list(range(1, 400))
    cache.add_in_flight(keys, 0)
    cache.store(keys, 0)
    where = {block.key: block.node for block in cache.list_stored()}
    service.views.lose(NODES[-1])
    await service.reconcile(times=3)
    assert service.allocated() == {node: gib for node, gib in before.items() if node != NODES[-1]}
    assert {block.key: block.node for block in cache.list_stored()} == {
        key: node for key, node in where.items() if node != NODES[-1]
    }
    assert cache.counts.lost == sum(node == NODES[-1] for node in where.values()) > 0


async def test_a_deployment_that_is_laid_out_nowhere_holds_nothing(service):
    await service.serve()
    service.views.nodes = []
    await service.reconcile()
    assert service.machine.names() == []


async def test_a_name_that_is_taken_is_left_alone(service):
    service.machine.reserve("r1-ems", memoryGibByNode={NODES[0]: 1})
    live = await service.serve()
    assert (service.condition().reason, live.engine.cache.capacity) == ("NameTaken", 0)
    assert service.allocated() == {NODES[0]: 1}
    service.serving.delete("r1")
    await service.reconcile()
    assert service.allocated() == {NODES[0]: 1}


async def test_a_restart_finds_what_is_held_and_asks_for_nothing_new(service):
    await service.serve(cacheGbPerNode=100)
    before, changes = service.machine.allocation("r1-ems"), service.memory.changes
    service.restart()
    await service.serving.watchers.reconcile_memory()
    assert service.memory.changes == changes, "not before it is known where the deployment is laid out"
    await service.reconcile()
    after = service.machine.allocation("r1-ems")
    assert (after.generation, after.members) == (before.generation, before.members)
    assert service.serving.live["r1"].engine.cache.capacity > 0


async def test_memory_granted_on_a_former_instance_is_released_and_requested_again(service):
    live = await service.serve(cacheGbPerNode=100)
    before = service.machine.allocation("r1-ems")
    service.clock.at += 60.0
    made = service.machine.reserve("i", nodes=8)  # in place of the one that it lay on
    service.clock.at += 60.0
    service.restart()
    changes = service.memory.changes
    await service.reconcile()
    after = service.machine.allocation("r1-ems")
    assert service.memory.changes == changes + 2, "given back and asked for"
    assert before.created_at < made.created_at < after.created_at
    assert service.allocated() == {member.node: member.memory_gib for member in before.members}
    live = service.serving.live["r1"]
    assert (service.condition().reason, live.engine.cache.capacity > 0) == ("Granted", True)
    service.clock.at += 60.0
    await service.reconcile()
    assert service.memory.changes == changes + 3, "looked at again, and kept"
    assert service.machine.allocation("r1-ems").created_at == after.created_at


async def lifecycle(service):
    """Made, grown, less a node, deleted: every kind of change."""
    if "r1" not in service.serving.live and not service.done:
        service.serving.ensure("r1", DeploymentRequest.model_validate({"instance": "i", "cacheGbPerNode": 10}))
    await service.reconcile()
    if not service.done:
        service.serving.ensure("r1", DeploymentRequest.model_validate({"instance": "i", "cacheGbPerNode": 20}))
        await service.reconcile()
        service.views.nodes = list(NODES[:-1])
        service.views.generation += 1
        await service.reconcile()
        service.done = True
        service.serving.delete("r1")
    await service.reconcile(times=3)


@pytest.mark.parametrize("step", range(1, 5))
async def test_it_converges_where_the_process_ends_after_a_request(service, step):
    service.done = False
    service.memory.dies_after = step
    with pytest.raises(ProcessKilled):
        await lifecycle(service)
    service.machine.check()
    service.restart()
    await lifecycle(service)
    assert service.machine.names() == [], "no orphan"
    assert service.memory.changes in (4, 5)


async def test_what_a_deleted_deployment_left_is_released_by_the_next_life(service):
    await service.serve()
    service.memory.unavailable = True
    service.serving.delete("r1")
    await service.reconcile()
    assert service.allocated()
    service.restart()
    service.memory.unavailable = False
    await service.reconcile()
    assert service.machine.names() == []


async def test_an_allocation_that_cannot_be_released_keeps_no_other(service, monkeypatch):
    for name in ("r1", "r2"):
        await service.serve(name)
    release = FakeServerMemory.release

    async def refused(self, name):
        if name == allocation_key("r1"):
            raise StaleGeneration("not now")
        return await release(self, name)

    with monkeypatch.context() as at_first:
        at_first.setattr(FakeServerMemory, "release", refused)
        for name in ("r1", "r2"):
            service.serving.delete(name)
        await service.reconcile()
        assert service.machine.names() == [allocation_key("r1")]
    await service.reconcile()
    assert service.machine.names() == []


async def test_a_cold_pool_reads_its_other_models_one_after_the_other(service):
    live = await service.serve(warmModelCache=False, modelCacheModels=["qwen3-235b", "llama-3.1-70b"])
    assert live.layout.weights.models == {"deepseek-r1"}
    await service.reconcile(times=1)
    service.clock.at += 235.0 / 2.5 + 1.0
    await service.reconcile(times=1)
    assert live.layout.weights.models == {"deepseek-r1", "qwen3-235b"}
    service.clock.at += 100.0
    await service.reconcile(times=1)
    assert live.layout.weights.models == {"deepseek-r1", "qwen3-235b", "llama-3.1-70b"}
