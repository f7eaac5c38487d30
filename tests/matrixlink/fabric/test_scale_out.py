"""RDMA and VPC as physics: ports, trunks and cores bound what moves, whatever is lost of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fabric_traffic.collectives import CollectiveStep, all_reduce, all_to_all, duration, incast, kv_pull
from benchmarks.fabric_traffic.completion import run
from benchmarks.fabric_traffic.rdma_vpc_paths import RdmaPaths, VpcPaths
from matrixcommon.model.errors import InvalidField
from matrixlink.fabric.sharing.max_min_arrays import sum_by_link
from matrixlink.fabric.sharing.rates import compute_rates

NPU_GBPS = 50.0
NPUS = np.arange(384) * 2
"""Die 0 of every NPU of a supernode."""


def rate_per_transfer(made, step, parts):
    return compute_rates(made).reshape(len(step.source), parts).sum(1)


def test_a_cache_pull_over_rdma_runs_at_npu_rate():
    step = kv_pull(NPUS[:128], NPUS[128:256], 1e9)[0]
    assert rate_per_transfer(RdmaPaths().sprayed(step), step, 16) == pytest.approx(NPU_GBPS)
    assert run(RdmaPaths().sprayed(step)).makespan == pytest.approx(1e9 / NPU_GBPS)


def test_leaves_and_core_do_not_block():
    """Every NPU of one supernode to its like in another: ports are the only bound."""
    two = RdmaPaths(supernodes=2)
    step = CollectiveStep(NPUS, NPUS + 768, 1e9)
    assert run(two.sprayed(step)).makespan == pytest.approx(1e9 / NPU_GBPS)
    assert run(two.striped(step)).makespan == pytest.approx(1e9 / NPU_GBPS), (
        "the rule sends an even share to each spine"
    )


def test_hashing_collides_where_striping_does_not():
    step = CollectiveStep(NPUS, np.roll(NPUS, 32), 1e9)
    hashed = compute_rates(RdmaPaths().hashed(step, seed=3))
    assert len(hashed) == 384
    assert hashed.max() <= 25.0 + 1e-9, "one subnet's port each"
    assert hashed.min() < 25.0, "more than four on one trunk"
    assert run(RdmaPaths().striped(step)).makespan == pytest.approx(1e9 / NPU_GBPS)


def test_incast_of_eight_shares_two_ports():
    step = incast(NPUS[32:40], NPUS[0], 1e9)[0]
    assert rate_per_transfer(RdmaPaths().sprayed(step), step, 16) == pytest.approx(NPU_GBPS / 8)


@pytest.mark.parametrize(
    ("lost", "gbps"),
    [
        ({}, 50.0),
        ({"lost_ports": frozenset({(0, 0)})}, 25.0),
        ({"lost_leaves": frozenset({(0, 0, 1)})}, 25.0),
        ({"lost_ports": frozenset({(0, 0), (40, 1)})}, 25.0),
        ({"lost_spines": frozenset({(0, 3)})}, 50.0),
    ],
)
def test_lost_ports_and_leaves_halve_an_npu_and_a_spine_costs_its_share(lost, gbps):
    """NPU 0 to NPU 40; with one port each in different subnets they meet over the spines."""
    made = RdmaPaths(**lost).sprayed(CollectiveStep(np.array([0]), np.array([80]), 1e9))
    assert compute_rates(made).sum() == pytest.approx(gbps)


def test_one_spine_of_eight_costs_its_cabinet_an_eighth():
    step = CollectiveStep(NPUS, np.roll(NPUS, 32), 1e9)
    slowed = run(RdmaPaths(lost_spines=frozenset({(0, 3)})).sprayed(step)).makespan
    assert slowed == pytest.approx(1e9 / NPU_GBPS * 8 / 7)


@settings(max_examples=40, deadline=None)
@given(
    ports=st.frozensets(st.tuples(st.integers(0, 767), st.integers(0, 1)), max_size=40),
    spines=st.frozensets(st.tuples(st.integers(0, 1), st.integers(0, 7)), max_size=6),
    seed=st.integers(0, 1000),
)
def test_no_transfer_uses_lost_links_or_overfills_a_link(ports, spines, seed):
    paths = RdmaPaths(supernodes=2, lost_ports=ports, lost_spines=spines)
    both = {npu for npu, subnet in ports if (npu, 1 - subnet) in ports}
    alive = np.array([npu for npu in range(768) if npu not in both]) * 2
    chance = np.random.default_rng(seed)
    step = CollectiveStep(alive, np.roll(alive, int(chance.integers(1, len(alive)))), 1e6)
    for made in (paths.striped(step), paths.sprayed(step), paths.hashed(step, seed)):
        assert np.add.reduceat(made.size, np.r_[0]) == pytest.approx(1e6 * len(alive))
        load = sum_by_link(made, made.size)
        assert load[made.capacity == 0].sum() == 0
        carried = sum_by_link(made, compute_rates(made))
        assert (carried <= made.capacity * (1 + 1e-9)).all()


def test_vpc_is_bound_by_its_cards_and_their_limits():
    nodes = np.arange(8)
    step = all_to_all(nodes, 1e6)[0]
    assert run(VpcPaths(8).striped(step)).makespan == pytest.approx(7e6 / 50.0)
    limited = VpcPaths(8, (5.0, *[50.0] * 7))
    assert run(limited.striped(step)).makespan == pytest.approx(7e6 / 5.0)
    ring = all_reduce(nodes, 8e6)
    assert duration(ring, VpcPaths(8), latency_ns=50_000) == pytest.approx(14 * (1e6 / 50.0 + 50_000))


@pytest.mark.parametrize(
    ("paths", "step", "field"),
    [
        (RdmaPaths(), CollectiveStep(np.array([0]), np.array([1]), 1.0), "dies"),
        (RdmaPaths(), CollectiveStep(np.array([0]), np.array([768]), 1.0), "dies"),
        (RdmaPaths(lost_ports=frozenset({(0, 0), (0, 1)})), CollectiveStep(np.array([0]), np.array([2]), 1.0), "moves[0]"),
        (RdmaPaths(lost_spines=frozenset((0, k) for k in range(8))), CollectiveStep(np.array([0]), np.array([2]), 1.0), "lost_spines"),
        (VpcPaths(4), CollectiveStep(np.array([1]), np.array([1]), 1.0), "nodes"),
        (VpcPaths(4), CollectiveStep(np.array([1]), np.array([4]), 1.0), "nodes"),
    ],
)  # fmt: skip
def test_invalid_transfers_are_refused(paths, step, field):
    with pytest.raises(InvalidField) as refused:
        paths.striped(step)
    assert refused.value.field == field
