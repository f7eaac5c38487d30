"""The quality of the tables, as peers are measured by; and the physical limits that no tables can pass."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fabric_traffic.element_events import lost
from benchmarks.fabric_traffic.table_quality import (
    all_dies,
    all_to_all_factor,
    all_to_all_slowdown,
    pattern_rates,
    permutations,
    shifts,
)
from matrixlink.forwarding.clos_shape import ClosShape
from matrixlink.forwarding.forwarding_tables import ForwardingTables
from matrixlink.forwarding.live_flows import LiveFlows
from matrixlink.forwarding.path_policies import ECMP, PLANNED, SPRAY, STATIC, Transfers

ORACLE = Path(__file__).parents[1] / "fabric" / "oracle"
FACTS = [
    case
    for case in map(json.loads, (p.read_text() for p in sorted(ORACLE.glob("D*.json"))))
    if case["rule"] == "reachability"
]


def tables_after(*events):
    tables = ForwardingTables(ClosShape())
    tables.take(events)
    return tables


WHOLE, CHIP, CABLE = tables_after(), tables_after(lost("l2", 0, 0, 3)), tables_after(lost("cable", 0, 5, 3))


def test_undamaged_tables_are_even_and_shifts_run_at_full_rate():
    assert all_to_all_factor(WHOLE, 0) == 1.0
    assert all_to_all_slowdown(WHOLE) == 1.0
    assert pattern_rates(WHOLE, 2, shifts(ClosShape(), 9)).slowest == 28.0


@pytest.mark.parametrize("tables", [CHIP, CABLE], ids=["chip", "cable"])
def test_a_loss_is_spread_within_the_sub_plane_and_weighted_over_all(tables):
    assert all_to_all_factor(tables, 0) == pytest.approx(51 / 47)  # 47 entries a cable, at most 4 more
    assert all_to_all_factor(tables, 1) == 1.0
    assert all_to_all_slowdown(tables) <= 1.02


def test_one_chip_of_112_costs_at_least_its_part():
    assert all_to_all_slowdown(CHIP) >= 112 / 111


@pytest.mark.parametrize("chips", [1, 2, 5, 15])
def test_no_tables_carry_more_than_remains(chips):
    tables = tables_after(*(lost("l2", 0, 0, chip) for chip in range(chips)))
    assert all_to_all_factor(tables, 0) >= 16 / (16 - chips)
    assert 112 / (112 - chips) <= all_to_all_slowdown(tables) <= 1.01 * 112 / (112 - chips)


def test_a_node_without_a_sub_plane_has_six_sevenths():
    assert all_to_all_slowdown(tables_after(lost("l1", 3, 9))) == pytest.approx(7 / 6)
    assert all_to_all_slowdown(tables_after(*(lost("l1", plane, 9) for plane in range(7)))) == float("inf")


def test_permutations_by_policy():
    drawn = permutations(ClosShape(), 7, 12)
    static, planned, hashed, sprayed = (pattern_rates(WHOLE, 0, drawn, p) for p in (STATIC, PLANNED, ECMP, SPRAY))
    assert static.mean == pytest.approx(18.45, abs=0.3)
    assert planned.slowest == 28.0
    assert hashed.mean < static.mean
    assert sprayed.slowest == pytest.approx(28.0)
    assert pattern_rates(CHIP, 0, drawn, PLANNED).mean <= 28.0 * 15 / 16  # some node sends all its dies elsewhere
    assert pattern_rates(CHIP, 0, drawn, SPRAY).mean <= 28.0


def test_the_weight_factor_equals_max_min_sharing():
    """An all-to-all of a smaller plane, shared max-min: its slowest flow has 1/factor of what even load would give."""
    shape = ClosShape(nodes=12, sub_planes=1, dies=4, cpus=0, chips=4, die_gbps=1e6)
    for events in ([], [lost("l2", 0, 0, 2)], [lost("l2", 0, 0, 2), lost("l2", 0, 0, 3)]):
        tables = ForwardingTables(shape)
        tables.take(events)
        dies = all_dies(shape)
        source, target = np.repeat(dies, len(dies)), np.tile(dies, len(dies))
        across = source // shape.ends != target // shape.ends
        flows = LiveFlows(tables)
        flows.put({"a": Transfers.of(shape, source[across], target[across])})
        even = 28.0 / (11 * 4)
        assert flows.rate.min() == pytest.approx(even / all_to_all_factor(tables, 0))


@pytest.mark.parametrize("case", FACTS, ids=lambda case: case.get("title", case["rule"])[:40])
def test_facts_after_failures_of_the_oracle(case):
    """Usable chips of node pairs, and how many entries of the plain rule lead nowhere."""
    failed = case["topology"]
    tables = tables_after(
        *(lost("l2", plane, 0, chip) for plane, chip in failed.get("failed_l2", [])),
        *(lost("cable", plane, node, chip) for plane, node, chip in failed.get("failed_cables", [])),
    )
    for pair in case["expect"]["pairs"]:
        usable = np.bitwise_count(tables.left.pairs[:, pair["src"], pair["dst"]])
        assert usable.tolist() == pair["usable_l2"]
        assert np.flatnonzero(usable == 0).tolist() == pair["dead_planes"]
    broken = (WHOLE.l1[..., :16] != tables.l1[..., :16]).sum()
    assert broken == case["expect"]["default_dst_die_routes_broken"]
