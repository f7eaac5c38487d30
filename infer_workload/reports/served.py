"""Served requests as columns of numbers: a million take 64 MB, where objects would take a gigabyte."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from infer_workload.engine.request import InferenceRequest, Latencies


@dataclass(slots=True)
class ServedRequest(Latencies):
    """One finished request. Times are emulated seconds, lengths tokens."""

    number: int
    arrived_at: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    attempts: int
    first_token_at: float
    finished_at: float


@dataclass(slots=True)
class Measured:
    """Latencies of requests in order of arrival, and sums over them. `tpot_s` covers requests with more than one token,
    `within` counts those within the objectives, `decoding_s` sums the times from first to last token."""

    ttft_s: array[float] = field(default_factory=lambda: array("d"))
    tpot_s: array[float] = field(default_factory=lambda: array("d"))
    latency_s: array[float] = field(default_factory=lambda: array("d"))
    first_arrival_s: float = inf
    last_finish_s: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    decoding_s: float = 0.0
    within: int = 0


class Served:
    """The served requests of one experiment: added as they finish, iterated in order of arrival."""

    def __init__(self) -> None:
        self._columns: tuple[array[Any], ...] = tuple(array(code) for code in "qdqqqqdd")
        self._order: list[int] | None = None

    def add(self, request: InferenceRequest) -> None:
        """Add a finished request."""
        values = (
            request.number, request.arrived_at, request.input_tokens, request.output_tokens, request.cached_first,
            request.attempts, request.first_token_at, request.finished_at,
        )  # fmt: skip
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self._order = None

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[ServedRequest]:
        if self._order is None:
            self._order = sorted(range(len(self)), key=self._columns[0].__getitem__)
        yield from map(ServedRequest, *(map(column.__getitem__, self._order) for column in self._columns))

    def measure(self, within: Callable[[ServedRequest], bool]) -> Measured:
        """Latencies and sums over all requests, in one pass."""
        found = Measured()
        for request in self:
            ttft, tpot, latency = request.ttft_s, request.tpot_s, request.latency_s
            found.ttft_s.append(ttft)
            found.latency_s.append(latency)
            if request.output_tokens > 1:
                found.tpot_s.append(tpot)
            found.first_arrival_s = min(found.first_arrival_s, request.arrived_at)
            found.last_finish_s = max(found.last_finish_s, request.finished_at)
            found.input_tokens += request.input_tokens
            found.output_tokens += request.output_tokens
            found.decoding_s += latency - ttft
            found.within += within(request)
        return found


Requests = Served | Sequence[ServedRequest]
