"""Mutations: every change of every service's resources goes through here.

A verb is decided in a group with others that wait at the same moment, after `If-Match` was compared with the resource
in the same transaction. With `validateOnly` it is decided as usual and then rolled back, in the tables and in memory.
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

RowKey = tuple[type[ResourceRow], str]
"""A resource: its kind of row, and its key."""


def generated_name(kind: str, caller: Caller, idempotency_key: str) -> str:
    """The name of a resource created with that key, so that a repeated request finds the first one's."""
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
        row: RowKey | None = None,
        if_match: str | None = None,
        ensures: bool = False,
    ) -> T:
        """Return what the verb returns, once it is durable, or rolled back if `validate_only`. Raises what the verb and
        `check` raise."""

        def decided() -> T:
            if row is None or if_match is None:
                return verb()
            # In one group even if nothing else waits, so that no other replica changes anything in between.
            with nullcontext() if self._records.in_transaction else self._records.group_transaction():
                self.check(row, if_match, ensures)
                return verb()

        return self._records.dry_run(decided) if validate_only else await self._queue.run(decided)

    def check(self, row: RowKey | None, if_match: str | None, ensures: bool = False) -> None:
        """Raise PreconditionFailed if `row` does not match `if_match`, NotFound if it does not exist, unless the verb
        `ensures` it."""
        if row is None or if_match is None:
            return
        with self._records.transaction() as session:
            check_etag(session.get(*row) if ensures else find(session, *row), if_match)
