"""A scaling policy played over a trace: what is counted, what is compared, and what a trace cannot show."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infer_workload.experiments.autoscale import (
    OfferedLoad,
    Outcome,
    Trace,
    fixed_size_policy,
    min_fixed_size,
    read_policy,
    simulate,
    with_changes,
)
from infer_workload.experiments.autoscale_nodes import Nodes, work_on
from infer_workload.experiments.experiment import generate_arrivals
from matrixcommon.model.errors import InvalidField
from matrixcompute.autoscaling.decision import Observation
from matrixcompute.autoscaling.policy import PoolSizes, ScalingPolicyRequest
from matrixcompute.autoscaling.pools import PoolsObservation
from matrixcompute.reconcilers.scaling_signals import observe_pools, observe_target
from tests.services.matrixctl.inprocess import run_matrixctl

POLICY = {"scaleTargetRef": {"name": "served"}, "minReplicas": 3, "maxReplicas": 16}
OBJECTIVES = {"ttft_s": 2.0, "tpot_s": 0.05}


@pytest.fixture(scope="module")
def trace() -> Trace:
    """An hour whose middle has four times the requests of its ends."""
    return Trace(generate_arrivals(18_000, seed=7, requests_per_second=5.0)).with_swing(0.6, 3600)


def played(trace: Trace, **changes: Any) -> Outcome:
    return simulate(trace, read_policy(with_changes(POLICY, changes)), **OBJECTIVES)


def test_a_fixed_size_costs_its_nodes_for_the_whole_trace(trace: Trace) -> None:
    outcome = simulate(trace, fixed_size_policy(read_policy(POLICY), 8), **OBJECTIVES)
    assert outcome.node_hours == pytest.approx(8 * outcome.seconds / 3600)
    assert (outcome.changes, outcome.nodes_least, outcome.nodes_most) == (0, 8, 8)


def test_more_nodes_keep_nobody_waiting_longer(trace: Trace) -> None:
    found = [simulate(trace, fixed_size_policy(read_policy(POLICY), nodes), **OBJECTIVES) for nodes in (4, 6, 10, 16)]
    assert [each.wait_p90_s for each in found] == sorted((each.wait_p90_s for each in found), reverse=True)
    assert found[0].within_ttft < 0.5 < 0.95 < found[-1].within_ttft


def test_a_policy_that_never_scales_is_shown_as_the_fixed_size_that_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows are there to be compared, so a request costs the same in all of them, whatever their `maxReplicas`."""
    file = tmp_path / "policy.yaml"
    file.write_text("{scaleTargetRef: {name: served}, minReplicas: 4, maxReplicas: 10, predictive: 'Off'}")
    line = ["experiment", "autoscale", "-f", str(file), "--generate", "200", "--rate", "1", "--attained", "0.5"]
    code, out, _ = run_matrixctl(capsys, *line, "--over", "maxReplicas=4,10", "-o", "json")
    assert code == 0
    found = json.loads(out)
    outcomes = [*found["points"], found["fixed"]]
    assert [(each["nodes_least"], each["nodes_most"]) for each in outcomes] == [(4, 4)] * 3, "none of them scales"
    figures = [(each["within_ttft"], each["within_tpot"], each["wait_p90_s"]) for each in outcomes]
    assert figures[0] == figures[1] == figures[2]


def test_a_policy_follows_the_load_and_costs_less_than_the_static_peak(trace: Trace) -> None:
    nodes, static = min_fixed_size(trace, read_policy(POLICY), 0.95, **OBJECTIVES)
    assert nodes is not None
    assert (
        simulate(trace, fixed_size_policy(read_policy(POLICY), nodes - 1), layout_nodes=16, **OBJECTIVES).within_ttft
        < 0.95
        <= static.within_ttft
    )
    outcome = played(trace, **{"objective.utilization": 0.8, "predictive": "Off"})
    assert outcome.nodes_least < nodes <= outcome.nodes_most + 1
    assert outcome.node_hours < static.node_hours


def test_pools_are_sized_each_by_its_own_work(trace: Trace) -> None:
    """Prompts alone grow, and so do the nodes that read them alone."""
    grown = copy(trace)
    grown.new = trace.new * np.linspace(1.0, 4.0, len(trace.new))
    before, after = (played(each, pools={}) for each in (trace, grown))
    assert after.nodes_most > before.nodes_most
    whole = played(grown)
    assert after.within_tpot > 0.99
    assert after.node_hours < whole.node_hours, "one number grows both pools for the sake of one"


def test_nodes_change_their_role_where_the_size_is_fixed(trace: Trace) -> None:
    shifted = copy(trace)
    half = len(trace.at) // 2
    shifted.new = np.concatenate([trace.new[:half] * 0.3, trace.new[half:] * 3.0])
    shifted.answer = np.concatenate([trace.answer[:half] * 1.5, trace.answer[half:] * 0.3])
    outcome = played(shifted, pools={}, minReplicas=12, maxReplicas=12)
    assert (outcome.nodes_least, outcome.nodes_most) == (12, 12)
    assert "RolesRebalanced" in {reason for _, _, reason in outcome.sizes}
    assert outcome.node_hours == pytest.approx(12 * outcome.seconds / 3600, rel=0.05)


def test_a_policy_is_shown_what_a_deployment_shows_it(trace: Trace) -> None:
    """The same figures through MatrixCompute's own reading of a deployment are the same observation."""
    work = work_on(16, trace.context, OBJECTIVES["tpot_s"])
    prefill, decode = Nodes(4), Nodes(6)
    seen = OfferedLoad(trace, work, OBJECTIVES["tpot_s"], pooled=True).observe(900, 0.0, prefill, decode, 60.0, 3)
    assert isinstance(seen, PoolsObservation)
    view = {"roles": {f"n{at}": "prefill" if at < 4 else "decode" for at in range(10)}}
    shown = {
        "prefillNodes": seen.prefill.load, "prefillBacklogNodeSeconds": seen.prefill.backlog,
        "promptS": seen.prefill.stays_s, "prefillInstanceNodes": work.prefill_instance_nodes,
        "decodeNodes": seen.decode.load, "staysS": seen.decode.stays_s, "decodeNodesMin": work.decode_nodes_min,
        "cachingNodes": None,
    }  # fmt: skip
    assert observe_pools(seen.whole, PoolSizes(prefill=4, decode=6), view, {"work": shown}) == seen

    both = Nodes(10)
    whole = OfferedLoad(trace, work, OBJECTIVES["tpot_s"], pooled=False).observe(900, 0.0, both, both, 60.0, 3)
    assert isinstance(whole, Observation)
    work_shown = {"nodes": whole.load, "backlogNodeSeconds": whole.backlog, "startS": 60.0, "staysS": whole.stays_s}
    statistics = {"served": {"work": work_shown | {"decodeNodesMin": work.decode_nodes_min}}}
    policy = ScalingPolicyRequest.model_validate(POLICY)
    assert observe_target(Observation(10, 10), statistics, policy) == replace(whole, idle_s=0.0)


def test_a_longer_window_for_shrinking_costs_more(trace: Trace) -> None:
    path = "behavior.scaleDown.stabilizationWindowSeconds"
    short, long = played(trace, **{path: 60}), played(trace, **{path: 1800})
    assert short.node_hours < long.node_hours
    assert short.changes >= long.changes


def test_a_slower_start_keeps_more_waiting(trace: Trace) -> None:
    policy = read_policy(with_changes(POLICY, {"predictive": "Off"}))
    quick, slow = (simulate(trace, policy, start_s=start, **OBJECTIVES) for start in (5.0, 600.0))
    assert slow.within_ttft < quick.within_ttft


def test_the_same_trace_and_policy_find_the_same(trace: Trace) -> None:
    assert played(trace) == played(trace)


def test_what_swings_keeps_its_requests_and_its_length(trace: Trace) -> None:
    steady = Trace(generate_arrivals(18_000, seed=7, requests_per_second=5.0))
    again = steady.with_swing(0.6, 3600)
    assert len(again.at) == len(steady.at)
    assert again.at[-1] == pytest.approx(steady.at[-1], rel=0.2)
    counts = [int(((again.at >= at) & (again.at < at + 600)).sum()) for at in (0, 1500)]
    assert counts[1] > 2 * counts[0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"minReplicas": 0}, "minReplicas"),
        ({"maxReplicas": 60}, "maxReplicas"),
        ({"pools": {"caching": {}}}, "pools.caching"),
        ({"behavior.scaleDown.window": 5}, "behavior.scaleDown.window"),
        ({"objective.utilization": 7}, "objective.utilization"),
    ],
)
def test_what_a_trace_cannot_show_is_refused_with_its_field(trace: Trace, change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as refused:
        played(trace, **change)
    assert refused.value.field == field


def test_the_command_prints_each_point_and_the_fixed_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps({"kind": "ScalingPolicy", "spec": POLICY}))
    asked = ("experiment", "autoscale", "-f", str(file), "--generate", "2000", "--rate", "6", "--swing", "0.5")
    code, out, _ = run_matrixctl(capsys, *asked, "--over", "predictive=Off,Auto", "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert [point["varied"] for point in found["points"]] == [{"predictive": "Off"}, {"predictive": "Auto"}]
    assert found["fixed"]["nodes_least"] == found["fixed"]["nodes_most"]
    code, _, err = run_matrixctl(capsys, *asked, "--over", "minReplicas=x")
    assert code == 1
    assert "minReplicas" in err
