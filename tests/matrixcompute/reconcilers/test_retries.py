"""When what was refused is tried again, and who asks of many that wait for room."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixcommon.model.clock import ScaledClock
from matrixcompute.model.retries import (
    CONCURRENT_RETRIES_MAX,
    PER_SHAPE_WALL_S,
    RETRY_FLOOR_WALL_S,
    RETRY_S,
    RefusalBackoff,
    WaitingInstance,
    due_at,
    select_retries,
)

NOW = 10_000.0


class FakeClock(ScaledClock):
    def __init__(self, now: float, scale: float = 1.0) -> None:
        super().__init__(scale)
        self.at = now

    def now(self) -> float:
        return self.at


@pytest.mark.parametrize(
    ("scale", "retry_at", "due"),
    [
        (1.0, NOW + RETRY_S, NOW + RETRY_S),
        (60.0, NOW + RETRY_S, NOW + 60 * RETRY_FLOOR_WALL_S),
        (60.0, 0.0, 0.0),
        (60.0, math.inf, math.inf),
    ],
)
def test_backoff_is_emulated_time_with_a_wall_time_floor(scale: float, retry_at: float, due: float) -> None:
    assert due_at(retry_at, FakeClock(NOW, scale)) == due


def test_refusal_is_kept_until_its_retry_is_due_at_any_speed() -> None:
    """Others that are refused meanwhile do not have it forgotten."""
    clock = FakeClock(NOW, 60.0)
    backoff = RefusalBackoff(clock)
    backoff.record("first")
    clock.at += 2 * RETRY_S
    backoff.record("second")
    assert backoff.backing_off("first")
    clock.at = NOW + 60 * RETRY_FLOOR_WALL_S
    assert not backoff.backing_off("first")
    assert backoff.backing_off("second")
    backoff.record("third")
    assert len(backoff) == 2


def waiting_instance(name: str, shape: str = "one", ago_s: float = 2 * RETRY_S, priority: int = 0) -> WaitingInstance:
    return WaitingInstance(name, shape, priority, NOW - ago_s + RETRY_S)


@pytest.mark.parametrize(
    ("waiting", "asking", "turns"),
    [
        ([], (), set()),
        ([waiting_instance("a"), waiting_instance("b")], (), {"a"}),
        ([waiting_instance("a"), waiting_instance("b", ago_s=90.0)], (), {"b"}),  # the others have asked since
        ([waiting_instance("a"), waiting_instance("b", "two")], (), {"a", "b"}),
        (
            [waiting_instance("a"), waiting_instance("b", ago_s=RETRY_S - 1)],
            (),
            set(),
        ),  # what b was refused, a would be
        ([waiting_instance("a"), waiting_instance("b", "two", ago_s=RETRY_S - 1)], (), {"a"}),
        ([waiting_instance("a"), waiting_instance("b", "two")], ("one",), {"b"}),
    ],
)
def test_one_of_equal_specs_is_retried(
    waiting: list[WaitingInstance], asking: tuple[str, ...], turns: set[str]
) -> None:
    assert select_retries(waiting, asking, FakeClock(NOW)) == turns


def test_few_retries_at_a_time_by_priority() -> None:
    waiting = [waiting_instance(f"w{each}", f"{each}", priority=each) for each in range(3 * CONCURRENT_RETRIES_MAX)]
    first = select_retries(waiting, (), FakeClock(NOW))
    assert first == {f"w{each}" for each in range(2 * CONCURRENT_RETRIES_MAX, 3 * CONCURRENT_RETRIES_MAX)}
    assert select_retries(waiting, [f"x{each}" for each in range(CONCURRENT_RETRIES_MAX)], FakeClock(NOW)) == set()


def test_backoff_grows_with_the_number_of_shapes() -> None:
    many = [waiting_instance(f"w{each}", f"{each}") for each in range(1000)]
    assert not select_retries(many, (), FakeClock(NOW))
    assert (
        len(select_retries(many, (), FakeClock(NOW - 2 * RETRY_S + 1000 * PER_SHAPE_WALL_S))) == CONCURRENT_RETRIES_MAX
    )


@given(
    st.lists(
        st.builds(WaitingInstance, st.uuids().map(str), st.sampled_from("abc"), st.integers(0, 2), st.floats(1.0, NOW))
    ),
    st.sets(st.sampled_from("abc")),
)
def test_every_waiting_instance_is_retried_eventually(waiting: list[WaitingInstance], asking: set[str]) -> None:
    """If nobody ever fits and everybody is refused at once, each asks before anybody of its kind asks twice."""
    turns = select_retries(waiting, asking, FakeClock(NOW))
    shapes = [each.shape for each in waiting if each.name in turns]
    assert len(shapes) == len(set(shapes))
    assert not set(shapes) & asking
    clock, left, asked = FakeClock(NOW), {each.name: each for each in waiting}, list[str]()
    for _ in range(3 * len(waiting)):
        clock.at += RETRY_S
        for name in select_retries(left.values(), (), clock):
            asked.append(name)
            left[name] = WaitingInstance(name, left[name].shape, left[name].priority, clock.at + RETRY_S)
    for shape in "abc":
        those = [name for name in asked if left[name].shape == shape]
        count = sum(each.shape == shape for each in waiting)
        assert len(set(those[:count])) == count
