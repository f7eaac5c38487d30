"""What a scenario may say: whatever is wrong is refused by its field."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcommon.model.errors import InvalidField
from matrixcompute.scenarios.checks import parse
from matrixcompute.scenarios.schema import Condition, seconds
from tests.matrixcompute.scenarios.example import NODE_DOWN, changed

VERIFY = {"hardware": "victim", "where": {"powered": "false"}}
WRONG = [
    ("stopConditions", None, "stopConditions"),
    ("stopConditions", [], "stopConditions"),
    ("stopConditions", [{"source": "none"}, {"metric": "orphans", "above": 0}], "stopConditions[0].source"),
    ("stopConditions", [{"metric": "orphans"}], "stopConditions[0].metric"),
    ("stopConditions", [{"metric": "happiness", "above": 0}], "stopConditions[0].metric"),
    ("stopConditions", [{"above": 0}], "stopConditions[0]"),
    *(
        ("stopConditions", [{"metric": metric, "above": 0, "of": "demo"}], "stopConditions[0].of")
        for metric in ("links.down", "links.degraded", "nodes.available", "hardware.nodes-dark", "hardware.ports-dark",
                       "hardware.ports-narrow", "hardware.ports-lying")
    ),
    ("method.0.verify.of", "demo", "method[0].verify.of"),
    ("expect.2.of", "demo", "expect[2].of"),
    ("method.0.verify", None, "method[0].verify"),
    ("method.0.verify.hardware", "nobody", "method[0].verify.hardware"),
    ("method.0.fault", "gremlin", "method[0].fault"),
    ("method.0.fault", "switch-down", "method[0].target"),
    ("method.0.target", "nobody", "method[0].target"),
    ("method.0.at", "soon", "method[0].at"),
    ("method.0.at", "200h", "method[0].at"),
    ("method.0.duration", "0s", "method[0].duration"),
    ("method.0.surprise", "x", "method[0].surprise"),
    ("method.0.parameters", {"npu": 3}, "method[0].parameters.npu"),
    ("method", [{**NODE_DOWN["method"][0]}, {**NODE_DOWN["method"][0]}], "method[1].name"),
    ("targets.victim.mode", "SOME", "targets.victim.mode"),
    ("targets.victim.mode", "COUNT(0)", "targets.victim.mode"),
    ("targets.victim.mode", "PERCENT(101)", "targets.victim.mode"),
    ("targets.victim.empty", "skip", "targets.victim.empty"),
    ("targets.victim.select", {"role": "spare"}, "targets.victim.select.role"),
    ("expect", [], "expect"),
    ("expect.0.within", None, "expect[0].within"),
    ("expect.0.after", "dusk", "expect[0].after"),
    ("expect.0.of", "nobody", "expect[0].of"),
    ("expect.1.where", {"x": "y"}, "expect[1].where"),
    ("expect.1.floor", "held", "expect[1].floor"),
    ("expect.0.within", "200h", "expect[0].within"),
    ("expect.1.state", "Active", "expect[1].state"),
    ("expect.2.event", "NodeReplaced", "expect[2]"),
    ("expect.2", {"target": "nobody", "within": "1m"}, "expect[2].target"),
    ("stopConditions", [{"source": "none", "metric": "orphans", "above": 0}], "stopConditions[0].source"),
    ("control.skip", ["dusk"], "control.skip[0]"),
    ("control.expect.0.after", "dusk", "control.expect[0].after"),
    ("rollback", "never", "rollback"),
    ("given.demo.nodes", 0, "given.demo.nodes"),
    ("given.demo.project", "red", "given.demo.project"),
    ("kind", "MatrixFault", "kind"),
    ("name", "NO", "name"),
]  # fmt: skip


def test_example_is_valid() -> None:
    name, found = parse(changed(), "example")
    assert (name, found.method[0].name, found.rollback) == ("example", "dark", "always")
    assert parse({"source": "none", **changed()}, "example")[1].source == "none"


@pytest.mark.parametrize(("path", "value", "field"), WRONG)
def test_invalid_scenario_is_refused_with_its_field(path: str, value: Any, field: str) -> None:
    document = changed(path, value) if "." in path or path in NODE_DOWN else {**changed(), path: value}
    with pytest.raises(InvalidField) as refused:
        parse(document, "example")
    assert refused.value.field == field


def test_switch_hardware_cannot_be_counted() -> None:
    document = changed("targets.chip", {"type": "switch", "select": {"kind": "l2"}})
    document["expect"].append({"hardware": "chip", "within": "1m"})
    with pytest.raises(InvalidField) as refused:
        parse(document, "example")
    assert refused.value.field == "expect[3]"


def test_first_problem_is_reported() -> None:
    document = changed("method.0.fault", "gremlin")
    document["control"]["skip"] = ["dusk"]
    with pytest.raises(InvalidField) as refused:
        parse(document, "example")
    assert refused.value.field == "method[0].fault"


def test_kubernetes_resource_has_the_scenario_in_its_spec() -> None:
    spec = {key: value for key, value in changed().items() if key != "kind"}
    resource = {"apiVersion": "cloudmatrix.io/v1alpha1", "kind": "MatrixFaultScenario", "metadata": {"name": "one"}}
    assert parse({**resource, "spec": {**spec, "suspend": True}}, "file") == ("one", parse(changed(), "one")[1])
    with pytest.raises(InvalidField) as refused:
        parse({**resource, "spec": {**spec, "stopConditions": []}}, "file")
    assert refused.value.field == "spec.stopConditions"


@pytest.mark.parametrize(
    ("text", "long"), [("500ms", 0.5), ("60s", 60), ("5m", 300), ("1h", 3600), ("1.5s", 1.5), ("0s", 0)]
)
def test_durations(text: str, long: float) -> None:
    assert seconds(text) == long


@pytest.mark.parametrize(
    ("bounds", "number", "of_how_many", "holds"),
    [
        ({}, 1, 1, True),
        ({}, 0, 1, False),
        ({}, 2, 3, False),
        ({}, 0, 0, False),
        ({"count": 0}, 0, 3, True),
        ({"count": 0}, 1, 3, False),
        ({"min": 2, "max": 3}, 3, 9, True),
        ({"min": 2, "max": 3}, 4, 9, False),
        ({"min": 2}, 1, 1, False),
        ({"above": 0}, 0, 1, False),
        ({"above": 0}, 1, 1, True),
        ({"below": 2}, 2, 1, False),
        ({"below": 2}, 1, 1, True),
    ],
)
def test_bounds(bounds: dict[str, float], number: float, of_how_many: int, holds: bool) -> None:
    assert Condition.model_validate({"metric": "orphans", **bounds}).holds(number, of_how_many) is holds
