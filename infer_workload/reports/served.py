"""Requests that were served, as columns of numbers: a million take 64 MB, as objects they would take a gigabyte."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infer_workload.engine.request import InferenceRequest, Latencies


@dataclass(slots=True)
class ServedRequest(Latencies):
    """One request that has its last token. Times are emulated seconds, lengths tokens."""

    number: int
    arrived_at: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    attempts: int
    first_token_at: float
    finished_at: float


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
