"""Expert load imbalance, drawn from a routing distribution that EPLB has balanced.

An expert's load has two parts. The standing load is its popularity over minutes: EPLB knows it, gives redundant copies
to the hottest experts and packs the slots on the dies. The passing load comes from the streams of text in the current
batch: EPLB's statistics are about a minute old, so it cannot know it. One stream is as skewed as the experts that
xDeepServe measured (20 % above the mean, the hottest about 30 times the mean); a batch of N independent streams has
1/sqrt(N) of that deviation, so a prefill chunk of few prompts is less even than a decode batch of thousands. All draws
come from a fixed seed, so the same layout has the same imbalance. The imbalance is the hottest die's load over the
mean, averaged over layers.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from math import exp, log1p, sqrt
from random import Random

from infer_workload.timing.calibration import Calibration
from infer_workload.timing.experts import ExpertLayout

LAYERS_DRAWN = 24
SEED = 384
DEVIATIONS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 4.0)
"""Deviations of the passing load, relative to an expert's own load, at which the hottest die's load is evaluated;
values between them are interpolated linearly."""


def imbalance(layout: ExpertLayout, experts: int, streams: float, calibration: Calibration) -> float:
    """Return the hottest die's routed load over the mean, in a batch of that many independent streams of text."""
    if experts == 1:
        return 1.0
    one = sqrt(exp(calibration.sequence_skew**2) - 1.0)
    deviation = min(DEVIATIONS[-1], one / sqrt(streams) if streams > 1 else one)
    at = min(len(DEVIATIONS) - 2, bisect_right(DEVIATIONS, deviation) - 1)
    low, high = DEVIATIONS[at], DEVIATIONS[at + 1]
    of = layout.routed_dies, layout.routed_per_die, experts, calibration.routing_spread
    below, above = hottest(*of, low), hottest(*of, high)
    return below + (above - below) * (deviation - low) / (high - low)


@lru_cache(maxsize=1024)
def hottest(dies: int, slots_per_die: int, experts: int, spread: float, deviation: float) -> float:
    """Return the hottest die's load over the mean, averaged over layers, for that deviation of the passing load."""
    now = sqrt(log1p(deviation * deviation))
    total = 0.0
    for shares, passing, placed in _layers(dies, slots_per_die, experts, spread):
        load = [share * exp(now * drawn) for share, drawn in zip(shares, passing, strict=True)]
        each = [sum([load[expert] for expert in die]) for die in placed]
        total += max(each) * dies / sum(each)
    return total / LAYERS_DRAWN


Layer = tuple[list[float], list[float], list[list[int]]]
"""Standing load per copy of each expert, each expert's draw of passing load, and the experts on each die."""


@lru_cache(maxsize=16)
def _layers(dies: int, slots_per_die: int, experts: int, spread: float) -> list[Layer]:
    """Return the drawn layers with their experts placed as EPLB places them."""
    found = []
    for popularity, passing in _draws(experts):
        standing = [exp(spread * drawn) for drawn in popularity]
        copies = count_replicas(standing, dies * slots_per_die)
        placed = pack_experts(standing, copies, dies, slots_per_die)
        found.append(([popular / times for popular, times in zip(standing, copies, strict=True)], passing, placed))
    return found


@lru_cache(maxsize=16)
def _draws(experts: int) -> list[tuple[list[float], list[float]]]:
    """For each layer, return the experts' standard normal draws of popularity and of passing load."""
    gauss = Random(SEED).gauss
    draws = [[gauss(0.0, 1.0) for _ in range(experts)] for _ in range(2 * LAYERS_DRAWN)]
    return list(zip(draws[::2], draws[1::2], strict=True))


def count_replicas(popularity: list[float], slots: int) -> list[int]:
    """Return the number of copies of each expert: one each, then each spare slot to the expert with the most load per
    copy."""
    copies = [1] * len(popularity)
    heap = [(-load, expert) for expert, load in enumerate(popularity)]
    heapify(heap)
    for _ in range(slots - len(popularity)):
        _, expert = heap[0]
        copies[expert] += 1
        heapreplace(heap, (-popularity[expert] / copies[expert], expert))
    return copies


def pack_experts(popularity: list[float], copies: list[int], dies: int, slots_per_die: int) -> list[list[int]]:
    """Return the experts on each die: copies are placed from the heaviest down, each on the least loaded die with a
    free slot."""
    slots = sorted(
        ((popularity[expert] / times, expert) for expert, times in enumerate(copies) for _ in range(times)),
        reverse=True,
    )
    placed: list[list[int]] = [[] for _ in range(dies)]
    heap = [(0.0, die) for die in range(dies)]
    for load, expert in slots:
        total, die = heap[0]
        placed[die].append(expert)
        if len(placed[die]) == slots_per_die:
            heappop(heap)
        else:
            heapreplace(heap, (total + load, die))
    return placed
