"""Times come out of work, rates and the fabric, and are never better than physics."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.infer_validation import fit
from benchmarks.infer_validation.ablations import effects, effects_text
from benchmarks.infer_validation.figures import FITTED, PREDICTED, decode_timing, figures, paper_fabric, prefill_timing
from benchmarks.infer_validation.report import figures_text
from infer_workload.timing.calibration import Calibration, entries, load_calibration
from infer_workload.timing.collectives import Exchange, cache_fetch_s
from infer_workload.timing.decode import StepOptions
from infer_workload.timing.experts import imbalance_of, lay_experts
from infer_workload.timing.fabric import UB, Fabric, PortRates, striped
from infer_workload.timing.model import load_model

HOLDING = load_calibration()


def exchange(ranks: int, fabric: Fabric | None = None) -> Exchange:
    whole = fabric or paper_fabric(ranks)
    return Exchange(whole, HOLDING, tuple(whole.nodes), ranks)


@pytest.mark.parametrize("figure", figures(), ids=lambda figure: f"{figure.section}: {figure.name}")
def test_published_figures_come_out_of_the_model(figure):
    assert abs(figure.error) <= (0.005 if figure.role == FITTED else 0.10)


def test_points_that_were_not_fitted_err_by_a_few_percent():
    errors = [abs(figure.error) for figure in figures() if figure.role == PREDICTED]
    assert len(errors) >= 10
    assert sum(errors) / len(errors) < 0.05


def test_the_fit_in_the_file_is_what_the_solver_finds():
    solved = fit.solve()
    for name in fit.NAMES:
        assert getattr(solved, name) == pytest.approx(getattr(HOLDING, name), rel=2e-4)


def test_every_constant_names_its_source_and_kind():
    for name, entry in entries().items():
        assert entry["source"], name
        assert entry["unit"], name
        assert entry["kind"] in {"published", "derived", "fitted", "assumed"}, name
        assert entry["kind"] != "fitted" or (entry["fit"] and entry["fit_error"]), name
    assert set(entries()) == set(Calibration.__dataclass_fields__)


def test_the_figures_are_printed_with_their_roles():
    text = figures_text(figures())
    assert "predicted" in text
    assert "were not fitted: mean absolute error" in text


def test_predicted_effects_are_sane():
    """Their outcomes are published but not used; here only what any machine must obey is held."""
    found = effects()
    assert {effect.mechanism.split(" over ")[0] for effect in found} == {
        "decode microbatches",
        "prefill microbatches",
        "multi-token prediction",
        "context cache",
    }
    for effect in found:
        assert effect.gain > -0.3, effect
        if effect.mechanism.startswith("multi-token"):
            assert effect.gain < 0.7
    reuse = [effect for effect in found if effect.mechanism == "context cache over ub"]
    assert [effect.gain for effect in reuse] == sorted(effect.gain for effect in reuse)
    assert "predicted" in effects_text(found)


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
    for requests, context in ((1, 500), (12, 4224), (48, 4224), (48, 30_000)):
        exact = timing.exact_step_s(requests, requests * context)
        assert timing.step_s(requests, requests * context) == pytest.approx(exact, rel=0.01)


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


def test_striping_leaves_out_a_sub_plane_that_would_hold_the_others_back():
    assert striped([28.0] * 7) == 196
    assert striped([28.0] * 6 + [1.0]) == 168
    assert striped([28.0] * 6 + [27.0]) == 189
    assert striped([0.0] * 7) == 0


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
    layout = lay_experts(dies, load_model())
    assert layout.routed_slots >= 256
    assert layout.experts_per_die >= 1
    assert layout.shared_dies + layout.routed_slots // layout.routed_per_die == dies
    assert layout.redundant(256) >= 0


def test_the_papers_expert_layouts():
    decode = lay_experts(320, load_model())
    assert (decode.experts_per_die, decode.shared_dies, decode.redundant(256)) == (1, 32, 32)
    prefill = lay_experts(32, load_model(), redundant_per_die=1)
    assert (prefill.experts_per_die, prefill.redundant(256)) == (10, 32)


def test_experts_even_out_when_a_die_holds_more_of_them():
    assert imbalance_of(1, HOLDING) == pytest.approx(HOLDING.decode_imbalance)
    assert imbalance_of(9, HOLDING) == pytest.approx(HOLDING.prefill_imbalance)
    assert imbalance_of(4, HOLDING) > imbalance_of(16, HOLDING) > 1
    assert imbalance_of(4, replace(HOLDING, decode_imbalance=1.0)) == 1.0
