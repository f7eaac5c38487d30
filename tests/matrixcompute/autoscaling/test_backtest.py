"""The floor that a forecast makes: of rules judged by the last hour the cheapest that would have been enough."""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

import pytest

from matrixcompute.autoscaling.backtest import Sizing, floor

TICK_S = 15.0
Loads = list[tuple[float, float]]


def sampled(loads: Iterable[float]) -> Loads:
    return [(TICK_S * at, load) for at, load in enumerate(loads)]


def floor_of(loads: Loads, **more: float) -> int:
    found = floor(loads, Sizing(**{"start_s": 60.0, "over_s": 30.0, **more}), TICK_S)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_no_floor_without_enough_samples():
    assert floor(sampled([5.0] * 19), Sizing(60.0, 30.0), TICK_S) is None
    assert floor(sampled([5.0] * 20), Sizing(60.0, 30.0), TICK_S) is not None
    assert floor([], Sizing(60.0, 30.0), TICK_S) is None


def test_floor_of_a_constant_load_is_the_load():
    assert floor_of(sampled([5.0] * 240)) == 5


def test_noise_gets_headroom_but_is_not_doubled():
    rng = Random(1)
    noise = sampled(10.0 + rng.gauss(0, 0.5) for _ in range(240))
    found = {floor_of(noise[:end]) for end in range(120, 240)}
    assert min(found) >= 10
    assert max(found) <= 12


def test_returning_peak_is_held():
    """Fourteen minutes high, ten low, over and over: whoever lets go in the low time serves too late."""
    returns = sampled(([12.0] * 56 + [3.0] * 40) * 2 + [12.0] * 20 + [3.0] * 20)
    assert floor_of(returns) >= 12
    assert floor_of(sampled([12.0] * 20 + [3.0] * 220)) < 12


def test_gentle_load_is_released_sooner_than_steep_load():
    """Both fall from ten to three and stay there; one had come up in steps, the other in half an hour."""
    slow = [3.0 + 7.0 * min(1.0, at / 120) for at in range(140)] + [10.0 - 7.0 * at / 40 for at in range(41)]
    steps = [3.0] * 60 + [10.0] * 80 + [10.0 - 7.0 * at / 40 for at in range(41)]
    kept = [floor_of(sampled(loads + [3.0] * 40)) for loads in (slow, steps)]
    assert 3 <= kept[0] < 10 <= kept[1]


def test_floor_never_exceeds_the_highest_load_without_a_climb():
    rng = Random(4)
    bursts = sampled(6.0 + (9.0 if rng.random() < 0.2 else 0.0) * rng.random() for _ in range(240))
    assert floor_of(bursts) <= math.ceil(max(load for _, load in bursts))


def test_season_is_followed_down_and_forecast_up():
    wave = [6.0 - 5.0 * math.cos(2 * math.pi * at / 40) for at in range(240)]
    down, up = (floor_of(sampled(wave[: 200 + at])) for at in (36, 12))
    assert down <= 7  # it is falling to 1, and nothing comes back within the start time
    assert wave[211] < up  # rising, and more in a minute
    assert up >= wave[215] - 0.5


def test_climb_beyond_the_highest_load_is_extrapolated():
    climb = [2.0 + 0.2 * at for at in range(60)]
    assert floor_of(sampled(climb)) >= climb[-1] + 0.2 * 60 / TICK_S


def test_work_that_may_wait_needs_fewer_nodes():
    rng = Random(2)
    bursts = sampled(8.0 + (6.0 if rng.random() < 0.1 else 0.0) for _ in range(240))
    patient, impatient = (
        sum(floor_of(bursts[:end], allowed_s=allowed_s) for end in range(200, 240)) for allowed_s in (60.0, 0.0)
    )
    assert patient < impatient


@pytest.mark.parametrize(("block", "least"), [(1, 1), (2, 4), (4, 8), (3, 9)])
def test_floor_is_in_whole_blocks_and_above_the_minimum(block, least):
    rng = Random(block)
    for top in (0.0, 1.0, 30.0):
        found = floor_of(sampled(top * rng.random() for _ in range(100)), block=block, least=least)
        assert found >= least
        assert found % block == 0


def test_missing_or_late_samples_do_not_fail():
    rng = Random(3)
    loads, at = [], 0.0
    for _ in range(150):
        at += TICK_S * rng.choice((0.8, 1.0, 1.3, 4.0))
        loads.append((at, 5.0))
    assert floor_of(loads) == 5
