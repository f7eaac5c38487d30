"""Groups: verbs that wait at the same moment are decided one after the other and committed together.

A disk takes as long for one commit as for fifty, and so do most of the statements that lead to it. Whoever arrives
while a group is decided and committed forms the next one; nobody waits for company. What a verb returns is returned
once the whole group is durable. A verb that is refused is out of its group and the others go on; when anything else
goes wrong before the commit, nothing of the group has happened, and each of its verbs is done by itself.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from matrixcommon.persistence.database_session import Database

T = TypeVar("T")

MOST = 64
"""Verbs of one group: it bounds how long the service sees to nothing else."""


@dataclass
class Outcome:
    """What became of one verb."""

    value: Any = None
    error: BaseException | None = None


def decide(records: Database, verbs: Sequence[Callable[[], Any]]) -> list[Outcome]:
    """Each verb's outcome, in their order; what was granted is durable. A verb makes one transaction, or none."""
    if len(verbs) == 1:
        return [_alone(verbs[0])]
    outcomes: list[Outcome] = []
    group = None
    try:
        with records.group_transaction() as group:
            for verb in verbs:
                outcome = _alone(verb)
                if group.broken:
                    raise outcome.error or RuntimeError("a verb broke its group and reported nothing")
                outcomes.append(outcome)
    except Exception as wrong:
        if group is None or not group.committing:
            return [_alone(verb) for verb in verbs]
        # It has happened, or nobody knows whether it has: whoever asked is informed of it, and may ask again.
        return [each if each.error is not None and group.committed else Outcome(error=wrong) for each in outcomes]
    return outcomes


def _alone(verb: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(verb())
    except Exception as wrong:
        return Outcome(error=wrong)


class CommitQueue:
    """The verbs that wait, on one event loop."""

    def __init__(self, records: Database) -> None:
        self._records = records
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    async def run(self, verb: Callable[[], T]) -> T:
        """What the verb returns, once that is durable. Raises what the verb raises."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        self._waiting.append((lambda: context.run(verb), answer))
        if len(self._waiting) == 1:
            # After all that is ready to run has run: who came in with us is with us.
            loop.call_soon(self._next)
        return await answer

    def _next(self) -> None:
        group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        group = [(verb, answer) for verb, answer in group if not answer.done()]  # whoever asked may have gone
        if not group:
            return
        outcomes = decide(self._records, [verb for verb, _ in group])
        for (_, answer), outcome in zip(group, outcomes, strict=True):
            if answer.done():
                continue
            if outcome.error is not None:
                answer.set_exception(outcome.error)
            else:
                answer.set_result(outcome.value)
