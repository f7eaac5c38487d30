"""Accounts: every token is charged to its tenant before it is sent.

Charges of one moment are written in one transaction. A stream is charged ahead, in blocks of `PRECHARGED_TOKENS`, so
that not every token needs a write; when it ends, the excess is refunded. So a process that dies has charged all that it
sent, and at most one block more for a stream that it cut off. Charges that the database refuses stay here and are
written with the next ones. Built-in load, which has no client, is charged to a tenant of its own whenever the accounts
are settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable

from infer_workload.metering.limits import Lease
from infer_workload.metering.tables import MINUTE_S, Account, add_charges
from matrixcommon.model.clock import Clock
from matrixcommon.persistence.database_session import Database

log = logging.getLogger(__name__)

LOAD_PROJECT, LOAD_KEY = "load", "built-in"
PRECHARGED_TOKENS = 32

Charges = dict[tuple[Account, int], Counter[str]]


class Accounts:
    """Collects usage until it is in the database."""

    def __init__(self, records: Database, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._open: Charges = defaultdict(Counter)
        self._writing: asyncio.Future[None] | None = None

    def minute(self) -> int:
        """The start of the present minute, seconds."""
        return int(self._clock.now()) // MINUTE_S * MINUTE_S

    def add(self, account: Account, minute: int | None = None, **counts: int) -> None:
        """Add usage in that minute, or the present one, without writing it yet."""
        if counted := {name: count for name, count in counts.items() if count}:
            self._open[account, self.minute() if minute is None else minute].update(counted)

    def flush(self) -> int:
        """Write the open charges. Return how many there were. Keeps all of them if the database raises."""
        taken, self._open = self._open, defaultdict(Counter)
        try:
            if taken:
                with self._records.transaction() as session:
                    add_charges(session, taken)
        except BaseException:
            for account, counts in taken.items():
                self._open[account].update(counts)
            raise
        return len(taken)

    async def wait_until_written(self) -> None:
        """Return once everything added so far has been written, together with what others add at this moment; or once
        the database has refused it."""
        self.schedule_write()
        assert self._writing is not None
        await asyncio.shield(self._writing)

    def schedule_write(self) -> None:
        """Schedule a write of everything added so far."""
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        await asyncio.sleep(0)
        self._writing = None
        try:
            self.flush()
        except Exception:
            log.exception("could not write usage; it is kept for the next write")


class Charge:
    """The charge of one request. `lease` is the reservation in its limits."""

    def __init__(self, accounts: Accounts, account: Account, lease: Lease, now: Callable[[], float]) -> None:
        self._accounts = accounts
        self._account = account
        self._lease = lease
        self._now = now
        self._charged = 0
        self._minutes: list[tuple[int, int]] = []
        """(start of a minute, answer tokens charged in it), in order."""
        self._begun = self._closed = False

    async def precharge(self, tokens: int, most: int, prompt: int, cached: int) -> None:
        """Charge `tokens` of an answer of at most `most` that are about to be sent, and wait until it is written."""
        if tokens <= self._charged and self._begun:
            return
        self._charge(min(most, tokens + PRECHARGED_TOKENS), prompt, cached)
        await self._accounts.wait_until_written()

    async def charge_all(self, tokens: int, prompt: int, cached: int) -> None:
        """Charge the whole answer before it is sent, and wait until it is written."""
        self.close(tokens, prompt, cached)
        await self._accounts.wait_until_written()

    def close(self, tokens: int, prompt: int, cached: int) -> None:
        """Charge the whole answer without waiting. Nothing is charged without a token; only the first call counts."""
        if self._closed:
            return
        self._closed = True
        if tokens or self._begun:
            self._charge(tokens, prompt, cached)
            self._accounts.schedule_write()
        self._lease.end()

    def _charge(self, tokens: int, prompt: int, cached: int) -> None:
        more, minute = tokens - self._charged, self._accounts.minute()
        first = {} if self._begun else {"requests": 1, "prompt_tokens": prompt, "cached_tokens": min(cached, prompt)}
        self._accounts.add(self._account, minute, completion_tokens=max(0, more), **first)
        self._lease.charge(max(0, more) + first.get("prompt_tokens", 0), self._now())
        if more > 0:
            same = self._minutes.pop()[1] if self._minutes and self._minutes[-1][0] == minute else 0
            self._minutes.append((minute, same + more))
        self._refund(-more)
        self._charged, self._begun = tokens, True

    def _refund(self, tokens: int) -> None:
        """Refund the last tokens charged, in the minutes in which they were charged."""
        while tokens > 0 and self._minutes:
            minute, charged = self._minutes.pop()
            back = min(tokens, charged)
            self._accounts.add(self._account, minute, completion_tokens=-back)
            self._lease.restore(back, minute, self._now())
            if charged > back:
                self._minutes.append((minute, charged - back))
            tokens -= back
