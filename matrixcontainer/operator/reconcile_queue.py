"""Queue of resources whose objects changed in the services: reconciled soon, each once however often it is added."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from matrixcommon.model.errors import MatrixError
from matrixcontainer.operator.reconciler import Reconciler

log = logging.getLogger(__name__)

CONCURRENCY_MAX = 8
"""Resources of a kind that are reconciled concurrently. With hundreds of requests in flight, even the renewal of the
leader's Lease would be queued for too long."""


class Nudge(Protocol):
    """Requests another run soon, or immediately if `urgent`."""

    def __call__(self, *, urgent: bool) -> None: ...


def _no_nudge(*, urgent: bool) -> None:
    """Do nothing; used until a runner is attached."""


class ReconcileQueue:
    """Queue of changed resources of one kind. A key whose reconcile fails or asks to be called again stays queued."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._keys: set[str] = set()
        self._slots = asyncio.Semaphore(CONCURRENCY_MAX)
        self.nudge: Nudge = _no_nudge

    def add(self, keys: Iterable[str], urgent: bool = False) -> None:
        """Queue `keys`. `urgent`: their status is wrong now, so the next run must not wait for more changes."""
        self._keys |= set(keys)
        self.nudge(urgent=urgent)

    async def reconcile(self) -> str:
        """Reconcile every queued resource; return a summary."""
        keys, self._keys = self._keys, set()
        retries = await asyncio.gather(*(self._reconcile_key(key) for key in sorted(keys)))
        self._keys |= {key for key, retry in zip(sorted(keys), retries, strict=True) if retry}
        return f"{len(keys)} resources reconciled, {sum(retries)} requeued"

    async def _reconcile_key(self, key: str) -> bool:
        """Reconcile one resource; return whether it has to be reconciled again."""
        async with self._slots:
            try:
                return await self._reconciler.reconcile(key) is not None
            except MatrixError as refused:
                kind = self._reconciler.kind.kind
                log.warning("reconcile refused, will retry", extra={"kind": kind, "key": key, "why": refused.message})
                return True
            except Exception:  # a bug in one resource's reconcile must not stop the others; it is retried
                log.exception("reconcile failed", extra={"kind": self._reconciler.kind.kind, "key": key})
                return True
