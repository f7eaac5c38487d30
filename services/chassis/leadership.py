"""Leadership: of several replicas on one database, one does the background work; the others stand by.

The leader renews its lease in the database. A replica that has seen the same renewal for the length of a lease, by its
own clock, takes over with the next generation, so replicas need not agree on the time. A leader that stops in an
orderly way releases the lease, and the next one need not wait. Everything done in a leader's name carries its
generation (see `matrixcommon.model.fencing`), so a former leader that was paused is refused by the database and by
every service that has heard of its successor; a new leader announces itself before it begins.

If the database has only one user (a file), the process that starts leads, and nothing is renewed.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable

from sqlalchemy.exc import SQLAlchemyError

from matrixcommon.model.clock import Clock
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.fencing import FENCE, Fence
from matrixcommon.persistence.database_session import Database
from matrixcommon.persistence.fences import Fences

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 5


async def no_announcement() -> None:
    """Do not announce a new leader."""


class Leadership:
    """The leadership of one replica of the service `name`."""

    def __init__(
        self,
        name: str,
        records: Database,
        fences: Fences,
        clock: Clock,
        *,
        lease_wall_s: float = 3.0,
        announce: Callable[[], Awaitable[object]] = no_announcement,
    ) -> None:
        """`announce` sends some request to every neighbour, who thereby learns of the new leader."""
        self._name = name
        self._records = records
        self._fences = fences
        self._clock = clock
        self._lease_wall_s = lease_wall_s
        self._announce = announce
        self._holder = secrets.token_hex(8)
        self._observed_lease: tuple[tuple[str, int, int], float] | None = None
        """The lease as last seen, and since when it has been so, by the loop's clock."""
        self.generation: int | None = None
        """The generation while this replica leads, else None."""

    async def lead(self, work: Callable[[], Awaitable[object]]) -> None:
        """Forever: wait until this replica leads, and do the work as long as it does."""
        while True:
            generation = self._try_acquire()
            if generation is None:
                await asyncio.sleep(self._lease_wall_s / RENEWALS_PER_LEASE)
                continue
            log.info("became leader", extra={"leader": self._name, "generation": generation})
            lost = asyncio.Event()
            FENCE.set(Fence(self._name, generation, lost.set))
            self.generation = generation
            try:
                await self._while_leading(work, generation, lost)
            finally:
                self.generation = None
                FENCE.set(None)
                self._release(generation)
            log.warning("lost leadership", extra={"leader": self._name, "generation": generation})

    async def _while_leading(self, work: Callable[[], Awaitable[object]], generation: int, lost: asyncio.Event) -> None:
        work_task, lost_task = asyncio.create_task(self._announce_and_work(work)), asyncio.create_task(lost.wait())
        renewal_interval_s = self._lease_wall_s / RENEWALS_PER_LEASE if self._records.shared else None
        try:
            while not (work_task.done() or lost_task.done()):
                ended, _ = await asyncio.wait(
                    {work_task, lost_task}, timeout=renewal_interval_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not ended:
                    self._renew(generation, lost)
        finally:
            work_task.cancel()
            lost_task.cancel()
            await asyncio.gather(work_task, lost_task, return_exceptions=True)

    async def _announce_and_work(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(self._lease_wall_s):
                await self._announce()
        except (MatrixError, TimeoutError) as away:
            log.info("could not announce the new leader to a neighbour", extra={"why": str(away)})
        await work()

    # -- the lease -------------------------------------------------------------------------------------------------

    def _try_acquire(self) -> int | None:
        """Try to acquire the lease. Return the generation in which this replica leads, or None while another does."""
        now = asyncio.get_running_loop().time()
        with self._records.transaction() as session:
            self._records.lock(session)
            row = self._fences.read(session, self._name)
            if row is not None and row["holder"] not in ("", self._holder) and self._records.shared:
                current = row["holder"], row["generation"], row["renewals"]
                if self._observed_lease is None or self._observed_lease[0] != current:
                    self._observed_lease = current, now
                if now - self._observed_lease[1] < self._lease_wall_s:
                    return None
            before = 0 if row is None else row["generation"]
            # Never below the generation that a database that has been lost had reached.
            generation = max(before + 1, int(self._clock.now() * 1000))
            self._fences.write(
                session, self._name, row is not None, generation=generation, holder=self._holder, renewals=0
            )
        return generation

    def _renew(self, generation: int, lost: asyncio.Event) -> None:
        with self._records.transaction() as session:
            self._records.lock(session)
            row = self._fences.read(session, self._name)
            if row is None or (row["holder"], row["generation"]) != (self._holder, generation):
                lost.set()
                return
            self._fences.write(session, self._name, True, renewals=row["renewals"] + 1)

    def _release(self, generation: int) -> None:
        """Release the lease, so that the next leader can begin at once."""
        try:
            with self._records.transaction() as session:
                self._records.lock(session)
                row = self._fences.read(session, self._name)
                if row is not None and (row["holder"], row["generation"]) == (self._holder, generation):
                    self._fences.write(session, self._name, True, holder="")
        except (SQLAlchemyError, MatrixError) as wrong:
            log.info("could not release the lease; it will expire", extra={"leader": self._name, "why": str(wrong)})
