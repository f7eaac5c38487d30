"""Leadership by Lease: of several operators on one Kubernetes API, one works.

The holder renews its Lease; who finds it expired takes it, with the resourceVersion it read, so that two who try at
once cannot both succeed. A holder that could not renew in time stops working before anybody else may begin, because
the time it gives itself (`RENEW_DEADLINE_S`) is shorter than the time others wait (`DURATION_S`). Times are the wall's:
they guard against other processes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from matrixcommon.model.errors import Conflict, MatrixError
from matrixcontainer.client.client import LEASE, KubeClient

log = logging.getLogger(__name__)

DURATION_S = 15.0
RENEW_DEADLINE_S = 10.0
RETRY_S = 2.0
"""client-go's leader election uses 15, 10 and 2 seconds by default."""
AT_REST = "cloudmatrix.io/at-rest"
"""Annotation of a Lease whose holder left nothing under way when it released it."""


class Leadership:
    """One candidate. `identity` says who; a holder that comes back under its old identity continues at once."""

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
        self._seen: tuple[str, float] = ("", 0.0)
        self.holder = ""
        self.after_rest = False
        """Whether whoever held the Lease before us, if anybody, left nothing under way."""
        self._renewed_at = 0.0
        """When the last renewal was sent: others count from when it was written, maybe long before its answer."""

    async def acquire(self) -> None:
        """Return once the Lease is ours."""
        while True:
            try:
                if await self._try():
                    return
            except MatrixError as refused:
                log.info("leadership is not to be had yet", extra={"why": refused.message})
            await asyncio.sleep(RETRY_S)

    async def keep(self) -> None:
        """Renew for ever; return when leadership is lost and no more work may be done."""
        while True:
            await asyncio.sleep(RETRY_S)
            try:
                async with asyncio.timeout(max(0.0, self._renewed_at + RENEW_DEADLINE_S - self._now())):
                    if not await self._try():
                        log.error("leadership went to another", extra={"holder": self.holder})
                        return
            except TimeoutError:
                log.error("leadership was not renewed in time")
                return
            except MatrixError as refused:
                log.warning("leadership was not renewed", extra={"why": refused.message})

    async def release(self, at_rest: bool) -> None:
        """Let the next one begin at once; `at_rest` where nothing that we asked for is under way."""
        try:
            lease = await self._kube.find(LEASE, self._name, self._namespace)
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                await self._write(lease, {"holderIdentity": "", "leaseDurationSeconds": 1}, at_rest)
        except MatrixError as refused:
            log.info("leadership was not released", extra={"why": refused.message})

    async def _try(self) -> bool:
        began = self._now()
        acquired = await self._acquire_or_renew()
        if acquired:
            self._renewed_at = began
        return acquired

    async def _acquire_or_renew(self) -> bool:
        lease = await self._kube.find(LEASE, self._name, self._namespace)
        if lease is None:
            body = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": self._spec(0)}
            try:
                await self._kube.create(LEASE, body, self._namespace)
            except Conflict:
                return False
            self.after_rest = True
            return self._current(self._identity)
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self._identity) and not self._expired(lease):
            self._current(holder)
            return False
        moves = int(spec.get("leaseTransitions") or 0) + (holder != self._identity)
        try:
            await self._write(lease, self._spec(moves, spec.get("acquireTime") if holder == self._identity else None))
        except Conflict:
            return False
        if self.holder != self._identity:
            self.after_rest = (lease["metadata"].get("annotations") or {}).get(AT_REST) == "true"
        return self._current(self._identity)

    def _current(self, holder: str) -> bool:
        self.holder = holder
        return holder == self._identity

    def _expired(self, lease: dict[str, Any]) -> bool:
        """By our own clock since we saw it change, so that clocks of different machines need not agree."""
        version = lease["metadata"]["resourceVersion"]
        if self._seen[0] != version:
            self._seen = (version, self._now())
        return self._now() - self._seen[1] > float(lease["spec"].get("leaseDurationSeconds") or DURATION_S)

    def _spec(self, transitions: int, acquired: str | None = None) -> dict[str, Any]:
        at = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(DURATION_S),
            "acquireTime": acquired or at,
            "renewTime": at,
            "leaseTransitions": transitions,
        }

    async def _write(self, lease: dict[str, Any], spec: dict[str, Any], at_rest: bool = False) -> None:
        annotations = {AT_REST: "true" if at_rest else None}
        metadata = {"resourceVersion": lease["metadata"]["resourceVersion"], "annotations": annotations}
        await self._kube.merge(LEASE, self._name, {"metadata": metadata, "spec": spec}, self._namespace)
