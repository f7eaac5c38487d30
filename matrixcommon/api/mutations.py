"""Changing things: every mutation of every service goes through here.

A verb is decided in a group with whatever waits at the same moment, after `If-Match` was compared with the resource it
names, in the same transaction. With `validateOnly` it is decided all the same and then undone, in the tables and in
memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

from matrixcommon.api.authorization import Caller
from matrixcommon.persistence.database_session import Database, ResourceRow, check_etag, find
from matrixcommon.persistence.group_commit import CommitQueue

T = TypeVar("T")

Row = tuple[type[ResourceRow], str]
"""A resource: its kind of row, and its key."""


def name_for(kind: str, caller: Caller, idempotency_key: str) -> str:
    """The name of what is made under that key: asking twice finds the first."""
    made_by = f"{caller.project} {caller.principal.name} {idempotency_key}"
    return f"{kind}-{hashlib.sha256(made_by.encode()).hexdigest()[:16]}"


class Mutations:
    """The mutations of one service's database."""

    def __init__(self, records: Database) -> None:
        self._records = records
        self._queue = CommitQueue(records)

    async def run(
        self,
        verb: Callable[[], T],
        *,
        validate_only: bool = False,
        row: Row | None = None,
        if_match: str | None = None,
        ensures: bool = False,
    ) -> T:
        """What the verb returns, once that is durable, or undone. Raises what it raises, and what `check` does."""

        def decided() -> T:
            if row is None or if_match is None:
                return verb()
            # In one group, also where nobody else waits: another replica is to change nothing in between.
            with nullcontext() if self._records.deciding else self._records.group_transaction():
                self.check(row, if_match, ensures)
                return verb()

        return self._records.dry_run(decided) if validate_only else await self._queue.run(decided)

    def check(self, row: Row | None, if_match: str | None, ensures: bool = False) -> None:
        """Raises PreconditionFailed where `row` is not as `if_match` has it, NotFound where it is not there at all,
        unless the verb `ensures` it."""
        if row is None or if_match is None:
            return
        with self._records.transaction() as session:
            check_etag(session.get(*row) if ensures else find(session, *row), if_match)
