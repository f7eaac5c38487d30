"""Physics: no collective is faster than the links allow, and messages take what was measured within 5 %."""

import itertools

import numpy as np
import pytest

from benchmarks.fabric_traffic import message_latency
from benchmarks.fabric_traffic.collectives import (  # fmt: skip
    CollectiveStep,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    duration,
    incast,
    kv_pull,
)
from benchmarks.fabric_traffic.completion import PROPORTIONAL, run
from benchmarks.fabric_traffic.ub_paths import UbPaths
from matrixcommon.model.errors import InvalidField
from matrixcommon.model.planes import Plane
from matrixlink.fabric.sharing.max_min_arrays import sum_by_link
from matrixlink.fabric.sharing.rates import compute_rates

DIE_GBPS = 7 * 28.0


def busiest_link_ns(made):
    """The bytes of the fullest link over its rate: nobody's schedule is faster."""
    load = sum_by_link(made, made.size)
    used = load > 0
    return float((load[used] / made.capacity[used]).max())


def test_dispatch_among_320_dies_is_bound_by_its_ports():
    step = all_to_all(range(320), 7168)[0]
    striped = run(UbPaths.for_nodes(20).striped(step))
    assert len(striped.at) == 714_560
    assert striped.method == PROPORTIONAL
    assert striped.makespan == pytest.approx(319 * 7168 / DIE_GBPS, rel=1e-9)
    hashed = UbPaths.for_nodes(20).hashed(step, seed=1)
    assert run(hashed).makespan >= busiest_link_ns(hashed) * (1 - 1e-9) > 11_666


def test_eight_into_one_share_one_port():
    made = UbPaths.for_nodes(9).striped(incast([16 * n for n in range(8)], 16 * 8, 1e6)[0])
    assert compute_rates(made).max() <= 3.5 * (1 + 1e-12)


def test_a_lost_l2_chip_costs_its_share():
    """One of 112: at least 0.9 % spread over all sub-planes, a fifteenth where its own sub-plane takes its load."""
    dies = np.arange(32)
    step = CollectiveStep(dies, (dies + 16) % 32, 1e6)
    healthy, lost = UbPaths.for_nodes(2), UbPaths.for_nodes(2, frozenset({(3, 5)}))
    whole = run(healthy.sprayed(step)).makespan
    assert whole == pytest.approx(1e6 / DIE_GBPS)
    assert 1.0089 <= run(lost.sprayed(step)).makespan / whole <= 1.02
    for seed in range(3):
        made = lost.hashed(step, seed)
        assert sum_by_link(made, made.size)[made.capacity == 0].sum() == 0
    table = all_to_all(range(320), 1024)[0]
    slower = (
        run(UbPaths.for_nodes(20, frozenset({(3, 5)})).striped(table)).makespan
        / run(UbPaths.for_nodes(20).striped(table)).makespan
    )
    assert 1.0089 <= slower <= 1.10


@pytest.mark.parametrize("count", [1, 2, 5, 16, 40])
def test_collectives_bring_everything_to_everyone_at_their_bound(count):
    dies, size, paths = range(count), 1e6, UbPaths.for_nodes(3)
    assert duration(all_gather(dies, size), paths) == pytest.approx((count - 1) * size / DIE_GBPS)
    assert duration(all_reduce(dies, size), paths) == pytest.approx(2 * (count - 1) * size / count / DIE_GBPS)
    reached = {0}
    steps = broadcast(dies, size)
    for step in steps:
        assert set(step.source) <= reached
        reached |= set(step.target.tolist())
    assert reached == set(dies)
    assert len(steps) == (count - 1).bit_length()
    assert duration(steps, paths, latency_ns=1900) >= len(steps) * (size / DIE_GBPS + 1900) * (1 - 1e-9)


def test_decode_dies_pull_from_fewer_prefill_dies_round_robin():
    step = kv_pull([0, 1], [16, 17, 18], 5e5)[0]
    assert step.source.tolist() == [0, 1, 0]
    assert duration([step], UbPaths.for_nodes(2)) == pytest.approx(2 * 5e5 / DIE_GBPS)


def test_invalid_collectives_are_refused():
    for dies in ([], [1, 1]):
        with pytest.raises(InvalidField):
            all_to_all(dies, 1)
    gone = frozenset((0, chip) for chip in range(16))
    with pytest.raises(InvalidField):
        UbPaths.for_nodes(2, gone).striped(CollectiveStep(np.array([0]), np.array([16]), 1.0))


@pytest.mark.parametrize(
    "row", message_latency.table()["measured"], ids=lambda row: f"{row['target']}-{row['operation']}"
)
def test_message_times_match_measurements(row):
    for across, where in ((False, "intra"), (True, "inter")):
        asked = (row["target"], row["operation"], across)
        assert message_latency.message_us(512, *asked) == pytest.approx(row[f"{where}_us"], rel=0.05)
        long = 1e9
        assert long / message_latency.message_us(long, *asked) / 1e3 == pytest.approx(row[f"{where}_gbps"], rel=0.05)


def test_time_increases_with_size_and_slower_planes():
    for smaller, larger in itertools.pairwise([0, 1, 512, 4096, 1e6]):
        for plane in Plane:
            assert message_latency.message_us_on(plane, smaller) < message_latency.message_us_on(plane, larger)
    assert message_latency.message_us_on(Plane.UB, 512) < message_latency.message_us_on(Plane.RDMA, 512)
    with pytest.raises(InvalidField):
        message_latency.message_us(-1)
    with pytest.raises(InvalidField):
        message_latency.message_us(1, "disk")
