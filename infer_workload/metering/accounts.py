"""Accounts: every token that is answered is on its tenant's account before it is sent.

What comes in at one moment is written in one transaction. A stream is charged ahead, in blocks of `AHEAD_TOKENS`, so
that not every token needs a write of its own; when it ends, what was charged too much is given back. A process that
ends at once has therefore charged all that it sent, and of a stream that it cut at most a block more. What the database
refuses stays here and is written with what comes next. The built-in load, which has no client, is charged as a tenant
of its own, whenever the accounts are settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable

from infer_workload.metering.limits import Lease
from infer_workload.metering.tables import MINUTE_S, Account, charge
from matrixcommon.model.clock import Clock
from matrixcommon.persistence.database_session import Database

log = logging.getLogger(__name__)

LOAD_PROJECT, LOAD_KEY = "load", "built-in"
AHEAD_TOKENS = 32

Charges = dict[tuple[Account, int], Counter[str]]


class Accounts:
    """Gathers what is used until it is in the database."""

    def __init__(self, records: Database, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._open: Charges = defaultdict(Counter)
        self._writing: asyncio.Future[None] | None = None

    def minute(self) -> int:
        """When the present minute began."""
        return int(self._clock.now()) // MINUTE_S * MINUTE_S

    def add(self, account: Account, minute: int | None = None, **counts: int) -> None:
        """In that minute, or the present one; not written yet."""
        if counted := {name: count for name, count in counts.items() if count}:
            self._open[account, self.minute() if minute is None else minute].update(counted)

    def settle(self) -> int:
        """Write what is open; how many accounts. Raises what the database does, and then keeps all of it."""
        taken, self._open = self._open, defaultdict(Counter)
        try:
            if taken:
                with self._records.transaction() as session:
                    charge(session, taken)
        except BaseException:
            for account, counts in taken.items():
                self._open[account].update(counts)
            raise
        return len(taken)

    async def written(self) -> None:
        """Return once what was added so far is in the database, together with what others add at this moment; where
        the database refuses, without it."""
        self.write_soon()
        assert self._writing is not None
        await asyncio.shield(self._writing)

    def write_soon(self) -> None:
        """Have what was added so far written, without waiting for it."""
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        await asyncio.sleep(0)
        self._writing = None
        try:
            self.settle()
        except Exception:
            log.exception("usage is not written yet")


class Charge:
    """What one request is charged. `lease` is what its limits set aside for it."""

    def __init__(self, accounts: Accounts, account: Account, lease: Lease, now: Callable[[], float]) -> None:
        self._accounts = accounts
        self._account = account
        self._lease = lease
        self._now = now
        self._charged = 0
        self._minutes: list[tuple[int, int]] = []
        """When minutes began, and the tokens of the answer that were charged in each, in order."""
        self._begun = self._closed = False

    async def ahead(self, tokens: int, most: int, prompt: int, cached: int) -> None:
        """`tokens` of an answer of at most `most` are about to be sent: have them charged."""
        if tokens <= self._charged and self._begun:
            return
        self._take(min(most, tokens + AHEAD_TOKENS), prompt, cached)
        await self._accounts.written()

    async def end(self, tokens: int, prompt: int, cached: int) -> None:
        """The answer had so many tokens, and is about to be sent."""
        self.close(tokens, prompt, cached)
        await self._accounts.written()

    def close(self, tokens: int, prompt: int, cached: int) -> None:
        """The same where nobody waits for it to be written. Nothing is charged where there was no token; what has been
        closed stays as it was."""
        if self._closed:
            return
        self._closed = True
        if tokens or self._begun:
            self._take(tokens, prompt, cached)
            self._accounts.write_soon()
        self._lease.end()

    def _take(self, tokens: int, prompt: int, cached: int) -> None:
        more, minute = tokens - self._charged, self._accounts.minute()
        first = {} if self._begun else {"requests": 1, "prompt_tokens": prompt, "cached_tokens": min(cached, prompt)}
        self._accounts.add(self._account, minute, completion_tokens=max(0, more), **first)
        self._lease.charge(max(0, more) + first.get("prompt_tokens", 0), self._now())
        if more > 0:
            same = self._minutes.pop()[1] if self._minutes and self._minutes[-1][0] == minute else 0
            self._minutes.append((minute, same + more))
        self._give_back(-more)
        self._charged, self._begun = tokens, True

    def _give_back(self, tokens: int) -> None:
        """So many were charged too much, the last ones: in the minutes in which they were."""
        while tokens > 0 and self._minutes:
            minute, charged = self._minutes.pop()
            back = min(tokens, charged)
            self._accounts.add(self._account, minute, completion_tokens=-back)
            self._lease.give_back(back, minute, self._now())
            if charged > back:
                self._minutes.append((minute, charged - back))
            tokens -= back
