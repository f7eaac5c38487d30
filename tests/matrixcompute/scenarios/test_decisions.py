"""What is decided without asking anybody: whom a target means, and whether an expectation is met."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixcommon.model.clock import ScaledClock, with_wall_floor
from matrixcompute.scenarios.context import RunContext
from matrixcompute.scenarios.readings import text_at
from matrixcompute.scenarios.schema import Expectation
from matrixcompute.scenarios.targets import choose_resources
from matrixcompute.scenarios.tracking import Tracker
from matrixresource.contract.agents import LOST_AFTER_LEASES
from services.node_agent.agents.agent_channels import LEASE_FLOOR_WALL_S, LEASE_S

NAMES = st.lists(st.text("abc123", min_size=1, max_size=4), unique=True, max_size=60)
MODES = st.one_of(
    st.just("ALL"),
    st.integers(1, 70).map(lambda n: f"COUNT({n})"),
    st.integers(1, 100).map(lambda n: f"PERCENT({n})"),
)


@given(names=NAMES, mode=MODES, seed=st.integers())
def test_choice_depends_on_mode_and_seed_only(names: list[str], mode: str, seed: int) -> None:
    chosen = choose_resources(names, mode, Random(seed))
    assert set(chosen) <= set(names)
    assert chosen == sorted(set(chosen))
    assert chosen == choose_resources(list(reversed(names)), mode, Random(seed)), (
        "the order in which they come is no matter"
    )
    number = int(mode.partition("(")[2].rstrip(")") or 0)
    if mode == "ALL":
        assert len(chosen) == len(names)
    elif mode.startswith("COUNT"):
        assert len(chosen) == (number if number <= len(names) else 0)
    else:
        assert len(chosen) <= len(names) * number / 100 < len(chosen) + 1


def test_seeds_choose_differently() -> None:
    names = [f"n{number}" for number in range(48)]
    assert len({choose_resources(names, "COUNT(1)", Random(seed))[0] for seed in range(20)}) > 5


T, F, N = True, False, None


@pytest.mark.parametrize(
    ("mode", "before", "observations", "passed", "after_s"),
    [
        ("settled", F, [(1, F), (5, T), (10, T)], True, 5),
        ("settled", F, [(5, T), (7, F), (10, F)], False, None),
        ("settled", T, [(5, F), (8, T), (10, T)], True, 8),
        ("settled", T, [(5, T), (10, T)], True, 0),
        ("settled", F, [(5, F), (11, T)], False, None),
        ("settled", F, [(5, T), (11, T)], True, 5),
        ("settled", F, [(5, T), (10, N), (11, T)], True, 5),
        ("settled", F, [(5, T), (11, N)], False, None),
        ("reached", F, [(5, T)], True, 5),
        ("reached", F, [(5, F), (10, F)], False, None),
        ("reached", F, [(9, F), (11, T)], False, None),
        ("reached", T, [(5, T)], False, None),
        ("always", T, [(5, T), (10, T)], True, None),
        ("always", T, [(4, T), (5, F)], False, None),
        ("always", T, [(5, N), (10, T)], True, None),
        ("always", T, [(5, N), (11, N)], False, None),
    ],
)
def test_expectation_is_decided_by_its_mode(
    mode: str, before: bool, observations: list[tuple[float, bool | None]], passed: bool, after_s: float | None
) -> None:
    expectation = Expectation.model_validate({"metric": "orphans", "count": 0, "within": "10s", "mode": mode})
    tracker = Tracker(expectation, 1000.0, before)
    for at, holds in observations:
        assert tracker.outcome is None, "it was decided too early"
        tracker.observe(1000.0 + at, holds)
    assert tracker.outcome is not None
    assert (tracker.outcome.passed, tracker.outcome.seconds) == (passed, after_s)


@pytest.mark.parametrize("mode", ["settled", "reached"])
def test_an_expectation_met_too_late_says_when(mode: str) -> None:
    expectation = Expectation.model_validate({"instance": "one", "state": "Active", "within": "10s", "mode": mode})
    tracker = Tracker(expectation, 1000.0, F)
    tracker.observe(1009.0, F, "state is Repairing")
    tracker.observe(1012.0, T, "it is")
    assert tracker.outcome is not None
    assert not tracker.outcome.passed
    assert tracker.outcome.message == "it holds, but was first seen to 12 s after the fault"


@pytest.mark.parametrize(
    ("mode", "observations", "passed", "limit_s"),
    [
        ("reached", [(10, F), (25, T)], True, 30),
        ("reached", [(10, F), (30, F)], False, 30),
        ("settled", [(10, T), (30, T)], True, 30),
        ("always", [(5, T), (10, T)], True, 10),
    ],
)
def test_limit_covers_detection_on_a_fast_clock(
    mode: str, observations: list[tuple[float, bool]], passed: bool, limit_s: float
) -> None:
    expectation = Expectation.model_validate({"metric": "orphans", "count": 0, "within": "10s", "mode": mode})
    tracker = Tracker(expectation, 1000.0, limit_s_min=30.0)
    assert tracker.deadline == 1000.0 + limit_s
    for at, holds in observations:
        assert tracker.outcome is None, "it was decided too early"
        tracker.observe(1000.0 + at, holds)
    assert tracker.outcome is not None
    assert (tracker.outcome.passed, tracker.outcome.within_s) == (passed, limit_s)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("agent", "Lost"),
        ("powered", "false"),
        ("share", "0.5"),
        ("nodes", "3"),
        ("faults", "1"),
        ("faults.0.code", "X"),
        ("conditions.Ready.status", "True"),
        ("conditions.Odd.status", ""),
        ("nothing.at.all", ""),
    ],
)
def test_field_is_found_by_path_and_compared_as_text(path: str, text: str) -> None:
    view = {
        "agent": "Lost", "powered": False, "share": 0.5, "nodes": 3, "faults": [{"code": "X"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }  # fmt: skip
    assert text_at(view, path) == text


def test_limit_covers_two_leases_at_any_speed() -> None:
    run = RunContext(SimpleNamespace(), SimpleNamespace(), ScaledClock(60.0), "x", lambda entry: None)
    assert run.limit_s_min > LOST_AFTER_LEASES * with_wall_floor(run.clock, LEASE_S, LEASE_FLOOR_WALL_S)
