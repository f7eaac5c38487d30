"""What every controller of workloads has: a list of keys to look at, now or later, and a loop that looks.

A key is looked at by one turn at a time; a change that comes meanwhile makes it due again afterwards. `reconcile(key)`
compares what is wished with what is and does what is missing. It returns after how many seconds it wants to look
again by itself, or None. A turn that fails is taken again, later each time. With nothing due the loop sleeps until
somebody changes something: no polling, no writes.
"""

import asyncio
import contextlib
import heapq
from typing import TYPE_CHECKING

from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.storage.objects import Change, Record

if TYPE_CHECKING:
    from matrixcontainer.kubeapi.controllers.manager import Workloads

Name = tuple[str, str]  # namespace, name

RETRY_S_MIN, RETRY_S_MAX = 0.02, 60.0
NAP_S_MIN = 0.005


class Controller:
    """`storage` is the resource whose objects are reconciled; `account` the service account it acts as."""

    storage = ""
    account = ""
    turns_at_once = 16

    def __init__(self, workloads: "Workloads") -> None:
        self.workloads = workloads
        self.api = workloads.api
        self._due: dict[Name, None] = {}
        self._later: dict[Name, float] = {}
        self._heap: list[tuple[float, Name]] = []
        self._failed: dict[Name, int] = {}
        self._wake = asyncio.Event()

    # ---- what to look at

    def load(self) -> None:
        """Everything there is, once at the start."""
        for record in self.api.store.objects_of(self.storage):
            self.look(record.key[1:])

    def notice(self, change: Change) -> None:
        """A committed write; whatever it may concern is looked at."""
        if change.record.key[0] == self.storage:
            self.look(change.record.key[1:])

    def look(self, key: Name) -> None:
        self._due[key] = None
        self._wake.set()

    def enqueue_after(self, key: Name, seconds: float) -> None:
        """Look again then, unless an earlier moment is set already."""
        at = self.api.now() + max(seconds, 0.0)
        if at < self._later.get(key, float("inf")):
            self._later[key] = at
            heapq.heappush(self._heap, (at, key))
            self._wake.set()

    # ---- looking

    async def run(self) -> None:
        while True:
            self._take_what_is_due()
            if self._due:
                keys = list(self._due)[: self.turns_at_once]
                for key in keys:
                    del self._due[key]
                    self._later.pop(key, None)
                await asyncio.gather(*(self._turn(key) for key in keys))
                await asyncio.sleep(0)
                continue
            self._wake.clear()
            nap = max(self._heap[0][0] - self.api.now(), NAP_S_MIN) if self._heap else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(nap):  # wait_for would lose a cancellation that comes with the wake-up
                    await self._wake.wait()

    def _take_what_is_due(self) -> None:
        while self._heap:
            at, key = self._heap[0]
            if self._later.get(key) != at:
                heapq.heappop(self._heap)  # set anew, or looked at since
            elif at <= self.api.now():
                heapq.heappop(self._heap)
                del self._later[key]
                self._due[key] = None
            else:
                return

    async def _turn(self, key: Name) -> None:
        try:
            again = await self.reconcile(key)
        except Exception as failure:
            tries = self._failed[key] = self._failed.get(key, 0) + 1
            self.enqueue_after(key, min(RETRY_S_MIN * 2 ** min(tries, 20), RETRY_S_MAX))
            if not (isinstance(failure, ApiError) and failure.code in (403, 404, 409)):
                self.api.failures.append(f"{type(self).__name__} {'/'.join(key)}: {failure}")
                del self.api.failures[:-20]
                self.api.report(failure, f"{type(self).__name__} {'/'.join(key)}")
            return
        self._failed.pop(key, None)
        if again is not None:
            self.enqueue_after(key, again)

    async def reconcile(self, key: Name) -> float | None:
        raise NotImplementedError

    # ---- common ways

    def record(self, key: Name) -> Record | None:
        return self.api.store.get((self.storage, *key))

    def options(self, subresource: str = "") -> Options:
        """Acts for the server itself: fields that clients may not write are open."""
        return Options(
            user=f"system:serviceaccount:kube-system:{self.account}",
            field_manager="kube-controller-manager",
            field_validation="Ignore",
            from_controller=True,
            subresource=subresource,
        )
