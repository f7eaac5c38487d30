"""What a deployment sends is put on the hardware once it changed by a tenth, taken away with the deployment, and what an
earlier life left there is found; what its bursts get beside others there is the time its steps take."""

from types import SimpleNamespace

import pytest

from infer_workload.engine.data_movement import port_gbps
from infer_workload.engine.engine import Engine
from infer_workload.engine.request import InferenceRequest
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import lay_out
from infer_workload.serving.ports import Burst, WorkloadLoad, contention_of
from infer_workload.serving.workload_traffic import MEAN_S, WorkloadTraffic, decode_gbps, loads_of
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.contention import MeasuredContention
from infer_workload.timing.model import load_model
from matrixlink.fabric.contention.ports_left import AvailablePorts

PROMPT, ANSWER, REQUESTS = 4096, 512, 400


class FakePorts:
    """The emulated hardware as far as loads go; `gets`: GB/s of a die in an exchange."""

    def __init__(self, *left):
        self.loads = dict.fromkeys(left)
        self.reported = 0
        self.gets = None

    async def offer(self, name, load):
        self.reported += 1
        if load is None:
            del self.loads[name]
        else:
            self.loads[name] = load

    async def traffic_names(self):
        return frozenset(self.loads)

    async def bursts(self):
        return {name: Burst(self.gets if name == "infer-r1" else None) for name in self.loads}


def live_deployment(name="r1", nodes=8, requests=REQUESTS, serves=True, model="deepseek-r1", machine="cloudmatrix384"):
    calibration = load_calibration(machine)
    engine = Engine(lay_out(healthy_fabric(nodes, calibration), load_model(model), calibration))
    for number in range(requests):
        engine.submit(InferenceRequest(number, 0.0, PROMPT, ANSWER))
    engine.advance(2.0 if requests else 0.0)
    while requests and engine.pool.active < requests / 3:
        engine.advance(engine.next_event_at())
    taken = []

    def take(contention, now):
        if contention.close_to(taken[-1] if taken else None):
            return False
        taken.append(contention)
        engine.apply_contention(contention, engine.now)
        return True

    live = SimpleNamespace(name=name, engine=engine, serves=serves, spec=SimpleNamespace(instance="i"))
    live.apply_contention = take
    return live


def test_decode_sends_bytes_over_the_step_as_far_as_they_leave_the_node():
    live = live_deployment()
    engine = live.engine
    dies, batch = len(engine.pool.dies), engine.pool.active / len(engine.pool.dies)
    load = loads_of(live, {})["infer-r1"]
    assert (load.instance, load.plane, load.pattern) == ("i", "ub", "all-to-all")
    assert load.nodes == tuple(engine.deployment.pools.decode)
    layers, tokens, copies = 58 + 1, 2 * batch, 8  # the draft layer and its tokens too; the shared expert is at home
    sent = layers * tokens * copies * (7168 + 512 + 2 * 7168)
    assert load.gbps_per_npu == pytest.approx(2 * (dies - 16) / (dies - 1) * sent / engine.pool.step_s / 1e9)


def test_a_machine_whose_ub_ends_at_the_node_exchanges_over_rdma():
    """Each card sends its own tokens to those of its place in the other servers (INT8), and partial sums (BF16)."""
    live = live_deployment(nodes=10, machine="atlas-800i-a2", requests=100)
    engine = live.engine
    nodes, batch = len(engine.deployment.pools.decode), engine.pool.active / len(engine.pool.dies)
    assert nodes > 1
    load = loads_of(live, {})["infer-r1"]
    assert (load.plane, load.nodes) == ("rdma", tuple(engine.deployment.pools.decode))
    sent = 59 * 2 * batch * 7168 * (1 + 2) * (nodes - 1)
    assert load.gbps_per_npu == pytest.approx(sent / engine.pool.step_s / 1e9)
    assert {each.plane for each in loads_of(live, {}).values()} == {"rdma", "vpc"}


def test_prefill_kv_and_cache_are_there_with_whom_they_go_to():
    live = live_deployment()
    pools = live.engine.deployment.pools
    prefill = tuple(node for nodes in pools.prefill for node in nodes)
    means = {"p1": 2e9, "kv": 16e9, "cache": 64e9}
    loads = loads_of(live, means)
    assert set(loads) == {"infer-r1", "infer-r1-prefill-1", "infer-r1-kv", "infer-r1-cache"}
    assert loads["infer-r1-prefill-1"].gbps_per_npu == pytest.approx(2 * 2.0)
    kv, cache = loads["infer-r1-kv"], loads["infer-r1-cache"]
    assert (kv.plane, kv.nodes, kv.targets) == ("rdma", prefill, tuple(pools.decode))
    assert kv.gbps_per_npu == pytest.approx(16 / len(prefill) / 8)
    assert (cache.plane, cache.nodes, cache.targets) == ("ub", tuple(pools.caching), prefill)
    assert cache.gbps_per_npu == pytest.approx(64 / len(pools.caching) / 8)


def test_a_model_that_is_split_over_the_dies_of_a_node_exchanges_nothing_between_nodes():
    """Each of its groups of eight dies lies in one node, so that nobody elsewhere is slowed, and it is by nobody."""
    live = live_deployment(model="llama-3.1-70b", requests=100)
    assert live.engine.deployment.model.tensor_parallel == 8
    assert len(live.engine.deployment.pools.decode) > 1
    assert live.engine.pool.active > 0
    assert decode_gbps(live.engine) == 0
    assert set(loads_of(live, {"p1": 2e9, "kv": 16e9, "cache": 64e9})) == {"infer-r1-kv", "infer-r1-cache"}


async def test_means_are_what_moved_over_the_time_it_took():
    ports, live = FakePorts(), live_deployment(requests=0)
    own, engine = WorkloadTraffic(ports), live.engine
    await own.sync_loads([live], 0.0)
    for number in range(100):
        engine.submit(InferenceRequest(number, 0.0, PROMPT, ANSWER))
    engine.advance(MEAN_S)
    await own.sync_loads([live], MEAN_S)
    nodes = engine.deployment.pools.prefill_nodes
    moved = 100 * PROMPT * engine.deployment.model.kv_bytes_per_token
    assert ports.loads["infer-r1-kv"].gbps_per_npu == pytest.approx(moved / MEAN_S / 1e9 / nodes / 8)
    assert ports.loads["infer-r1-prefill-1"].gbps_per_npu > 0
    await own.sync_loads([live], 3 * MEAN_S)
    assert ports.loads["infer-r1-kv"].gbps_per_npu == 0


async def test_a_deployment_made_again_under_its_name_sends_nothing_of_the_former_one():
    """Its engine counts from nothing: what the one before had moved is no rate of its own, before MEAN_S or after."""
    ports = FakePorts()
    own = WorkloadTraffic(ports)
    former = live_deployment()
    former.engine.transferred_bytes = 0.0
    await own.sync_loads([former], 0.0)
    former.engine.transferred_bytes = 900e9
    await own.sync_loads([former], MEAN_S)
    assert ports.loads["infer-r1-kv"].gbps_per_npu > 0
    await own.sync_loads([], MEAN_S + 1)
    again = live_deployment(requests=0)
    await own.sync_loads([again], MEAN_S + 2)
    assert ports.loads["infer-r1-kv"].gbps_per_npu == 0
    again.engine.transferred_bytes = 300e9
    await own.sync_loads([again], 2 * MEAN_S + 2)
    npus = 8 * again.engine.deployment.pools.prefill_nodes
    assert ports.loads["infer-r1-kv"].gbps_per_npu == pytest.approx(300 / MEAN_S / npus)


@pytest.mark.parametrize("changes", [{"serves": False}, {"nodes": 2, "requests": 0}])
def test_nothing_is_sent_where_nothing_serves_or_nothing_leaves(changes):
    assert "infer-r1" not in loads_of(live_deployment(**changes), {})


async def test_only_changes_are_reported():
    ports, live, other = FakePorts(), live_deployment(), live_deployment("r2")
    own = WorkloadTraffic(ports)
    assert await own.sync_loads([], 0.0) == 0
    assert await own.sync_loads([live], 0.0) == 4
    assert await own.sync_loads([live], 1.0) == 0
    before = decode_gbps(live.engine)
    while live.engine.pool.active and abs(decode_gbps(live.engine) / before - 1) < 0.2:
        live.engine.advance(live.engine.next_event_at())
    assert await own.sync_loads([live], 2.0) == 1
    assert await own.sync_loads([live, other], 3.0) == 4
    assert {name.partition("-")[2][:2] for name in ports.loads} == {"r1", "r2"}
    assert await own.sync_loads([other], 4.0) == 4
    assert all("r2" in name for name in ports.loads)


async def test_loads_of_a_former_process_are_removed_and_others_kept():
    ports = FakePorts("infer-gone", "infer-r1", "by-hand")
    await WorkloadTraffic(ports).sync_loads([live_deployment()], 0.0)
    assert {name for name in ports.loads if "infer-r1" not in name} == {"by-hand"}
    assert isinstance(ports.loads["infer-r1"], WorkloadLoad)


async def test_a_start_without_deployments_removes_leftover_loads():
    ports = FakePorts("infer-gone", "by-hand")
    await WorkloadTraffic(ports).sync_loads([], 0.0)
    assert set(ports.loads) == {"by-hand"}


async def test_what_a_burst_gets_is_what_a_step_takes_and_is_worked_out_once_a_change():
    ports, live = FakePorts(), live_deployment()
    own, engine = WorkloadTraffic(ports), live.engine
    await own.sync_loads([live], 0.0)
    alone = engine.pool.step_s
    ports.gets = engine.pool.timing.exchange.rate_gbps() / 8
    assert await own.observe_contention([live], 1.0) == 1
    beside = engine.pool.step_s
    assert engine.pool.timing.exchange.rate_gbps() == ports.gets
    assert beside > 1.02 * alone
    assert await own.observe_contention([live], 2.0) == 0
    ports.gets *= 8
    assert await own.observe_contention([live], 3.0) == 1
    assert engine.pool.step_s == pytest.approx(alone, rel=0.01)


def test_ports_that_others_fill_slow_kv_and_cache():
    engine = live_deployment().engine
    deployment = engine.deployment
    prefill, decode = deployment.pools.prefill[0], deployment.pools.decode
    loads = {"kv": WorkloadLoad("i", "rdma", "pull", prefill, 0.0, decode)}
    left = AvailablePorts([200.0], [200.0], [12.5], [12.5])
    measured = contention_of(loads, {"kv": Burst(None, dict.fromkeys((*prefill, *decode), left))})
    whole = [port_gbps(engine.deployment, port) for port in (engine.prefill.instances[0], engine.pool.dies[0])]
    engine.apply_contention(measured, engine.now)
    halved = [port_gbps(engine.deployment, port) for port in (engine.prefill.instances[0], engine.pool.dies[0])]
    assert halved == pytest.approx([rate / 2 for rate in whole])


def test_a_pool_without_a_path_stops_and_resumes():
    engine = live_deployment().engine
    decode = frozenset(engine.deployment.pools.decode)
    steps, at = engine.pool.steps, engine.now
    engine.apply_contention(MeasuredContention({decode: 0.0}), at)
    arriving = InferenceRequest(10_000, at, PROMPT, ANSWER)
    engine.submit(arriving)
    engine.advance(at + 100.0)
    assert engine.pool.steps == steps
    engine.apply_contention(MeasuredContention(), at + 100.0)
    engine.advance(at + 100.5)
    engine.sync_counters()
    assert 0 < engine.pool.steps - steps < 0.6 / engine.pool.step_s
    engine.advance(float("inf"))
    assert arriving.generated == ANSWER
    assert not engine.in_flight


def test_a_chunk_under_way_goes_on_at_the_pace_of_now():
    engine = live_deployment(requests=0).engine
    nodes = frozenset(engine.prefill.instances[0].nodes)
    alone = engine.prefill.instances[0].timing.chunk_s([(PROMPT, 0)])
    for number, (gbps, waits_s) in enumerate(((None, 0.0), (20.0, 0.0), (0.0, 30.0))):
        request = InferenceRequest(number, engine.now, PROMPT, 1)
        engine.submit(request)
        engine.advance(engine.now + alone / 2)
        expected = alone
        if gbps is not None:
            engine.apply_contention(MeasuredContention({nodes: gbps}), engine.now)
            slower = engine.prefill.instances[0].timing.chunk_s([(PROMPT, 0)])
            assert slower > 1.1 * alone
            expected = alone / 2 + slower / 2
        if waits_s:
            engine.advance(engine.now + waits_s)
            assert request.first_token_at < 0
            engine.apply_contention(MeasuredContention(), engine.now)
            expected = alone + waits_s
        engine.advance(float("inf"))
        assert request.ttft_s == pytest.approx(expected, rel=1e-6)
        engine.apply_contention(MeasuredContention(), engine.now)
