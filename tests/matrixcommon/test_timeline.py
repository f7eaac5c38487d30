"""How emulated time runs: continuous, never falling, the same for all, whatever is done to its speed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixcommon.model.timeline import ADAPTING_WALL_S, CHANGES_MAX, SpeedChange, Timeline

WALL = 1_790_000_000.0
SPEEDS = st.one_of(st.just(0.0), st.just(1.0), st.just(100_000.0), st.floats(0.001, 100_000))


@dataclass(frozen=True)
class ChangeRequest:
    """One thing that a person does: so long after the last, another speed, or a run for so many emulated seconds."""

    after_s: float
    speed: float
    run_s: float
    then: float


CHANGE_REQUESTS = st.lists(st.builds(ChangeRequest, st.floats(0, 1000), SPEEDS, st.floats(0, 1e6), SPEEDS), max_size=8)


def timeline_with(asked: list[ChangeRequest]) -> list[tuple[float, Timeline]]:
    """The timelines that were in the file, each with the instant of the wall at which it takes force."""
    timeline, at = Timeline.steady(1.0, WALL, WALL), WALL
    found = [(at, timeline)]
    for each in asked:
        at += each.after_s
        if each.run_s and each.speed:
            timeline = timeline.run_until(at, each.speed, timeline.emulated(at) + each.run_s, each.then)
        else:
            timeline = timeline.changed(at, each.speed)
        found.append((at, timeline))
    return found


def close(a: float, b: float) -> bool:
    """To within what a float of seconds since the epoch can hold, at the highest speed."""
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=0.1)


@given(CHANGE_REQUESTS, st.lists(st.floats(0, 10_000), min_size=2, max_size=20))
def test_time_never_decreases(asked: list[ChangeRequest], instants: list[float]) -> None:
    timeline = timeline_with(asked)[-1][1]
    seen = [timeline.emulated(WALL + each) for each in sorted(instants)]
    assert all(b >= a - 1e-3 for a, b in pairwise(seen))


@given(CHANGE_REQUESTS)
def test_time_is_continuous_at_changes_of_speed(asked: list[ChangeRequest]) -> None:
    timeline = timeline_with(asked)[-1][1]
    for before, change in pairwise(timeline.changes):
        assert close(before.emulated_s + (change.wall_s - before.wall_s) * before.speed, change.emulated_s)
        assert change.wall_s >= before.wall_s


@given(CHANGE_REQUESTS, st.floats(0, 5000))
def test_a_change_does_not_alter_the_past(asked: list[ChangeRequest], back_s: float) -> None:
    """So a process that reads of it before it takes force has told the same times as one that knew it all along."""
    versions = timeline_with(asked)
    for (_, old), (at, new) in pairwise(versions):
        for wall in (at, at - 1e-3, at - back_s):
            assert close(old.emulated(wall), new.emulated(wall))


@given(CHANGE_REQUESTS, st.floats(0, 1e6))
def test_wall_is_the_inverse_of_emulated(asked: list[ChangeRequest], ahead_s: float) -> None:
    at, timeline = timeline_with(asked)[-1]
    target = timeline.emulated(at) + ahead_s
    wall = timeline.wall(target, at)
    if wall == math.inf:
        assert timeline.speed(1e12) == 0
        assert timeline.emulated(1e12) < target
    else:
        fastest = max(each.speed for each in timeline.changes)
        assert timeline.emulated(wall) >= target - 1e-3 - fastest * 1e-6
        assert wall == at or timeline.emulated(wall - 1e-3) <= target + 1e-3


@given(
    CHANGE_REQUESTS, st.floats(0.1, 1000), st.floats(0.1, 10), st.lists(st.floats(0, 10_000), min_size=2, max_size=9)
)
def test_periods_never_decrease_whatever_the_speed(
    asked: list[ChangeRequest], seconds: float, floor_s: float, instants: list[float]
) -> None:
    timeline = timeline_with(asked)[-1][1]
    seen = [timeline.periods(WALL + each, seconds, floor_s) for each in sorted(instants)]
    assert all(b >= a - 1e-6 for a, b in pairwise(seen))


@given(CHANGE_REQUESTS, st.lists(st.floats(0, 10_000), min_size=2, max_size=20))
def test_adapting_time_never_decreases_nor_exceeds_elapsed_time(
    asked: list[ChangeRequest], instants: list[float]
) -> None:
    timeline = timeline_with(asked)[-1][1]
    walls = [WALL + each for each in sorted(instants)]
    for a, b in pairwise(walls):
        forgiven = timeline.adapting(b) - timeline.adapting(a)
        passed = timeline.emulated(b) - timeline.emulated(a)
        assert -1e-3 <= forgiven <= passed + 1e-3 + 1e-9 * abs(passed)


def test_run_until_ends_exactly_and_restores_the_speed() -> None:
    timeline = Timeline.steady(1.0, WALL, WALL).run_until(WALL + 10, 600.0, WALL + 10 + 3600, then=1.0)
    assert timeline.emulated(WALL + 16) == WALL + 10 + 3600
    assert (timeline.speed(WALL + 15.9), timeline.speed(WALL + 16.1)) == (600.0, 1.0)
    assert timeline.emulated(WALL + 17) == WALL + 10 + 3601


def test_a_change_drops_later_planned_changes() -> None:
    timeline = Timeline.steady(1.0, WALL, WALL).run_until(WALL, 600.0, WALL + 3600, then=1.0).changed(WALL + 3, 0.0)
    assert [each.speed for each in timeline.changes] == [1.0, 600.0, 0.0]
    assert timeline.emulated(WALL + 100) == WALL + 1800
    assert timeline.wall(WALL + 1801, WALL + 3) == math.inf


def test_adapting_lasts_a_fixed_wall_time() -> None:
    timeline = Timeline.steady(1.0, WALL, WALL).changed(WALL + 10, 600.0)
    assert timeline.adapting(WALL + 10) == 0
    assert timeline.adapting(WALL + 11) == 600
    assert timeline.adapting(WALL + 1000) == 600 * ADAPTING_WALL_S
    again = timeline.changed(WALL + 12, 60.0)
    assert again.adapting(WALL + 1000) == 600 * 2 + 60 * ADAPTING_WALL_S


def test_a_period_equals_its_floor_at_high_speed() -> None:
    timeline = Timeline.steady(1.0, 0.0, 0.0).changed(100.0, 600.0)
    assert timeline.periods(100.0, 10.0, 0.5) == 10
    assert timeline.periods(101.0, 10.0, 0.5) == 12


def test_only_the_newest_changes_are_kept() -> None:
    timeline = Timeline.steady(1.0, WALL, WALL)
    for number in range(2 * CHANGES_MAX):
        timeline = timeline.changed(WALL + number, 1.0 + number % 3)
    assert len(timeline.changes) == CHANGES_MAX
    assert timeline.changes[-1].wall_s == WALL + 2 * CHANGES_MAX - 1


@pytest.mark.parametrize("speed", [0.0, 1.0, 600.0])
def test_the_first_speed_applies_before_the_first_change(speed: float) -> None:
    timeline = Timeline((SpeedChange(WALL, 500.0, speed),))
    assert timeline.emulated(WALL - 10) == 500.0 - 10 * speed
