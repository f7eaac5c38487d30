"""Times come out of work, rates and the fabric, and are never better than physics."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infer_workload.experiments.validation.settings import decode_timing, prefill_timing
from infer_workload.experiments.validation.settings import whole_fabric as paper_fabric
from infer_workload.timing.calibration import Calibration, entries, load_calibration
from infer_workload.timing.collectives import Exchange, cache_fetch_s
from infer_workload.timing.decode import StepOptions, straggler_factor
from infer_workload.timing.experts import place_experts
from infer_workload.timing.fabric import UB, Fabric, PortRates
from infer_workload.timing.model import load_model
from infer_workload.timing.operators import ATTENTION, CUBE, EXPERTS, VECTOR, Die, Operator
from infer_workload.timing.operators import UB as PORT
from infer_workload.timing.routing import count_replicas, hottest, imbalance, pack_experts
from infer_workload.timing.schedule import concurrent_s, paired_s, pipelined_s, serial_s, split_cores

HOLDING = load_calibration()


def exchange(ranks: int, fabric: Fabric | None = None) -> Exchange:
    whole = fabric or paper_fabric(ranks)
    return Exchange(whole, HOLDING, tuple(whole.nodes), ranks)


def test_every_constant_names_its_source_and_kind():
    for name, entry in entries().items():
        assert entry["source"], name
        assert entry["unit"], name
        assert entry["kind"] in {"published", "derived", "fitted", "assumed"}, name
        assert entry["kind"] != "fitted" or entry["sigma"] > 0, name
    assert set(entries()) == set(Calibration.__dataclass_fields__)


def test_counts_of_the_model():
    model = load_model()
    assert model.kv_bytes_per_token == 70_272
    assert model.attention_parameters == pytest.approx(187.1e6, rel=1e-3)
    assert model.expert_parameters == 44_040_192
    experts = model.routed_experts + model.shared_experts
    everything = model.die_weight_bytes(experts) - model.head_parameters * 2 * (model.head_bytes - 1)
    draft = model.expert_bytes / (model.moe_layers + 1) * experts + model.attention_parameters
    assert everything - draft == pytest.approx(model.parameters_total, rel=2e-3)


def test_no_dispatch_beats_the_ports():
    everyone_to_every_other_s = exchange(320).bulk_s(319, 7168 * HOLDING.ub_efficiency)
    assert everyone_to_every_other_s == pytest.approx(319 * 7168 / 196e9)
    assert everyone_to_every_other_s >= 11_666e-9


@given(ranks=st.sampled_from([16, 32, 64, 128, 320, 480]), tokens=st.integers(1, 4096))
def test_an_exchange_takes_at_least_its_bytes_over_the_ports(ranks, tokens):
    current = exchange(ranks)
    assert current.dispatch_s(tokens) >= tokens * 9 * 7680 / 196e9
    assert current.combine_s(tokens) >= tokens * 9 * 14336 / 196e9


@given(requests=st.integers(1, 96), context=st.integers(1, 100_000), mtp=st.booleans(), paired=st.booleans())
def test_no_step_beats_physics(requests, context, mtp, paired):
    timing = decode_timing(320, HOLDING, StepOptions(microbatch=paired, mtp=mtp))
    kv_read = requests * context * 70_272 / 1.6e12
    weights_read = 61 * (load_model().attention_parameters + load_model().expert_parameters) / 1.6e12
    assert timing.exact_step_s(requests, requests * context) > kv_read + weights_read


@given(requests=st.integers(1, 64), context=st.integers(64, 50_000))
def test_a_step_grows_with_batch_and_context(requests, context):
    timing = decode_timing(320, HOLDING, StepOptions(microbatch=False))
    step = timing.exact_step_s(requests, requests * context)
    assert timing.exact_step_s(requests + 1, (requests + 1) * context) > step
    assert timing.exact_step_s(requests, requests * context * 1.1) > step


def test_kept_step_times_are_near_the_exact_ones():
    timing = decode_timing(320, HOLDING)
    for requests, context in ((1, 500), (12, 4224), (48, 4224), (48, 30_000), (1, 1), (2, 3_000_000)):
        exact = timing.exact_step_s(requests, requests * context)
        assert timing.step_s(requests, requests * context) == pytest.approx(exact, rel=0.02)


@given(new=st.integers(1, 250_000), past=st.integers(0, 120_000))
def test_kept_chunk_times_are_near_the_exact_ones(new, past):
    timing = prefill_timing(32, HOLDING)
    assert timing.chunk_s([(new, past)]) == pytest.approx(timing.exact_chunk_s([(new, past)]), rel=0.03)


def degraded(fabric: Fabric, node: str, plane: str, ports: PortRates) -> Fabric:
    planes = {name: dict(by_node) for name, by_node in fabric.ports.items()}
    planes[plane][node] = ports
    return Fabric(fabric.generation + 1, planes, fabric.latency_us)


def test_a_lost_sub_plane_of_one_node_slows_the_whole_pool():
    whole = paper_fabric(320)
    lame = degraded(whole, whole.nodes[3], UB, PortRates([448.0] * 6 + [0.0], [28.0] * 6 + [0.0]))
    assert exchange(320, lame).rate_gbps() == pytest.approx(196 * 6 / 7)
    assert exchange(320, lame).dispatch_s(96) > exchange(320, whole).dispatch_s(96)


def test_a_neighbours_floor_on_the_uplinks_slows_the_exchange():
    whole = paper_fabric(320)
    shared = degraded(whole, whole.nodes[0], UB, PortRates([224.0] * 7, [28.0] * 7))
    assert exchange(320, shared).rate_gbps() < exchange(320, whole).rate_gbps()
    assert exchange(320, shared).combine_s(96) > exchange(320, whole).combine_s(96)


def test_a_sub_plane_takes_as_much_of_the_traffic_as_it_has_left():
    one = {UB: {"n": PortRates([448.0] * 6 + [28.0], [28.0] * 7)}, "rdma": {}}
    assert Fabric(1, one, {}).die_gbps(UB, "n") == pytest.approx(28 * 6 + 28 / 16)
    assert Fabric(1, {UB: {"n": PortRates([0.0] * 7, [28.0] * 7)}}, {}).die_gbps(UB, "n") == 0


def test_cached_blocks_come_faster_over_ub_than_over_vpc():
    fabric = paper_fabric(512)
    size, blocks = 4096 * 70_272, 8
    over = {
        plane: cache_fetch_s(fabric, HOLDING, size, blocks, fabric.nodes[:2], fabric.nodes, plane)
        for plane in ("ub", "vpc")
    }
    assert 0 < over["ub"] < over["vpc"]
    assert cache_fetch_s(fabric, HOLDING, 0, 0, fabric.nodes[:2], fabric.nodes) == 0


def test_reused_tokens_are_not_computed_but_still_attended_to():
    timing = prefill_timing(32, HOLDING, balanced=False)
    fresh = timing.chunk_s([(65_536, 0)])
    half = timing.chunk_s([(32_768, 32_768)])
    alone = timing.chunk_s([(32_768, 0)])
    assert alone < half < fresh


@given(dies=st.integers(1, 768))
def test_every_routed_expert_lives_somewhere(dies):
    layout = place_experts(dies, load_model())
    assert layout.routed_slots >= 256
    assert layout.experts_per_die >= 1
    assert layout.shared_dies + layout.routed_slots // layout.routed_per_die == dies
    assert layout.routed_dies * layout.routed_per_die == layout.routed_slots
    assert layout.redundant(256) >= 0


def test_the_papers_expert_layouts():
    decode = place_experts(320, load_model())
    assert (decode.experts_per_die, decode.shared_dies, decode.redundant(256)) == (1, 32, 32)
    prefill = place_experts(32, load_model(), redundant_per_die=1)
    assert (prefill.experts_per_die, prefill.redundant(256)) == (10, 32)


def test_experts_even_out_when_a_die_has_more_of_them():
    uneven = [imbalance(place_experts(dies, load_model()), 256, 10_000, HOLDING) for dies in (256, 64, 16)]
    assert uneven == sorted(uneven, reverse=True)
    assert uneven[-1] > 1


def test_redundant_copies_even_out_what_eplb_knows():
    bare, copied = hottest(256, 1, 256, 0.5, 0.0), hottest(288, 1, 256, 0.5, 0.0)
    assert copied < bare
    assert hottest(32, 9, 256, 0.5, 0.0) == pytest.approx(1.0, abs=0.02)


def test_few_streams_of_text_are_less_even_than_many():
    layout = place_experts(32, load_model(), redundant_per_die=1)
    uneven = [imbalance(layout, 256, streams, HOLDING) for streams in (1, 4, 64, 1024, 1e9)]
    assert uneven == sorted(uneven, reverse=True)
    assert uneven[-1] < 1.05


def test_eplb_copies_the_hottest_and_packs_evenly():
    popularity = [8.0, 1.0, 1.0, 1.0]
    copies = count_replicas(popularity, 6)
    assert copies == [3, 1, 1, 1]
    placed = pack_experts(popularity, copies, 3, 2)
    assert sorted(len(die) for die in placed) == [2, 2, 2]
    assert all(0 in die for die in placed)


def test_ranks_that_are_waited_for_cost_more_the_more_there_are():
    assert straggler_factor(HOLDING, 1) == 1.0
    assert straggler_factor(HOLDING, 288) == pytest.approx(1 + HOLDING.straggle_share)
    assert straggler_factor(HOLDING, 32) < straggler_factor(HOLDING, 320)


def cube(seconds: float, read: float = 0.0) -> Operator:
    return Operator("product", ATTENTION, CUBE, 0.0, cube_s=seconds, hbm_s=read)


def test_an_operator_takes_its_slowest_part_and_its_start():
    operator = Operator("product", ATTENTION, CUBE, 1.0, cube_s=4.0, hbm_s=6.0)
    assert operator.seconds() == 7.0
    assert operator.seconds(cores=0.5) == 9.0
    assert operator.bound() == "hbm"
    sent = Operator("dispatch", EXPERTS, PORT, 0.0, start_s=1.0, issue_s=2.0, wire_s=3.0)
    assert sent.seconds() == 6.0
    assert sent.seconds(cores=0.5, sending=0.75) == 9.0


def test_side_by_side_is_the_longer_unless_both_want_hbm():
    assert concurrent_s([cube(1.0)], [cube(1.0)], 0.5, 0.5) == 2.0
    assert concurrent_s([cube(0.0, 1.0)], [cube(0.0, 1.0)], 0.5, 0.5) == pytest.approx(2.0)
    assert concurrent_s([cube(0.1, 1.0)], [cube(0.5, 0.0)], 0.5, 0.5) == pytest.approx(1.0)


def test_the_split_of_the_cores_balances_both_streams():
    assert split_cores([cube(2.0)], [cube(1.01)], 24, 0.5) == 16
    assert paired_s([cube(2.0)], [cube(1.0)], 24, 0.5) == pytest.approx(3.0)


def test_two_microbatches_are_between_perfect_overlap_and_none():
    vector, port = (Operator("x", EXPERTS, engine, 0.0, vector_s=1.0, wire_s=1.0) for engine in (VECTOR, PORT))
    three = [cube(1.0), vector, port]
    assert 3.0 < pipelined_s(three) < 2 * serial_s(three)
    assert pipelined_s([cube(1.0)]) == 2.0


def test_vector_operators_never_beat_hbm():
    die = Die(replace(HOLDING, vector_gbps=1e6, launch_us=0.0))
    assert die.vector("norm", ATTENTION, 1.6e12).seconds() == pytest.approx(1.0)


def test_decode_operators_are_named_and_bound():
    kinds, once = decode_timing(320, HOLDING).operators(48, 48 * 4224)
    assert [kind.layers for kind in kinds] == [59, 3]
    names = {operator.name for operator in (*kinds[0].attention, *kinds[0].experts, *once)}
    assert {
        "norm",
        "MLA prolog",
        "rope",
        "attention core",
        "output projection",
        "quantisation",
        "gate",
        "top-k",
        "dispatch",
        "routed experts",
        "activation",
        "combine",
        "LM head",
        "sampling",
        "MTP head",
        "graph launch",
    } - {"routed experts"} <= names
    assert names & {"routed experts", "shared expert"}
    core = next(operator for operator in kinds[0].attention if operator.name == "attention core")
    assert (core.bound(), core.source()) == (CUBE, "attention_compute_efficiency")


def test_prefill_operators_have_the_exchanges_of_sequence_and_tensor_parallelism():
    sparse, dense = prefill_timing(32, HOLDING).operators([(4096, 0)] * 64)
    names = [operator.name for operator in sparse]
    assert {"all-gather", "all-to-all", "dispatch", "combine", "shared expert"} <= set(names)
    assert "dispatch" not in {operator.name for operator in dense}
