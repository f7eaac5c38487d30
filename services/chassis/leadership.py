"""Leadership: of several replicas over one database one does what runs beside requests; the others stand by.

The leader renews its lease in the database; a replica that has seen the same renewal for a lease's length, by its own
clock, takes over with the next generation, so replicas need not agree on the time. A leader that ends well hands the
lease back, and the next one need not wait. Everything that is done in a leader's name bears its generation (see
`matrixcommon.model.fencing`), so one that was paused meanwhile finds itself refused by its database and by every
service that has heard of its successor; a new leader makes itself heard before it begins.

Where nobody else may write into the database (a file), whoever starts leads, and nothing is renewed.
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

RENEWALS_A_LEASE = 5


async def nobody() -> None:
    """Who has no neighbours that are to hear of a new leader."""


class Leadership:
    """Of one replica of the service `name`."""

    def __init__(
        self,
        name: str,
        records: Database,
        fences: Fences,
        clock: Clock,
        *,
        lease_wall_s: float = 3.0,
        announce: Callable[[], Awaitable[object]] = nobody,
    ) -> None:
        """`announce` asks something of every neighbour, who thereby hears of the new leader."""
        self._name = name
        self._records = records
        self._fences = fences
        self._clock = clock
        self._lease_wall_s = lease_wall_s
        self._announce = announce
        self._holder = secrets.token_hex(8)
        self._seen: tuple[tuple[str, int, int], float] | None = None
        """The lease as it was when last it changed, and since when it has been so, by the loop's clock."""
        self.generation: int | None = None
        """While this replica leads."""

    async def lead(self, work: Callable[[], Awaitable[object]]) -> None:
        """For ever: wait until this replica leads, and do the work for as long as it does."""
        while True:
            generation = self._acquired()
            if generation is None:
                await asyncio.sleep(self._lease_wall_s / RENEWALS_A_LEASE)
                continue
            log.info("leads", extra={"leader": self._name, "generation": generation})
            lost = asyncio.Event()
            FENCE.set(Fence(self._name, generation, lost.set))
            self.generation = generation
            try:
                await self._while_leading(work, generation, lost)
            finally:
                self.generation = None
                FENCE.set(None)
                self._hand_back(generation)
            log.warning("leads no more", extra={"leader": self._name, "generation": generation})

    async def _while_leading(self, work: Callable[[], Awaitable[object]], generation: int, lost: asyncio.Event) -> None:
        doing, losing = asyncio.create_task(self._announced(work)), asyncio.create_task(lost.wait())
        renewed_every_s = self._lease_wall_s / RENEWALS_A_LEASE if self._records.shared else None
        try:
            while not (doing.done() or losing.done()):
                ended, _ = await asyncio.wait(
                    {doing, losing}, timeout=renewed_every_s, return_when=asyncio.FIRST_COMPLETED
                )
                if not ended:
                    self._renew(generation, lost)
        finally:
            doing.cancel()
            losing.cancel()
            await asyncio.gather(doing, losing, return_exceptions=True)

    async def _announced(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(self._lease_wall_s):
                await self._announce()
        except (MatrixError, TimeoutError) as away:
            log.info("a neighbour has yet to hear of the new leader", extra={"why": str(away)})
        await work()

    # -- the lease -------------------------------------------------------------------------------------------------

    def _acquired(self) -> int | None:
        """The generation in which this replica leads from now on; None while another does."""
        now = asyncio.get_running_loop().time()
        with self._records.transaction() as session:
            self._records.lock(session)
            row = self._fences.read(session, self._name)
            if row is not None and row["holder"] not in ("", self._holder) and self._records.shared:
                current = row["holder"], row["generation"], row["renewals"]
                if self._seen is None or self._seen[0] != current:
                    self._seen = current, now
                if now - self._seen[1] < self._lease_wall_s:
                    return None
            before = 0 if row is None else row["generation"]
            # Never less than what a database that was lost meanwhile had come to.
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

    def _hand_back(self, generation: int) -> None:
        """Let the next one begin at once."""
        try:
            with self._records.transaction() as session:
                self._records.lock(session)
                row = self._fences.read(session, self._name)
                if row is not None and (row["holder"], row["generation"]) == (self._holder, generation):
                    self._fences.write(session, self._name, True, holder="")
        except (SQLAlchemyError, MatrixError) as wrong:
            log.info("the lease runs out by itself", extra={"leader": self._name, "why": str(wrong)})
