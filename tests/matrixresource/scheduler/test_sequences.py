"""Request sequences with known bounds: no rule is ever broken, and as much is completed as the policy promises.

The sequences and their bounds (what no policy can exceed) are those of the project's allocation data set.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.placement import Replay, read
from tests.matrixresource.scheduler.checker import LedgerChecker

FOLDER = Path(__file__).with_name("sequences")

# sequence: (bound of completed weighted NPU-hours, least share of it, NPUs moved at the least)
BOUNDS = {
    "churn-cm384-02": (1126.991, 0.995, 0),
    "constr-cm384-03": (49614.125, 0.747, 0),
    "defrag-cm384-01": (32.0, 0.999, 16),
    "defrag-cm384-03": (32, 0.999, 27),
    "defrag-cm384-05": (32, 0.999, 26),
    "fail-cm384-02": (28405.439, 0.904, 0),
    "fill-cm384-01": (389.64, 0.996, 0),
    "online-cm384-02": (38873.56, 0.862, 0),
    "pack-cm384-02": (125, 0.999, 0),
    "pool-cm384-02": (47299.472, 0.724, 0),
    "prio-cm384-03": (75499.94, 0.876, 0),
}


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_a_sequence_breaks_no_rule_and_reaches_its_share(name: str) -> None:
    bound, share, moved = BOUNDS[name]
    topology, *events = read(FOLDER / f"{name}.jsonl.gz")
    decisions = {decision["i"]: decision for decision in Replay(topology).run(events)}
    accountant = LedgerChecker(topology)
    for line, event in enumerate(events, 1):
        accountant.follow(event, decisions.get(line, {}))
    assert accountant.wrong == []
    assert share * bound <= accountant.value <= bound * 1.0001
    assert accountant.moved == moved


def test_policies_can_be_named() -> None:
    topology, *events = read(FOLDER / "fill-cm384-01.jsonl.gz")
    for policy in ("tightest", "learning"):
        assert any(decision["place"] for decision in Replay(topology, policy).run(events))
