"""Resources behind which something changed in the services: reconciled soon, each once however often it is named."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Protocol

from matrixcommon.model.errors import MatrixError
from matrixcontainer.operator.reconciler import Reconciler

log = logging.getLogger(__name__)

AT_ONCE_MAX = 8
"""So many resources are worked on at a time. With hundreds of requests under way even the renewal of the leader's Lease
would wait for its turn for too long."""


class Nudge(Protocol):
    """Has the next run begin soon; at once where it is urgent."""

    def __call__(self, *, urgent: bool) -> None: ...


def _nobody(*, urgent: bool) -> None:
    """Until there is somebody to nudge."""


class Changed:
    """Of one kind. What is refused, or asks to be looked at again, stays for the next run."""

    def __init__(self, reconciler: Reconciler) -> None:
        self._reconciler = reconciler
        self._keys: set[str] = set()
        self._free = asyncio.Semaphore(AT_ONCE_MAX)
        self.nudge: Nudge = _nobody

    def add(self, keys: Iterable[str], urgent: bool = False) -> None:
        """`urgent`: their resources say what is no longer true, and are not to wait for others."""
        self._keys |= set(keys)
        self.nudge(urgent=urgent)

    async def reconcile(self) -> str:
        """Reconcile all that have changed since the last run."""
        keys, self._keys = self._keys, set()
        again = await asyncio.gather(*(self._again(key) for key in sorted(keys)))
        self._keys |= {key for key, retry in zip(sorted(keys), again, strict=True) if retry}
        return f"{len(keys)} resources reconciled, {sum(again)} to be seen again"

    async def _again(self, key: str) -> bool:
        async with self._free:
            try:
                return await self._reconciler.reconcile(key) is not None
            except MatrixError as refused:
                kind = self._reconciler.kind.kind
                log.warning("not reconciled yet", extra={"kind": kind, "key": key, "why": refused.message})
                return True
            except Exception:  # of one resource: the others have their turn, and this one another
                log.exception("not reconciled", extra={"kind": self._reconciler.kind.kind, "key": key})
                return True
