"""Leader election by Lease: of several operators on one Kubernetes API, only the leader is active.

The holder renews its Lease. A candidate that finds it expired takes it over at the resourceVersion that it read, so
that only one of several can succeed. A holder that cannot renew in time stops before another may start, because its own
deadline (`RENEW_DEADLINE_S`) is shorter than the time others wait (`LEASE_DURATION_S`). Times are wall-clock times, as
the other candidates are real processes.

Each time the Lease is acquired, also by a new process of the same identity, its generation grows. The services refuse
requests of an older generation (`Fence`), so what a killed or paused holder has sent has no effect once its successor
has been heard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from matrixcommon.model.errors import Conflict, MatrixError
from matrixcommon.model.fencing import Fence
from matrixcontainer.client.client import LEASE, KubeClient

log = logging.getLogger(__name__)

LEASE_DURATION_S = 15.0
RENEW_DEADLINE_S = 10.0
RETRY_PERIOD_S = 2.0
"""Lease duration, renew deadline and retry period: client-go's defaults of 15, 10 and 2 seconds."""
GENERATION = "cloudmatrix.io/generation"
"""Annotation of the Lease: how its current or last holder identifies itself to the services."""
GENERATION_DIGITS_MAX = 14
"""One less than a fencing token may have, so that the next one fits."""


class LeaderElector:
    """One candidate. A holder that restarts with the same `identity` continues immediately."""

    def __init__(
        self,
        kube: KubeClient,
        identity: str,
        now: Callable[[], float],
        *,
        name: str = "cloudmatrix-operator",
        namespace: str = "kube-system",
    ) -> None:
        self._kube = kube
        self._identity = identity
        self._now = now
        self._name = name
        self._namespace = namespace
        self._observed: tuple[str, float] = ("", 0.0)
        self.holder = ""
        self.superseded = asyncio.Event()
        """Set once a service has refused a request of ours, because it has been sent one by a newer holder."""
        self.fence: Fence | None = None
        """What our requests carry since we acquired the Lease."""
        self._renewed_at = 0.0
        """When the last renewal was sent. Others count from when it was written, possibly long before its response."""

    async def acquire(self) -> None:
        """Wait until we hold the Lease."""
        while True:
            try:
                if await self._try_acquire_or_renew():
                    return
            except MatrixError as refused:
                log.info("cannot acquire leadership yet", extra={"why": refused.message})
            await asyncio.sleep(RETRY_PERIOD_S)

    async def renew(self) -> None:
        """Renew until leadership is lost, then return: no more work may be done after that."""
        while True:
            await asyncio.sleep(RETRY_PERIOD_S)
            try:
                async with asyncio.timeout(max(0.0, self._renewed_at + RENEW_DEADLINE_S - self._now())):
                    if not await self._try_acquire_or_renew():
                        log.error("leadership lost to another candidate", extra={"holder": self.holder})
                        return
            except TimeoutError:
                log.error("leadership was not renewed in time")
                return
            except MatrixError as refused:
                log.warning("leadership was not renewed", extra={"why": refused.message})

    async def release(self) -> None:
        """Release the Lease so that the next candidate can start immediately."""
        try:
            lease = await self._kube.find(LEASE, self._name, self._namespace)
            if lease is not None and self._is_ours(lease):
                await self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1})
        except MatrixError as refused:
            log.info("leadership was not released", extra={"why": refused.message})

    async def _try_acquire_or_renew(self) -> bool:
        started = self._now()
        acquired = await self._update_lease()
        if acquired:
            self._renewed_at = started
        return acquired

    async def _update_lease(self) -> bool:
        lease = await self._kube.find(LEASE, self._name, self._namespace)
        if lease is None:
            generation = self._next_generation(0)
            metadata = {"name": self._name, "namespace": self._namespace, "annotations": {GENERATION: str(generation)}}
            try:
                lease = await self._kube.create(LEASE, {"metadata": metadata, "spec": self._spec(0)}, self._namespace)
            except Conflict:
                return False
            return self._hold(lease, generation)
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._expired(lease):
            self._observe_holder(holder)
            return False
        if self._holds and not self._is_ours(lease):  # taken by a new process of our identity while we were paused
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (holder != self._identity)
        acquired = spec.get("acquireTime") if holder == self._identity else None
        generation = self._next_generation(_generation_of(lease))
        try:
            await self._write(lease, self._spec(transitions, acquired), generation)
        except Conflict:
            return False
        return self._hold(lease, generation)

    @property
    def _holds(self) -> bool:
        """Whether we held the Lease when we last saw it."""
        return self.holder == self._identity

    def _is_ours(self, lease: dict[str, Any]) -> bool:
        """Whether no other process has acquired the Lease since we did."""
        holder = lease["spec"].get("holderIdentity")
        return holder == self._identity and self.fence is not None and _generation_of(lease) <= self.fence.generation

    def _next_generation(self, last: int) -> int:
        """The generation to write: ours while we hold the Lease, else a new one. Never below that of a Lease that has
        been lost, restored services included."""
        if self.fence is not None and self._holds:
            return self.fence.generation
        return max(last + 1, int(self._now() * 1000))

    def _hold(self, lease: dict[str, Any], generation: int) -> bool:
        """Identify ourselves by the Lease and its generation: operators of other clusters over the same services do
        not matter."""
        if self.fence is None or self.fence.generation != generation:
            self.fence = Fence(f"operator-{lease['metadata']['uid']}", generation, self.superseded.set)
        return self._observe_holder(self._identity)

    def _observe_holder(self, holder: str) -> bool:
        self.holder = holder
        return holder == self._identity

    def _expired(self, lease: dict[str, Any]) -> bool:
        """Whether the Lease has not changed for its duration, measured by our own clock so that the clocks of different
        machines need not agree."""
        version = lease["metadata"]["resourceVersion"]
        if self._observed[0] != version:
            self._observed = (version, self._now())
        return self._now() - self._observed[1] > float(lease["spec"].get("leaseDurationSeconds") or LEASE_DURATION_S)

    def _spec(self, transitions: int, acquired: str | None = None) -> dict[str, Any]:
        at = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(LEASE_DURATION_S),
            "acquireTime": acquired or at,
            "renewTime": at,
            "leaseTransitions": transitions,
        }

    async def _write(self, lease: dict[str, Any], spec: dict[str, Any], generation: int | None = None) -> None:
        metadata: dict[str, Any] = {"resourceVersion": lease["metadata"]["resourceVersion"]}
        if generation is not None:
            metadata["annotations"] = {GENERATION: str(generation)}
        await self._kube.merge(LEASE, self._name, {"metadata": metadata, "spec": spec}, self._namespace)


def _generation_of(lease: dict[str, Any]) -> int:
    """The generation in a Lease; 0 if somebody has removed or spoilt it."""
    text = str((lease["metadata"].get("annotations") or {}).get(GENERATION, ""))
    return int(text) if text.isdecimal() and len(text) <= GENERATION_DIGITS_MAX else 0
