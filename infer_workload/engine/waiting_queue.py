"""The queue of requests that wait for a place.

As in vLLM's priority policy, a lower number is handled earlier, and ties are decided by time of arrival. A request
requeued by a loss or preemption keeps its arrival time, so it is ahead of all of its priority that came later.
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
        """The next request. Raises IndexError if the queue is empty."""
        return self._heap[0][3]

    def push(self, request: InferenceRequest) -> None:
        heappush(self._heap, (*request.queue_key, request))
        self._adjust_count(request, 1)

    def pop(self) -> InferenceRequest:
        """Remove and return the next request. Raises IndexError if the queue is empty."""
        request = heappop(self._heap)[3]
        self._adjust_count(request, -1)
        return request

    def remove(self, request: InferenceRequest) -> None:
        """Remove a request. Raises ValueError if it is not in the queue."""
        kept = [entry for entry in self._heap if entry[3] is not request]
        if len(kept) == len(self._heap):
            raise ValueError(f"request {request.number} is not in the queue")
        heapify(kept)
        self._heap = kept
        self._adjust_count(request, -1)

    def ahead_of(self, priority: int) -> int:
        """The number of waiting requests ahead of a new one of that priority."""
        return sum(number for each, number in self._counts.items() if each <= priority)

    def _adjust_count(self, request: InferenceRequest, change: int) -> None:
        number = self._counts.get(request.priority, 0) + change
        if number:
            self._counts[request.priority] = number
        else:
            del self._counts[request.priority]
