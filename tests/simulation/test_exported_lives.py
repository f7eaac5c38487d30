"""A life that failed is written as a scenario: one that parses, says when what befell it, and can be run."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis.stateful import RuleBasedStateMachine, rule

from matrixcompute.scenarios.checks import parse
from matrixcompute.scenarios.preflight import preview
from matrixcompute.scenarios.runner import ScenarioRunner
from matrixcompute.scenarios.service_clients import ServiceClients
from tests.simulation import test_rest_machines
from tests.simulation.exported_life import History
from tests.simulation.rest_mishaps import FAULTS
from tests.small_stack import SmallStack

NODE = "sn0-c01-n0"


def lived() -> History:
    history = History()
    for name in ("one", "two"):
        body = {"nodes": 2, "project": "red", "leaseS": 100, "network": {"rdma": {"floorGbpsPerNpu": 25.0}}}
        history.heard(90.0, "compute", "PUT", f"/v1/instances/{name}", body)
    history.saw(
        [{"project": "red", "name": "one", "state": "Active"}, {"project": "red", "name": "two", "state": "Pending"}]
    )
    history.heard(100.0, "agents", "PUT", "/v1/faults/f0", {"kind": "node-down", "target": NODE})
    history.heard(101.0, "agents", "PUT", "/v1/faults/f0", {"kind": "node-down", "target": NODE})
    history.heard(105.0, "link", "PUT", "/v1/slices/s0", {})
    history.heard(130.5, "agents", "DELETE", "/v1/faults/f0", None)
    fault = {"kind": "npu-fault", "target": NODE, "parameters": {"npu": 1, "code": "80C98000"}}
    history.heard(140.0, "agents", "PUT", "/v1/faults/f0", fault)
    return history


def test_export_lists_faults_in_time_order_and_counts_the_rest(tmp_path: Path) -> None:
    history = lived()
    history.killed(150.0, "compute")
    history.heard(155.0, "agents", "PUT", "/v1/faults/f1", {"kind": "tables-corrupted", "target": NODE})
    name, scenario = parse(yaml.safe_load(history.export(200.0, tmp_path).read_text()), "x")
    assert name.startswith("life-")
    assert [(each.fault, each.at, each.duration) for each in scenario.method] == [
        ("node-down", "10.000s", "30.500s"),
        ("npu-fault", "50.000s", "60.000s"),
        ("service-killed", "60.000s", None),
    ]
    assert scenario.method[1].parameters == {"npu": "1", "code": "80C98000"}
    assert list(scenario.given) == ["red/one"], "what never was Active is nobody's to expect"
    assert scenario.given["red/one"].lease_s is None
    assert "1 of its faults" in scenario.explanation
    assert "1 x PUT slices" in scenario.explanation


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: each["kind"])
def test_every_simulated_fault_is_exported_or_counted(tmp_path: Path, fault: dict[str, object]) -> None:
    history = lived()
    history.heard(160.0, "agents", "PUT", "/v1/faults/f2", {"target": NODE, **fault})
    _, scenario = parse(yaml.safe_load(history.export(200.0, tmp_path).read_text()), "x")
    assert len(scenario.method) == (2 if fault["kind"] in ("cable-moved", "tables-corrupted") else 3)


def test_run_without_faults_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="nothing befell"):
        History().export(1.0, tmp_path)


@pytest.mark.looptime
async def test_exported_scenario_is_valid(tmp_path: Path) -> None:
    name, scenario = parse(yaml.safe_load(lived().export(200.0, tmp_path).read_text()), "x")
    async with SmallStack(tmp_path) as stack:
        shown = await preview(name, scenario, ServiceClients(stack.http))
        assert shown.actions == [
            f"10.000s: node-down on {NODE} for 30.500s",
            f"50.000s: npu-fault on {NODE} for 60.000s",
        ]
        assert len(shown.given["red/one"]) == 2


@pytest.mark.soak
@pytest.mark.looptime
async def test_exported_scenario_can_be_run(tmp_path: Path) -> None:
    file = lived().export(200.0, tmp_path)
    name, scenario = parse(yaml.safe_load(file.read_text()), "x")
    async with SmallStack(tmp_path) as stack:
        report = await ScenarioRunner(name, scenario, ServiceClients(stack.http), stack.clock, "scenario-test-").run()
        assert report.verdict == "PASS", report.reason


def test_failure_prints_the_path_of_its_export() -> None:
    class Doomed(RuleBasedStateMachine):
        exported = ""

        @rule()
        def nothing(self) -> None:
            type(self).exported = "What befell it, as a scenario: /there/life.yaml"
            raise AssertionError("something is broken")

    with pytest.raises(AssertionError) as failed:
        test_rest_machines.live(Doomed, 1, 1)  # type: ignore[type-var,arg-type]
    assert any("/there/life.yaml" in note for note in failed.value.__notes__)
