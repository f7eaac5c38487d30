"""What tests of groups share: mishaps to a database, verbs that break off, watchers that are reported, lives that are few."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from sqlalchemy import Engine, event, select
from sqlalchemy.exc import SQLAlchemyError

from matrixcommon.persistence.database_session import Database, ResourceRow
from matrixcommon.persistence.group_commit import Outcome


class CutOff(SQLAlchemyError):
    """What is injected."""


def few(lives: int) -> settings:
    """The same lives every time, reported as they are: new ones, made small, are what the soak is for."""
    return settings(
        max_examples=lives,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def befalling(engine: Engine, records: Database, mishap: str) -> Iterator[None]:
    """What happens to the database or to the process while a group is on its way there."""

    def cut(*_: Any) -> None:
        raise CutOff(mishap)

    def cut_writing(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO changes"):
            raise CutOff(mishap)

    if mishap == "writing":
        event.listen(engine, "before_cursor_execute", cut_writing)
    elif mishap == "before the commit":
        event.listen(engine, "commit", cut)
    elif mishap == "after the commit":
        records.after_commit.append(cut)
    try:
        yield
    finally:
        if mishap == "writing":
            event.remove(engine, "before_cursor_execute", cut_writing)
        elif mishap == "before the commit":
            event.remove(engine, "commit", cut)
        elif mishap == "after the commit":
            records.after_commit.remove(cut)


def broken_off(records: Database, action: Callable[[], Any]) -> Any:
    """It breaks off once it has changed what it changes."""

    def fail(*_: Any) -> None:
        raise CutOff("halfway")

    records.before_commit.append(fail)
    try:
        return action()
    finally:
        records.before_commit.remove(fail)


def same(one: Outcome, other: Outcome, verb: object) -> None:
    assert str(one.error) == str(other.error), verb
    assert type(one.error) is type(other.error), verb
    assert _reported(one.value) == _reported(other.value), verb


def _reported(value: Any) -> Any:
    return [each.wire() for each in value] if isinstance(value, list) else None if value is None else value.wire()


class Watcher:
    """Somebody who watches resources of some kinds, and knows of them what he was reported."""

    def __init__(self, records: Callable[[], Database], kinds: Sequence[type[ResourceRow]]) -> None:
        self._records, self._kinds = records, kinds
        self.reported = self.shown()
        self.since = records().latest()

    def shown(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What the tables show, by kind and name."""
        with self._records().reading() as session:
            rows = [row for kind in self._kinds for row in session.scalars(select(kind))]
            return {(row.kind, row.name): json.loads(row.view().text()) for row in rows}

    def check(self) -> None:
        """Hear what is new; it must make what is known what the tables show."""
        records = self._records()
        found = [each for kind in self._kinds for each in records.changes_since(kind.kind, self.since, limit=100_000)]
        self.since = records.latest()
        for change in sorted(found, key=lambda change: change.rv):
            at = (change.kind, change.name)
            if change.type == "DELETED":
                del self.reported[at]
            else:
                assert (change.type == "ADDED") == (at not in self.reported), change
                self.reported[at] = json.loads(change.body)
        assert self.reported == self.shown()
