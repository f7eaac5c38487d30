"""Requests that wait for a place: lower priorities first, within one priority who came first.

As vLLM's priority policy has it: a lower number is handled earlier, the time of arrival decides ties. Who is sent back,
by a loss or a preemption, is in front of all of its priority that came later.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from infer_workload.engine.request import InferenceRequest


class WaitingQueue:
    """A priority queue of requests; iteration is in no order."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, int, InferenceRequest]] = []
        self._counts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[InferenceRequest]:
        return (entry[3] for entry in self._heap)

    @property
    def first(self) -> InferenceRequest:
        """Whose turn is next. Raises IndexError when nobody waits."""
        return self._heap[0][3]

    def push(self, request: InferenceRequest) -> None:
        heappush(self._heap, (*request.turn, request))
        self._count(request, 1)

    def pop(self) -> InferenceRequest:
        """Take out whose turn is next. Raises IndexError when nobody waits."""
        request = heappop(self._heap)[3]
        self._count(request, -1)
        return request

    def remove(self, request: InferenceRequest) -> None:
        """Raises ValueError when it does not wait here."""
        kept = [entry for entry in self._heap if entry[3] is not request]
        if len(kept) == len(self._heap):
            raise ValueError(f"request {request.number} does not wait")
        heapify(kept)
        self._heap = kept
        self._count(request, -1)

    def ahead_of(self, priority: int) -> int:
        """How many that wait have their turn before a request of that priority which comes now."""
        return sum(number for each, number in self._counts.items() if each <= priority)

    def _count(self, request: InferenceRequest, more: int) -> None:
        number = self._counts.get(request.priority, 0) + more
        if number:
            self._counts[request.priority] = number
        else:
            del self._counts[request.priority]
