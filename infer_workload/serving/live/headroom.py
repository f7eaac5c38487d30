"""What requests of earlier priorities will take from those of a later one that is let in now.

They go first, on prefill instances and on dies, so who is let in just in time would be late by the next of them. What
comes is taken to come as it did lately, by chance: the work of prompts as a compound Poisson process, the places on
dies as a Poisson number (an M/G/infinity queue). A later priority leaves what 99 of 100 of its own requests will not
see exceeded. (Llumnix keeps headroom on instances that serve a high priority, https://arxiv.org/abs/2406.03243; how
much is ours.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, sqrt

from infer_workload.engine.decode_time import ABOVE
from infer_workload.engine.request import InferenceRequest

WINDOW_S = 60.0
"""What came longer ago counts less, by a factor of e each."""

FORGOTTEN = 0.01
"""Of a priority, when less than so many of its requests count."""

PRIORITIES_MAX = 32
"""Told apart. Of more, a request counts as the nearest of these."""


@dataclass(slots=True)
class _Seen:
    """Of one priority; sums are of requests, decayed to `at`."""

    since: float
    at: float
    requests: float = 0.0
    tokens: float = 0.0
    answers: float = 0.0
    """Tokens of answers."""
    prefill_s: float = 0.0
    prefill_s2: float = 0.0
    places_s: float = 0.0
    """Places on dies, times how long."""

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
        """That the sums are of."""
        return max(1.0, WINDOW_S * (1.0 - exp((self.since - self.at) / WINDOW_S)))


class Headroom:
    """Of one deployment, since its start."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def __len__(self) -> int:
        """Priorities that it knows of."""
        return len(self._seen)

    def look(self, now: float, placed: dict[int, int]) -> None:
        """Take note of the places that requests have on dies now, by priority."""
        for priority, seen in list(self._seen.items()):
            seen.decay(now, placed.get(priority, 0))
            if seen.requests < FORGOTTEN:
                del self._seen[priority]

    def admitted(self, request: InferenceRequest, now: float, prefill_s: float) -> None:
        """Take note of a request that was let in, whose prompt takes an instance so long."""
        priority = request.priority
        if priority not in self._seen and len(self._seen) >= PRIORITIES_MAX:
            priority = min(self._seen, key=lambda each: abs(each - priority))
        seen = self._seen.setdefault(priority, _Seen(now, now))
        seen.requests += 1
        seen.tokens += request.prompt + request.output_tokens
        seen.answers += request.output_tokens
        seen.prefill_s += prefill_s
        seen.prefill_s2 += prefill_s**2

    def has_before(self, priority: int) -> bool:
        """Whether any of an earlier priority have come lately."""
        return bool(self._earlier(priority))

    def wait_s(self, priority: int, wait_s: float, instances: int) -> float:
        """How long a prompt waits at most for an instance, of so many, for which it would wait `wait_s` if nobody else
        came: the T at which T = wait + `work_s` of T. Infinity where the earlier take all."""
        share, spread = self._work(priority, instances)
        if not wait_s or not share:
            return wait_s
        if share >= 1.0:
            return inf
        return float(((spread + sqrt(spread**2 + 4 * (1 - share) * wait_s)) / (2 * (1 - share))) ** 2)

    def work_s(self, priority: int, within_s: float, instances: int) -> float:
        """What the earlier bring an instance, of so many, at most within that time: m T + z sqrt(v T), where m is the
        share of it that they take and v T the variance of what they bring in T."""
        share, spread = self._work(priority, instances)
        return share * within_s + spread * sqrt(within_s)

    def _work(self, priority: int, instances: int) -> tuple[float, float]:
        earlier = self._earlier(priority)
        share = sum(seen.prefill_s / seen.seconds() for seen in earlier) / instances
        return share, ABOVE * sqrt(sum(seen.prefill_s2 / seen.seconds() for seen in earlier) / instances)

    def places(self, priority: int, placed: dict[int, int], tpot_s: float) -> tuple[float, float]:
        """Places on dies, and tokens on them, that the earlier will have at most beyond those that they have now, where
        a token takes so long: what they had in the mean, or by Little's law come to have if they go on to come."""
        earlier = self._earlier(priority)
        mean = sum(max(seen.places_s, seen.answers * tpot_s) / seen.seconds() for seen in earlier)
        more = mean + ABOVE * sqrt(mean) - sum(number for each, number in placed.items() if each < priority)
        if more <= 0:
            return 0.0, 0.0
        tokens = sum(seen.tokens for seen in earlier) / sum(seen.requests for seen in earlier)
        return more, more * tokens

    def _earlier(self, priority: int) -> list[_Seen]:
        return [seen for each, seen in self._seen.items() if each < priority]
