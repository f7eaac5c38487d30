"""Disruption budgets: how many, for which reasons, and when; the strictest of those that hold."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from matrixcompute.maintenance.budgets import DisruptionBudgetSpec, limits_of
from matrixresource.contract.nodes import NodeView


def budget(nodes: str = "3", **more: Any) -> DisruptionBudgetSpec:
    return DisruptionBudgetSpec.model_validate({"nodes": nodes, **more})


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


OFFICE_HOURS = {"schedule": "0 9 * * mon-fri", "durationS": 8 * 3600}


@pytest.mark.parametrize(
    ("sentence", "schedule", "moment", "holds"),
    [
        ("from its first minute", OFFICE_HOURS, "2026-11-23T09:00:00", True),
        ("and within it", OFFICE_HOURS, "2026-11-23T09:00:30", True),
        ("not a moment before", OFFICE_HOURS, "2026-11-23T08:59:59", False),
        ("to its last second", OFFICE_HOURS, "2026-11-23T16:59:59", True),
        ("and no longer", OFFICE_HOURS, "2026-11-23T17:00:00", False),
        ("on its days alone", OFFICE_HOURS, "2026-11-22T10:00:00", False),
        ("past midnight", {"schedule": "0 22 * * *", "durationS": 4 * 3600}, "2026-11-23T01:30:00", True),
        ("longer than its period: always", {"schedule": "@x", "durationS": 7200}, "2026-11-23T01:30:00", True),
        ("without a timetable always", {}, "2026-11-23T03:00:00", True),
    ],
)
def test_budget_in_force(sentence: str, schedule: dict[str, Any], moment: str, holds: bool) -> None:
    schedule = schedule | ({"schedule": "0 * * * *"} if schedule.get("schedule") == "@x" else {})
    assert budget(**schedule).in_force(at(moment)) is holds, sentence


def test_budget_limit() -> None:
    assert [budget(nodes).nodes_max(48) for nodes in ("0", "3", "10%", "100%", "0%")] == [0, 3, 5, 48, 0]


def node(name: str) -> NodeView:
    return NodeView.model_construct(name=name, supernode=name.partition("-")[0])


def test_limits_by_reason_and_supernode() -> None:
    nodes = [node(f"sn{supernode}-c00-n{number}") for supernode in (0, 1) for number in range(4)]
    budgets = {
        "all": budget("50%"),
        "firmware": budget("1", reasons=["Firmware"], supernode="sn1"),
        "service": budget("0", reasons=["Service"]),
        "nights": budget("0", schedule="0 22 * * *", durationS=3600),
    }
    out = {"sn0-c00-n1", "sn1-c00-n0", "sn7-c00-n0"}
    found = limits_of(budgets, "Firmware", nodes, out, at("2026-11-23T10:00:00"))
    shown = [(each.budget, sorted(each.nodes)[0], each.out_max, sorted(each.out)) for each in found]
    assert shown == [
        ("all", "sn0-c00-n0", 2, ["sn0-c00-n1"]),
        ("all", "sn1-c00-n0", 2, ["sn1-c00-n0"]),
        ("firmware", "sn1-c00-n0", 1, ["sn1-c00-n0"]),
    ]
    nights = limits_of(budgets, "Firmware", nodes, out, at("2026-11-23T22:10:00"))
    assert [each.out_max for each in nights if each.budget == "nights"] == [0, 0]
