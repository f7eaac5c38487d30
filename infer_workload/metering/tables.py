"""Tables of usage and usage limits, and the base of all tables of CloudMatrix-Infer.

Usage is stored by minute of emulated time; older usage is rolled up into hours and days, so that the table grows with
the number of keys and days and not with the number of requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import JSON, BigInteger, Integer, String, delete, func, insert, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from infer_workload.metering.contract import UsageLimitRequest, UsageLimitView
from matrixcommon.persistence.database_session import ResourceRow, journal_tables
from matrixcommon.persistence.fences import leader_table

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
RETENTION_S = {MINUTE_S: 2 * DAY_S, HOUR_S: 90 * DAY_S}
"""How long buckets of each width are kept before they are rolled up into the next wider ones, emulated seconds."""
NEXT_WIDTH_S = {MINUTE_S: HOUR_S, HOUR_S: DAY_S}

COUNTED = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
Account = tuple[str, str, str, str]
"""Project, key, deployment and model."""


class Base(DeclarativeBase):
    pass


journal_tables(Base.metadata)
leader_table(Base.metadata)


class UsageRow(Base):
    """Tokens of one account in one bucket of `width_s` seconds that begins at `start` (emulated, since the epoch)."""

    __tablename__ = "usage_buckets"

    project: Mapped[str] = mapped_column(String(63), primary_key=True)
    key: Mapped[str] = mapped_column(String(63), primary_key=True)
    deployment: Mapped[str] = mapped_column(String(127), primary_key=True)
    model: Mapped[str] = mapped_column(String(127), primary_key=True)
    start: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    width_s: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    requests: Mapped[int] = mapped_column(BigInteger, default=0)
    prompt_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    cached_tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    completion_tokens: Mapped[int] = mapped_column(BigInteger, default=0)


ACCOUNT = (UsageRow.project, UsageRow.key, UsageRow.deployment, UsageRow.model)
SUMS = tuple(func.sum(getattr(UsageRow, name)).label(name) for name in COUNTED)


class UsageLimitRow(ResourceRow, Base):
    """One limit, in the project whose keys it limits."""

    __tablename__ = "usage_limits"
    kind = "usage limit"

    request: Mapped[dict[str, Any]] = mapped_column(JSON)

    @property
    def spec(self) -> UsageLimitRequest:
        return UsageLimitRequest.from_stored(self.request)

    def view(self) -> UsageLimitView:
        return self.view_as(UsageLimitView, **self.spec.model_dump(exclude={"labels"}))


def add_charges(session: Session, charges: Mapping[tuple[Account, int], Mapping[str, int]]) -> None:
    """Add to minute buckets: by (account, start of the minute), the counts to add, which may be negative."""
    for (account, start), counts in charges.items():
        where = [column == value for column, value in zip(ACCOUNT, account, strict=True)]
        where += [UsageRow.start == start, UsageRow.width_s == MINUTE_S]
        more = {name: getattr(UsageRow, name) + count for name, count in counts.items()}
        found = session.execute(
            update(UsageRow).where(*where).values(more).execution_options(synchronize_session=False)
        )
        if not found.rowcount:  # type: ignore[attr-defined]
            named = dict(zip(("project", "key", "deployment", "model"), account, strict=True))
            fresh = dict.fromkeys(COUNTED, 0) | dict(counts)
            session.execute(insert(UsageRow).values(**named, start=start, width_s=MINUTE_S, **fresh))


def used_since(session: Session, start: float) -> list[tuple[Account, int, int, int]]:
    """(account, start, requests, prompt and answer tokens) of each bucket that begins at `start` or later."""
    tokens = UsageRow.prompt_tokens + UsageRow.completion_tokens
    asked = select(*ACCOUNT, UsageRow.start, UsageRow.requests, tokens).where(UsageRow.start >= int(start))
    return [((row[0], row[1], row[2], row[3]), row[4], row[5], row[6]) for row in session.execute(asked)]


def sum_usage(
    session: Session, group_by: Iterable[str], bucket_s: int | None, start: float | None, end: float | None
) -> list[dict[str, Any]]:
    """Usage summed by project and those columns, and by buckets of that width if one is given, in order."""
    columns: list[Any] = [UsageRow.project, *(getattr(UsageRow, name) for name in group_by)]
    if bucket_s is not None:
        columns.append((UsageRow.start - UsageRow.start % bucket_s).label("bucket"))
    asked = select(*columns, *SUMS).group_by(*columns).order_by(*columns)
    if start is not None:
        asked = asked.where(UsageRow.start >= int(start))
    if end is not None:
        asked = asked.where(UsageRow.start < int(end))
    return [dict(row._mapping) for row in session.execute(asked)]


def retention_starts(now: float) -> dict[int, int]:
    """The start of the first bucket of each width that is kept; it moves by one wider bucket at a time."""
    return {
        width: int(now - kept_s) // NEXT_WIDTH_S[width] * NEXT_WIDTH_S[width] for width, kept_s in RETENTION_S.items()
    }


def roll_up(session: Session, now: float) -> int:
    """Roll up old buckets into wider ones. Return how many were removed."""
    gone = 0
    for width, before in retention_starts(now).items():
        wider = NEXT_WIDTH_S[width]
        old = (UsageRow.width_s == width, UsageRow.start < before)
        start = (UsageRow.start - UsageRow.start % wider).label("start")
        rows = session.execute(select(*ACCOUNT, start, *SUMS).where(*old).group_by(*ACCOUNT, start)).all()
        if not rows:
            continue
        gone += session.execute(delete(UsageRow).where(*old)).rowcount  # type: ignore[attr-defined]
        for row in rows:
            values = dict(row._mapping)
            named = [column == values[column.key] for column in ACCOUNT]
            wide = (*named, UsageRow.start == values["start"], UsageRow.width_s == wider)
            more = {name: getattr(UsageRow, name) + values[name] for name in COUNTED}
            if not session.execute(update(UsageRow).where(*wide).values(more)).rowcount:  # type: ignore[attr-defined]
                session.execute(insert(UsageRow).values(**values, width_s=wider))
    return gone
