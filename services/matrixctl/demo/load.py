"""The built-in load of a deployment, and its throughput as CloudMatrix-Infer tells it.

Times are emulated seconds since the epoch, rates tokens generated in an emulated second. A thread of its own asks every
half second of the wall, so that a story can look back at what happened while it waited for something else.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

from matrixcommon.model.errors import MatrixError, NotFound
from services.matrixctl.clients.api_client import ApiClient

ASK_PERIOD_WALL_S = 0.5
WINDOW_S = 60.0
SETTLED_SHARE = 0.15
"""Two windows in a row differ by less than this share: the throughput is steady."""


class Load:
    """Load on one deployment."""

    def __init__(self, reach: ApiClient, name: str, requests_per_second: float = 20.0) -> None:
        self._reach = reach
        self._path = f"/v1/deployments/{name}"
        self._requests_per_second = requests_per_second
        self._samples: dict[int, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="throughput", daemon=True)
        self.last: dict[str, Any] = {}

    def now(self) -> float:
        return self._reach.stack.time.emulated(time.time())

    def start(self) -> None:
        body = {"requestsPerSecond": self._requests_per_second, "seed": 7, "inputTokensMax": 8192}
        self._reach.call("infer", "PUT", f"{self._path}/load", body=body)
        self._thread.start()

    def stop(self) -> None:
        """No more requests; what runs is finished."""
        self.end()
        with suppress(NotFound):
            self._reach.call("infer", "DELETE", f"{self._path}/load")

    def end(self) -> None:
        """Ask no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _watch(self) -> None:
        while not self._ended.wait(ASK_PERIOD_WALL_S):
            try:
                self._take(self._reach.call("infer", "GET", f"{self._path}/statistics"))
            except MatrixError:
                continue  # it is being started again, or was deleted; the chart shows the gap

    def _take(self, statistics: dict[str, Any]) -> None:
        now = self.now()
        with self._lock:
            self.last = statistics
            for sample in statistics["samples"]:
                self._samples[round(now - abs(sample["at"]))] = sample["tokensPerSecond"]

    def samples(self) -> list[tuple[float, float]]:
        with self._lock:
            return [(float(at), value) for at, value in sorted(self._samples.items())]

    def mean(self, since: float, until: float) -> float | None:
        """Mean throughput between two moments, None where nothing was measured."""
        values = [value for at, value in self.samples() if since <= at < until]
        return sum(values) / len(values) if values else None

    def steady(self) -> float | None:
        """The throughput of the last minute, once it is much like that of the minute before."""
        samples = self.samples()
        if not samples:
            return None
        end = samples[-1][0]
        last, before = self.mean(end - WINDOW_S, end), self.mean(end - 2 * WINDOW_S, end - WINDOW_S)
        if not last or not before or samples[0][0] > end - 2 * WINDOW_S:
            return None
        return last if abs(last - before) <= SETTLED_SHARE * before else None

    def least_since(self, since: float, span_s: float = 5.0) -> float:
        """The least mean over a few seconds from that moment on."""
        ends = [at for at, _ in self.samples() if at >= since + span_s]
        means = [mean for end in ends if (mean := self.mean(end - span_s, end)) is not None]
        return min(means, default=float("inf"))

    def text(self) -> str:
        """One line of how it goes."""
        samples = self.samples()
        if not samples:
            return "nothing measured yet"
        last = self.mean(samples[-1][0] - 10.0, samples[-1][0] + 1.0) or 0.0
        return f"{last:,.0f} tokens/s, {self.last.get('decoding', 0)} requests decoding"

    def node_to_lose(self, roles: dict[str, str]) -> str:
        """A node that decodes: what it carried is felt at once."""
        decoding = sorted(node for node, role in roles.items() if role == "decode")
        return decoding[len(decoding) // 2]
