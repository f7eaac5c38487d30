"""Requests that were served, as columns of numbers: a million take 64 MB, as objects they would take a gigabyte."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from infer_workload.engine.request import InferenceRequest


class ServedRequest(NamedTuple):
    """One request that has its last token. Times are emulated seconds, lengths tokens."""

    number: int
    arrived_at: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    attempts: int
    first_token_at: float
    finished_at: float

    @property
    def ttft_s(self) -> float:
        """Arrival to first token."""
        return self.first_token_at - self.arrived_at

    @property
    def tpot_s(self) -> float:
        """Mean time of a token after the first; 0 for an answer of one token."""
        return (self.finished_at - self.first_token_at) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0

    @property
    def latency_s(self) -> float:
        """Arrival to last token."""
        return self.finished_at - self.arrived_at


class Served:
    """Those of one experiment. Kept as they finish, read in order of arrival."""

    def __init__(self) -> None:
        self._columns: tuple[array[Any], ...] = tuple(array(code) for code in "qdqqqqdd")
        self._order: list[int] | None = None

    def add(self, request: InferenceRequest) -> None:
        """Once it has finished."""
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
        for at in self._order:
            yield ServedRequest(*(column[at] for column in self._columns))


Requests = Served | Sequence[ServedRequest]
