"""Measurements during a demo: load, nodes, throughput and latencies over time, and what happened when.

A thread polls each service separately, four times per wall second, so that a service that is down leaves only a gap.
Times are emulated seconds since the epoch.
"""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from matrixcommon.model.errors import MatrixError
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.clients.kubernetes import Cluster
from services.matrixctl.demo.throughput import Throughput
from services.matrixctl.output.columns import value_at

POLL_PERIOD_WALL_S = 0.25
LETTERS = {"SuccessfulRescale": ("s", "autoscaler"), "Draining": ("d", "drain")}
"""Event reasons, with the letter in the chart and the word in the legend."""
DRAIN_MESSAGE = re.compile(r"(\d+) requests? on nodes that are to leave")
EVENTS = "/api/v1/namespaces/default/events"


@dataclass(frozen=True)
class Sample:
    """One sample: requests offered per second; nodes requested, active and allocated; latencies of the last minute,
    None if nothing finished in it."""

    at: float
    load_per_s: float = 0.0
    desired: int = 0
    ready: int = 0
    allocated: int = 0
    ttft_s: float | None = None
    tpot_s: float | None = None
    queued: int = 0

    def text(self) -> str:
        ttft = f"{'-':>5}" if self.ttft_s is None else f"{self.ttft_s:5.2f}"
        tpot = f"{'-':>4}" if self.tpot_s is None else f"{1e3 * self.tpot_s:4.1f}"
        return (
            f"load {self.load_per_s:4.1f}/s  nodes {self.ready}/{self.desired}  TTFT p90 {ttft} s  "
            f"TPOT p90 {tpot} ms  {self.queued} waiting"
        )


@dataclass(frozen=True)
class Mark:
    """An event, with its letter in the chart."""

    at: float
    letter: str
    text: str


class Gauge:
    """Samples one instance and its workload, from `start` to `close`."""

    def __init__(self, client: ApiClient, cluster: Cluster, name: str) -> None:
        self._client, self._cluster = replace(client, timeout_wall_s=0.0), replace(cluster, timeout_wall_s=0.0)
        self._name = name
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample_periodically, name="gauge", daemon=True)
        self._samples: list[Sample] = []
        self._marks: list[Mark] = []
        self._events: set[str] | None = None
        self._current = Sample(0.0)
        self.statistics: dict[str, Any] = {}
        self.throughput = Throughput()
        self.restarts = 0
        self.drained_requests = 0
        """Requests that were running on nodes when these began to drain."""

    def now(self) -> float:
        return self._client.stack.time.emulated(time.time())

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop sampling."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=15.0)

    def mark(self, letter: str, text: str) -> float:
        self._marks.append(Mark(self.now(), letter, text))
        return self._marks[-1].at

    def samples(self) -> list[Sample]:
        return list(self._samples)

    def marks(self) -> list[Mark]:
        return list(self._marks)

    @property
    def last(self) -> Sample:
        """The last sample; zeros before there is one."""
        return self._samples[-1] if self._samples else Sample(0.0)

    def sizes(self) -> list[tuple[float, int]]:
        """Each requested size with the time it was first seen, in order."""
        found: list[tuple[float, int]] = []
        for sample in self.samples():
            if sample.desired and (not found or found[-1][1] != sample.desired):
                found.append((sample.at, sample.desired))
        return found

    # --- looking

    def _sample_periodically(self) -> None:
        samplers = (self._sample_instance, self._sample_allocation, self._sample_workload, self._sample_events)
        while not self._ended.wait(POLL_PERIOD_WALL_S):
            for sample_part in samplers:
                with suppress(MatrixError):  # restarting, or not there yet; the last sample's values stay
                    sample_part()
            sample = replace(self._current, at=self.now())
            self._mark_changes(self.last, sample)
            self._samples.append(sample)

    def _sample_instance(self) -> None:
        view = self._cluster.instance(self._name) or {}
        desired, ready = value_at(view, "spec.nodes") or 0, value_at(view, "status.readyNodes") or 0
        self._current = replace(self._current, desired=desired, ready=ready)

    def _sample_allocation(self) -> None:
        view = self._client.get("resource", f"/v1/allocations/{self._name}") or {}
        self._current = replace(self._current, allocated=view.get("nodes") or 0)

    def _sample_workload(self) -> None:
        view = self._client.get("infer", f"/v1/deployments/{self._name}/statistics")
        if view is None:
            return
        if self.statistics and view["countingSince"] != self.statistics["countingSince"]:
            self.restarts += 1
            self.mark("i", "CloudMatrix-Infer has restarted; its counts start from zero")
        self.statistics = view
        self.throughput.add(view)
        self._current = replace(
            self._current,
            load_per_s=value_at(view, "load.requestsPerSecond") or 0.0,
            ttft_s=value_at(view, "ttft.p90"),
            tpot_s=value_at(view, "tpot.p90"),
            queued=view["queued"],
        )

    def _sample_events(self) -> None:
        """Mark decisions and drains since the first sample, with the messages of their events."""
        found = {
            f"{event['metadata']['name']} {event.get('count')}": event
            for event in self._cluster.items(EVENTS)
            if event["involvedObject"]["name"] == self._name and event.get("reason") in LETTERS
        }
        fresh = found.keys() - (found.keys() if self._events is None else self._events)
        self._events = set(found)
        for event in sorted((found[key] for key in fresh), key=lambda event: list(LETTERS).index(event["reason"])):
            letter, words = LETTERS[event["reason"]]
            self.mark(letter, f"{words}: {event['message']}")
            if requests := DRAIN_MESSAGE.match(event["message"]):
                self.drained_requests += int(requests[1])

    def _mark_changes(self, before: Sample, now: Sample) -> None:
        if now.ready == now.desired == now.allocated and now.ready > before.ready > 0:
            self.mark("a", f"{now.ready} nodes Active")
        if 0 < now.allocated < before.allocated:
            self.mark("r", f"{before.allocated - now.allocated} nodes released")


def changes_of_direction(sizes: list[int]) -> int:
    """How often the size changed from growing to shrinking or back."""
    steps = [after > before for before, after in pairwise(sizes) if after != before]
    return sum(one != other for one, other in pairwise(steps))
