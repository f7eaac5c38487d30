"""Group commit: verbs that wait at the same moment are decided one after another and committed together.

A disk takes as long for one commit as for fifty, and the same holds for most statements before it. Verbs that arrive
while a group is decided and committed form the next group; no verb is delayed to fill a group. A verb's result is
returned once the whole group is durable. A refused verb leaves its group and the others continue; if anything else
fails before the commit, the group is rolled back and each of its verbs is run by itself.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from matrixcommon.persistence.database_session import Database

T = TypeVar("T")

GROUP_SIZE_MAX = 64
"""Most verbs in a group; this bounds how long the event loop is blocked."""


@dataclass
class Outcome:
    """The result of one verb: its value or its error."""

    value: Any = None
    error: BaseException | None = None


def run_group(records: Database, verbs: Sequence[Callable[[], Any]]) -> list[Outcome]:
    """Run the verbs and return their outcomes in the same order; what was granted is durable. A verb makes at most one
    transaction."""
    if len(verbs) == 1:
        return [_run_verb(verbs[0])]
    outcomes: list[Outcome] = []
    group = None
    try:
        with records.group_transaction() as group:
            for verb in verbs:
                outcome = _run_verb(verb)
                if group.broken:
                    raise outcome.error or RuntimeError("a verb broke its group and reported nothing")
                outcomes.append(outcome)
    except Exception as wrong:
        if group is None or not group.committing:
            return [_run_verb(verb) for verb in verbs]
        # The commit succeeded, or its outcome is unknown: report the error, so that the callers can retry.
        return [each if each.error is not None and group.committed else Outcome(error=wrong) for each in outcomes]
    return outcomes


def _run_verb(verb: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(verb())
    except Exception as wrong:
        return Outcome(error=wrong)


class CommitQueue:
    """The queue of waiting verbs on one event loop."""

    def __init__(self, records: Database) -> None:
        self._records = records
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    async def run(self, verb: Callable[[], T]) -> T:
        """Return what the verb returns, once it is durable. Raises what the verb raises."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        self._waiting.append((lambda: context.run(verb), answer))
        if len(self._waiting) == 1:
            # After everything that is ready has run, so that verbs that arrived together share a group.
            loop.call_soon(self._next)
        return await answer

    def _next(self) -> None:
        group, self._waiting = self._waiting[:GROUP_SIZE_MAX], self._waiting[GROUP_SIZE_MAX:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        group = [(verb, answer) for verb, answer in group if not answer.done()]  # the caller may have been cancelled
        if not group:
            return
        outcomes = run_group(self._records, [verb for verb, _ in group])
        for (_, answer), outcome in zip(group, outcomes, strict=True):
            if answer.done():
                continue
            if outcome.error is not None:
                answer.set_exception(outcome.error)
            else:
                answer.set_result(outcome.value)
