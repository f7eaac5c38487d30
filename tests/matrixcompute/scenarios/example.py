"""A scenario to be changed by tests: a node of an instance loses power, and another takes its place."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from matrixcompute.scenarios.checks import parse
from matrixcompute.scenarios.schema import Scenario

NODE_DOWN: dict[str, Any] = {
    "kind": "MatrixFaultScenario",
    "title": "A member loses power",
    "seed": 7,
    "given": {"demo": {"nodes": 3, "spares": 1}},
    "targets": {"victim": {"type": "node", "select": {"instance": "demo", "role": "member"}, "mode": "COUNT(1)"}},
    "steadyState": [{"instance": "demo", "state": "Active", "mode": "both", "within": "10m"}],
    "stopConditions": [{"metric": "nodes.lost", "above": 2}],
    "method": [
        {
            "name": "dark",
            "fault": "node-down",
            "target": "victim",
            "at": "10s",
            "verify": {"hardware": "victim", "where": {"powered": "false"}, "within": "1s"},
        }
    ],
    "expect": [
        {"fault": "NodeLost", "of": "victim", "within": "120s", "mode": "reached"},
        {"event": "NodeReplaced", "of": "demo", "count": 1, "within": "4m"},
        {"instance": "demo", "state": "Active", "floor": "held", "within": "4m"},
    ],
    "control": {"skip": ["dark"], "expect": [{"event": "NodeReplaced", "count": 0, "within": "90s", "mode": "always"}]},
}


def changed(path: str = "", value: Any = None) -> dict[str, Any]:
    """The example with one field of it otherwise (`method.0.at`); None takes it away."""
    document: Any = deepcopy(NODE_DOWN)
    if path:
        *way, last = path.split(".")
        at = document
        for step in way:
            at = at[int(step)] if isinstance(at, list) else at[step]
        key: Any = int(last) if isinstance(at, list) else last
        if value is None:
            del at[key]
        else:
            at[key] = value
    found: dict[str, Any] = document
    return found


def scenario(path: str = "", value: Any = None) -> Scenario:
    return parse(changed(path, value), "example")[1]
