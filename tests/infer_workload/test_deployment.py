"""Which nodes play which part, and what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from infer_workload.contract.deployments import DeploymentShape
from infer_workload.experiments.experiment import healthy_fabric
from infer_workload.layout.deployment import DoesNotFit, lay_out
from infer_workload.layout.recovery import decode_pause_s, plan_change, plan_scale_out, rebuild_s
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.collectives import fetch_gbps
from infer_workload.timing.fabric import UB
from infer_workload.timing.model import load_model

MODEL, HOLDING = load_model(), load_calibration()


def laid_out(nodes, spec=None, previous=None):
    return lay_out(healthy_fabric(nodes), MODEL, HOLDING, spec, previous)


def test_the_papers_deployment_on_256_npus():
    deployment = laid_out(32)
    assert [len(instance) for instance in deployment.pools.prefill] == [2] * 6
    assert deployment.decode_dies == 320
    assert len(deployment.pools.caching) == 32
    assert deployment.batch_per_die == 48
    assert deployment.kv_tokens_per_die > 48 * (4096 + 256)


@pytest.mark.parametrize("nodes", range(2, 49))
def test_every_size_from_two_nodes_on_serves(nodes):
    deployment = laid_out(nodes)
    pools = deployment.pools
    playing = [*pools.decode, *(node for instance in pools.prefill for node in instance)]
    assert len(set(playing)) == len(playing) <= nodes
    assert pools.prefill
    assert pools.decode
    assert deployment.decode_layout.routed_slots >= 256
    assert all(layout.routed_slots >= 256 for layout in deployment.prefill_layouts)
    assert deployment.kv_tokens_per_die > 0


def test_one_node_is_refused_with_what_is_missing():
    with pytest.raises(DoesNotFit) as refused:
        laid_out(1)
    assert refused.value.blocking == [{"domain": "nodes", "needs": 2, "has": 1}]


def test_explicit_sizes_win_over_the_proportions():
    pools = laid_out(10, DeploymentShape(prefill_npus=16, decode_npus=32, caching_nodes=3)).pools
    assert (pools.prefill_nodes, len(pools.decode), len(pools.caching)) == (2, 4, 3)
    assert len(laid_out(10, DeploymentShape(prefill_npus=48)).pools.decode) == 4
    assert laid_out(10, DeploymentShape(decode_npus=32)).pools.prefill_nodes == 6


@pytest.mark.parametrize("npus", [0, 4, 12, 10**9])
def test_sizes_that_are_not_whole_nodes_or_too_many_are_refused(npus):
    with pytest.raises(ValidationError):
        DeploymentShape(decode_npus=npus)
    with pytest.raises(DoesNotFit):
        laid_out(8, DeploymentShape(decode_npus=512))


def test_weights_that_do_not_fit_are_refused_with_the_sizes():
    with pytest.raises(DoesNotFit, match="do not fit the memory") as refused:
        lay_out(healthy_fabric(2), MODEL, replace(HOLDING, hbm_gb=32.0))
    assert {entry["domain"] for entry in refused.value.blocking} == {"decode HBM of one die", "prefill HBM of one die"}


@given(nodes=st.integers(4, 48), data=st.data())
def test_survivors_of_a_loss_keep_their_part(nodes, data):
    before = laid_out(nodes)
    lost = data.draw(st.sampled_from(before.pools.decode))
    after = plan_change(before, before.fabric.without([lost]))
    kept = set(before.pools.decode) - {lost}
    still = set(after.deployment.pools.decode)
    assert lost not in still
    assert len(kept - still) <= max(0, len(before.pools.decode) - len(still))
    assert after.deployment.decode_layout.routed_slots >= 256
    more = after.deployment.decode_layout.experts_per_die - before.decode_layout.experts_per_die
    assert (after.pause_s == rebuild_s(HOLDING)) == (more <= 0)


def test_a_loss_pauses_decode_for_what_has_to_be_read():
    """EP320 has an expert a die, EP304 too; three nodes later two a die, which everybody reads."""
    before = laid_out(32)
    fewer = plan_change(before, before.fabric.without(before.pools.decode[:1]))
    assert fewer.pause_s == rebuild_s(HOLDING) == pytest.approx(10.7)
    half = plan_change(before, before.fabric.without(before.pools.decode[:10]))
    layout = half.deployment.decode_layout
    more = layout.experts_per_die - before.decode_layout.experts_per_die
    assert more > 0
    read = more * before.model.expert_bytes * layout.dies
    fabric, pools = half.deployment.fabric, half.deployment.pools
    rate = fetch_gbps(fabric, HOLDING, pools.decode, pools.caching, UB) * 1e9
    assert half.pause_s == pytest.approx(rebuild_s(HOLDING) + read / rate)
    slow = replace(half.deployment, fabric=fabric.scaled_by({UB: 0.1}))
    assert decode_pause_s(before, slow) > half.pause_s, "over ports that others have it takes longer"


def test_a_new_node_waits_until_it_has_loaded():
    before = laid_out(8)
    lost = before.pools.decode[0]
    fabric = healthy_fabric(9).without([lost])
    change = plan_change(before, fabric)
    assert change.added_nodes == ("sn0-c02-n0",)
    assert change.added_after_s > HOLDING.executor_start_s
    assert "sn0-c02-n0" not in change.deployment.pools.decode
    assert "sn0-c02-n0" in plan_scale_out(change.deployment, fabric).deployment.pools.decode


def test_a_change_of_rates_alone_costs_no_pause():
    before = laid_out(8)
    change = plan_change(before, healthy_fabric(8))
    assert (change.pause_s, change.start_s, change.added_nodes) == (0.0, 0.0, ())
