"""The base of controllers: a queue of keys to reconcile, now or later, and the loop that processes it.

A key is processed by one task at a time; a change meanwhile enqueues it again. `reconcile(key)` compares desired and
actual state, acts on the difference, and returns in how many seconds to call it again, or None. Failures are retried
with exponential back-off, and reported unless they are ordinary API errors. With nothing due, the loop sleeps until
something changes: no polling, no writes.
"""

import asyncio
import contextlib
import heapq
from collections.abc import Callable
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar

from matrixcontainer.kubeapi.controllers.runtime.event_recorder import EventRecorder
from matrixcontainer.kubeapi.controllers.runtime.informers import Informers
from matrixcontainer.kubeapi.kubelet.pod_info import Name
from matrixcontainer.kubeapi.meta.attempts import raise_if_cancelled
from matrixcontainer.kubeapi.meta.errors import ApiError, ignoring
from matrixcontainer.kubeapi.registry.core import Core
from matrixcontainer.kubeapi.registry.options import Deletion, Options
from matrixcontainer.kubeapi.registry.resource import Resource
from matrixcontainer.kubeapi.storage.objects import Change, Record

K = TypeVar("K", bound=tuple[str, ...])
Modification = Callable[[dict[str, Any]], dict[str, Any]]

RETRY_S_MIN, RETRY_S_MAX = 0.02, 60.0
SLEEP_S_MIN = 0.005
EXPECTED_ERROR_CODES = (403, 404, 409)  # errors that other clients may cause at any time


class Workqueue(Generic[K]):
    """The queue and its loop, for any type of key."""

    max_concurrent_reconciles = 16
    account = ""  # identity: a service account, or the full name of a user

    def __init__(self, core: Core) -> None:
        self.core = core
        self._ready: dict[K, None] = {}
        self._scheduled: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()

    def enqueue(self, key: K) -> None:
        self._ready[key] = None
        self._wake.set()

    def enqueue_after(self, key: K, seconds: float) -> None:
        """Reconcile the key after a delay, unless it is due earlier already."""
        at = self.core.now() + max(seconds, 0.0)
        if at < self._scheduled.get(key, float("inf")):
            self._scheduled[key] = at
            heapq.heappush(self._heap, (at, key))
            self._wake.set()

    async def run(self) -> None:
        while True:
            self._promote_due()
            if self._ready:
                keys = list(islice(self._ready, self.max_concurrent_reconciles))
                for key in keys:
                    del self._ready[key]
                    self._scheduled.pop(key, None)
                await asyncio.gather(*(self.process(key) for key in keys))
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            sleep_s = max(self._heap[0][0] - self.core.now(), SLEEP_S_MIN) if self._heap else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(sleep_s):  # wait_for could lose a cancellation during wake-up
                    await self._wake.wait()

    def _promote_due(self) -> None:
        while self._heap:
            at, key = self._heap[0]
            if self._scheduled.get(key) != at:
                heapq.heappop(self._heap)  # rescheduled, or reconciled since
            elif at <= self.core.now():
                heapq.heappop(self._heap)
                del self._scheduled[key]
                self._ready[key] = None
            else:
                return

    async def process(self, key: K) -> None:
        """Reconcile the key now; a failure is retried later."""
        try:
            requeue_after_s = await self.reconcile(key)
        except Exception as failure:
            raise_if_cancelled(failure)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self.enqueue_after(key, min(RETRY_S_MIN * 2 ** min(failures, 20), RETRY_S_MAX))
            if not (isinstance(failure, ApiError) and failure.code in EXPECTED_ERROR_CODES):
                self.core.record_failure(failure, f"{type(self).__name__} {'/'.join(key)}")
            return
        self._failures.pop(key, None)
        if requeue_after_s is not None:
            self.enqueue_after(key, requeue_after_s)

    async def reconcile(self, key: K) -> float | None:
        raise NotImplementedError

    def options(self, subresource: str = "") -> Options:
        """Options for writes by the server itself, which may also set fields that clients cannot."""
        system = self.account.startswith("system:")
        return Options(
            user=self.account if system else f"system:serviceaccount:kube-system:{self.account}",
            field_manager="kube-apiserver" if system else "kube-controller-manager",
            field_validation="Ignore",
            from_controller=True,
            subresource=subresource,
        )

    async def delete_object(self, resource: Resource, namespace: str, name: str, request: Deletion) -> None:
        """Delete an object, unless it is gone or was replaced meanwhile."""
        with ignoring(404, 409):
            await self.core.verbs.delete(resource, namespace, name, request, self.options())


def filter_list(meta: dict[str, Any], key: str, keep: Callable[[Any], bool]) -> None:
    """Filter a list in metadata, and remove it if it becomes empty."""
    meta[key] = [item for item in meta.get(key) or [] if keep(item)]
    if not meta[key]:
        del meta[key]


class Controller(Workqueue[Name]):
    """`storage` is the resource whose objects are reconciled."""

    storage = ""

    @cached_property
    def resource(self) -> Resource:
        """The resource of `storage`."""
        found = self.core.registry.by_storage(self.storage)
        assert found is not None
        return found

    def load(self) -> None:
        """Enqueue all existing objects, at start."""
        for record in self.core.store.objects_of(self.storage):
            self.enqueue(record.key[1:])

    def on_change(self, change: Change) -> None:
        """Enqueue the keys that a committed write may concern."""
        if change.record.key[0] == self.storage:
            self.enqueue(change.record.key[1:])

    def record(self, key: Name) -> Record | None:
        return self.core.store.get((self.storage, *key))

    async def modify(self, key: Name, change: Modification, subresource: str = "") -> None:
        """Modify an object of this controller's resource."""
        await self.core.verbs.modify(self.resource, *key, change, self.options(subresource))

    async def write_status(self, key: Name, status: dict[str, Any]) -> None:
        await self.modify(key, lambda obj: obj | {"status": status}, "status")


class WorkloadController(Controller):
    """A controller that uses the indexes of pods, ReplicaSets and nodes, and records events."""

    def __init__(self, core: Core, informers: Informers, events: EventRecorder) -> None:
        super().__init__(core)
        self.informers, self.events = informers, events
