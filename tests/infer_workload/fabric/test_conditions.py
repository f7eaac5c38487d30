"""A trial beside a neighbour, or on a fabric with losses: its flows get what the fabric core says, and steps take that."""

from __future__ import annotations

import pytest

from infer_workload.experiments.conditions import TrialContention
from infer_workload.experiments.experiment import healthy_fabric, run
from infer_workload.experiments.trial import trial_of
from infer_workload.experiments.what_ifs import what_if
from infer_workload.layout.deployment import Deployment, lay_out
from infer_workload.timing.calibration import load_calibration
from infer_workload.timing.contention import MeasuredContention
from infer_workload.timing.fabric import RDMA, UB
from infer_workload.timing.model import load_model

NODES = 8
DIE_GBPS = 196.0
AWAY = 80 / 95
"""Of what a die sends the others of six nodes: the rest stays in its own and takes no cable."""


def laid_out(**changes) -> Deployment:
    trial = trial_of({"generate": 1, "nodes": NODES, **changes})
    fabric = healthy_fabric(NODES)
    if trial.contended:
        fabric = fabric.with_contention(TrialContention(trial, tuple(fabric.nodes), load_calibration()))
    return lay_out(fabric, load_model(), load_calibration(), trial.shape())


def decode_gbps(**changes) -> float:
    return laid_out(**changes).decode_timing().exchange.rate_gbps()


@pytest.mark.parametrize(
    ("changes", "gbps"),
    [
        ({}, DIE_GBPS),
        ({"neighbour_load": 0.5}, DIE_GBPS / 2),
        ({"neighbour_load": 0.25}, DIE_GBPS * 3 / 4),
        ({"neighbour_load": 1.0, "neighbour_weight": 3.0}, DIE_GBPS / 4),
        ({"neighbour_load": 1.0, "neighbour_weight": 3.0, "floor_share": 0.75}, DIE_GBPS * (0.75 + 0.25 / 4)),
        ({"neighbour_load": 0.5, "neighbour_plane": "rdma"}, DIE_GBPS),
        ({"lost_l2_chips": 1}, DIE_GBPS),
        ({"lost_l2_chips": 56}, DIE_GBPS / 2 / AWAY),
        ({"half_lanes": 1}, DIE_GBPS / 2 / AWAY),
        ({"half_lanes": 1, "ub_share": 0.25}, DIE_GBPS / 4),
    ],
)
def test_dies_exchange_at_what_the_core_gives(changes, gbps):
    """Sums by hand."""
    assert decode_gbps(**changes) == pytest.approx(gbps, rel=0.01)


def test_a_slower_exchange_is_a_longer_step_and_nothing_else():
    beside = laid_out(neighbour_load=0.5)
    timing = beside.decode_timing()
    nodes = frozenset(beside.pools.decode)
    alone = laid_out()
    given = MeasuredContention({nodes: timing.exchange.rate_gbps()})
    same = lay_out(healthy_fabric(NODES).with_contention(given), load_model(), load_calibration()).decode_timing()
    assert timing.exact_step_s(48, 48 * 4096) == same.exact_step_s(48, 48 * 4096)
    assert timing.exact_step_s(48, 48 * 4096) > 1.02 * alone.decode_timing().exact_step_s(48, 48 * 4096)


def test_ports_have_left_what_the_neighbour_does_not_send():
    fabric = laid_out(neighbour_load=0.25, neighbour_plane="rdma").fabric
    node = fabric.nodes[0]
    assert fabric.die_gbps(RDMA, node, 1, into=True) == pytest.approx(25 * 0.75)
    assert fabric.node_gbps(RDMA, node) == pytest.approx(400 * 0.75)
    assert fabric.node_gbps(UB, node) == pytest.approx(3136)


def test_prefill_instances_are_slowed_too_and_those_that_are_left_after_a_loss():
    beside, alone = laid_out(neighbour_load=0.5), laid_out()
    chunk = [(16384, 0)]
    assert beside.prefill_timing(0).exact_chunk_s(chunk) > 1.02 * alone.prefill_timing(0).exact_chunk_s(chunk)
    fewer = beside.fabric.without([beside.pools.decode[-1]])
    assert lay_out(fewer, load_model(), load_calibration()).decode_timing().exchange.rate_gbps() < 0.6 * DIE_GBPS


@pytest.mark.parametrize(
    "name", ["neighbour-fills-half", "greedy-neighbour-and-a-floor", "lose-an-l2-chip", "busy-rdma"]
)
def test_a_trial_beside_others_serves_everybody_and_is_the_same_each_time(name):
    trial = what_if(name, trial_of({"generate": 60, "nodes": NODES, "rate": 20}))
    one, other = run(trial), run(trial)
    assert one.report.finished == 60
    assert one.report == other.report
