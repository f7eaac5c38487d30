"""Headroom: the capacity that a request leaves free, when admitted, for future requests of higher priority.

These go first, on prefill instances and on dies, so a request admitted just in time would be late as soon as the next
of them came. Arrivals are assumed to continue as lately, at random: the work of prompts as a compound Poisson process,
the places on dies as a Poisson number (an M/G/infinity queue). The headroom is large enough for 99 of 100 requests.
(Llumnix keeps headroom on instances that serve a high priority, https://arxiv.org/abs/2406.03243; how much is our own
choice.) An earlier priority is a lower number.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, sqrt

from infer_workload.engine.decode_time import DEVIATIONS_99
from infer_workload.engine.request import InferenceRequest

WINDOW_S = 60.0
"""Time constant of the averages: a request this old counts by a factor of e less."""

REQUESTS_MIN = 0.01
"""A priority is dropped when fewer of its requests than this still count."""

PRIORITIES_MAX = 32
"""The most priorities that are distinguished; a request of another one counts to the nearest."""


@dataclass(slots=True)
class _PriorityLoad:
    """The recent requests of one priority: sums over them, decayed to `at`."""

    since: float
    at: float
    requests: float = 0.0
    tokens: float = 0.0
    answers: float = 0.0
    """Tokens of answers."""
    prefill_s: float = 0.0
    prefill_s2: float = 0.0
    places_s: float = 0.0
    """Places on dies multiplied by the seconds that they were occupied."""

    def decay(self, now: float, placed: int) -> None:
        kept = exp((self.at - now) / WINDOW_S)
        self.requests *= kept
        self.tokens *= kept
        self.answers *= kept
        self.prefill_s *= kept
        self.prefill_s2 *= kept
        self.places_s = self.places_s * kept + placed * WINDOW_S * (1.0 - kept)
        self.at = now

    def seconds(self) -> float:
        """The time that the sums cover."""
        return max(1.0, WINDOW_S * (1.0 - exp((self.since - self.at) / WINDOW_S)))


class Headroom:
    """The headroom of one deployment, from its requests since the start."""

    def __init__(self) -> None:
        self._loads: dict[int, _PriorityLoad] = {}

    def __len__(self) -> int:
        """The number of priorities seen lately."""
        return len(self._loads)

    def record_placed(self, now: float, placed: dict[int, int]) -> None:
        """Record the places that requests have on dies now, by priority."""
        for priority, seen in list(self._loads.items()):
            seen.decay(now, placed.get(priority, 0))
            if seen.requests < REQUESTS_MIN:
                del self._loads[priority]

    def record_admitted(self, request: InferenceRequest, now: float, prefill_s: float) -> None:
        """Record an admitted request, and the seconds that its prompt takes an instance."""
        priority = request.priority
        if priority not in self._loads and len(self._loads) >= PRIORITIES_MAX:
            priority = min(self._loads, key=lambda each: abs(each - priority))
        seen = self._loads.setdefault(priority, _PriorityLoad(now, now))
        seen.requests += 1
        seen.tokens += request.prompt + request.output_tokens
        seen.answers += request.output_tokens
        seen.prefill_s += prefill_s
        seen.prefill_s2 += prefill_s**2

    def has_higher_priority(self, priority: int) -> bool:
        """Whether requests of an earlier priority have come lately."""
        return bool(self._higher_priorities(priority))

    def wait_s(self, priority: int, wait_s: float, instances: int) -> float:
        """The longest wait of a prompt for one of so many instances, if it would be `wait_s` without further arrivals:
        the T for which T = `wait_s` + `work_s`(T). Infinity if earlier priorities take all capacity."""
        share, spread = self._work(priority, instances)
        if not wait_s or not share:
            return wait_s
        if share >= 1.0:
            return inf
        return float(((spread + sqrt(spread**2 + 4 * (1 - share) * wait_s)) / (2 * (1 - share))) ** 2)

    def work_s(self, priority: int, within_s: float, instances: int) -> float:
        """The most work, in seconds, that earlier priorities bring one of so many instances within T = `within_s`:
        m T + z sqrt(v T), where m is their mean share of it and v T the variance of their work in T."""
        share, spread = self._work(priority, instances)
        return share * within_s + spread * sqrt(within_s)

    def _work(self, priority: int, instances: int) -> tuple[float, float]:
        earlier = self._higher_priorities(priority)
        share = sum(seen.prefill_s / seen.seconds() for seen in earlier) / instances
        return share, DEVIATIONS_99 * sqrt(sum(seen.prefill_s2 / seen.seconds() for seen in earlier) / instances)

    def expected_places(self, priority: int, placed: dict[int, int], tpot_s: float) -> tuple[float, float]:
        """The most places on dies, and tokens in them, that earlier priorities will take beyond their present ones, at
        `tpot_s` per token: from their mean so far or, by Little's law, from their arrivals, whichever is more."""
        earlier = self._higher_priorities(priority)
        mean = sum(max(seen.places_s, seen.answers * tpot_s) / seen.seconds() for seen in earlier)
        more = mean + DEVIATIONS_99 * sqrt(mean) - sum(number for each, number in placed.items() if each < priority)
        if more <= 0:
            return 0.0, 0.0
        tokens = sum(seen.tokens for seen in earlier) / sum(seen.requests for seen in earlier)
        return more, more * tokens

    def _higher_priorities(self, priority: int) -> list[_PriorityLoad]:
        return [seen for each, seen in self._loads.items() if each < priority]
