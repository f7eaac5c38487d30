"""Throughput of a deployment as reported by CloudMatrix-Infer: tokens generated in each emulated second.

Times are emulated seconds since the epoch. All samples are kept, so that a step can look back at what happened while it
waited for something else.
"""

from __future__ import annotations

from typing import Any

WINDOW_S = 60.0
SETTLED_SHARE = 0.15
"""Throughput is steady if two consecutive windows differ by less than this share."""


class Throughput:
    """Samples of throughput, added from each reading of the statistics."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def add(self, statistics: dict[str, Any]) -> None:
        self._seconds |= {sample["second"]: sample["tokensPerSecond"] for sample in statistics["samples"]}

    def samples(self) -> list[tuple[float, float]]:
        return [(float(at), value) for at, value in sorted(self._seconds.copy().items())]

    def mean(self, since: float, until: float) -> float | None:
        """Mean throughput between two times; None if nothing was measured."""
        values = [value for at, value in self.samples() if since <= at < until]
        return sum(values) / len(values) if values else None

    def steady(self) -> float | None:
        """The throughput of the last minute, if it is close to that of the minute before; else None."""
        samples = self.samples()
        if not samples:
            return None
        end = samples[-1][0]
        last, before = self.mean(end - WINDOW_S, end), self.mean(end - 2 * WINDOW_S, end - WINDOW_S)
        if not last or not before or samples[0][0] > end - 2 * WINDOW_S:
            return None
        return last if abs(last - before) <= SETTLED_SHARE * before else None

    def min_since(self, since: float, span_s: float = 5.0) -> float:
        """The lowest mean over `span_s` since then."""
        ends = [at for at, _ in self.samples() if at >= since + span_s]
        means = [mean for end in ends if (mean := self.mean(end - span_s, end)) is not None]
        return min(means, default=float("inf"))

    def text(self) -> str:
        """The present throughput, in one line."""
        samples = self.samples()
        if not samples:
            return "nothing measured yet"
        return f"{self.mean(samples[-1][0] - 10.0, samples[-1][0] + 1.0) or 0.0:,.0f} tokens/s"
