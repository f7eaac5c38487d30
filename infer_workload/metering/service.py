"""UsageService: the accounts and usage limits of one process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor
from typing import Any
from weakref import WeakSet

from sqlalchemy import select
from sqlalchemy.orm import Session

from infer_workload.metering.accounts import Accounts, Charge
from infer_workload.metering.contract import UsageLimitRequest, UsageLimitView
from infer_workload.metering.limits import Lease, UsageLimit
from infer_workload.metering.tables import (
    DAY_S,
    Account,
    UsageLimitRow,
    retention_starts,
    roll_up,
    sum_usage,
    used_since,
)
from matrixcommon.model.clock import Clock
from matrixcommon.model.hardware_names import validate_resource_name
from matrixcommon.model.resource_key import project_of
from matrixcommon.persistence.database_session import Database, find


class UsageService:
    """Accounts and limits over one database."""

    def __init__(self, records: Database, clock: Clock) -> None:
        self.records = records
        self.accounts = Accounts(records, clock)
        self._clock = clock
        self._limits: dict[str, UsageLimit] = {}
        self._leases: WeakSet[Lease] = WeakSet()
        """Leases of requests in flight, and some that have ended."""
        self._rolled_up: dict[int, int] = {}
        """Up to where buckets are rolled up, by width; this moves once an hour, and then a roll-up is due."""

    def restore(self) -> int:
        """Load the limits and their usage from the database. Return how many limits there are."""
        with self.records.reading() as session:
            rows = [(row.name, row.spec) for row in session.scalars(select(UsageLimitRow))]
        self._limits = {name: UsageLimit(name, spec) for name, spec in rows}
        self._count_earlier_usage(self._limits.values())
        return len(self._limits)

    def ensure(self, name: str, request: UsageLimitRequest, *, validate_only: bool = False) -> UsageLimitView:
        """Create or update a limit. Earlier usage in its windows counts, and so do requests in flight."""
        validate_resource_name(name)
        with self.records.transaction(dry=validate_only) as session:
            row = session.get(UsageLimitRow, name)
            if row is None:
                row = UsageLimitRow(name=name, project=project_of(name), request=request.wire(), state="Enforced")
                row.labels, row.generation, row.conditions = request.labels, 1, []
                session.add(row)
            elif row.spec != request:
                row.request, row.labels = request.wire(), request.labels
                row.generation += 1
            session.flush()
            if validate_only:
                return row.view()
        current = self._limits.get(name)
        fresh = UsageLimit(name, request)
        if current is not None and (current.spec.token_name, current.spec.model) == (
            request.token_name,
            request.model,
        ):
            current.spec = request
        else:
            self._limits[name] = fresh
            self._count_earlier_usage([fresh])
            for lease in self._leases:
                lease.add_limit(fresh, self._clock.now())
        return self.view(name)

    def delete(self, name: str, *, validate_only: bool = False) -> None:
        """Delete a limit."""
        with self.records.transaction(dry=validate_only) as session:
            session.delete(find(session, UsageLimitRow, name))
        if not validate_only:
            self._limits.pop(name, None)

    def view(self, name: str) -> UsageLimitView:
        """The limit and its present usage."""
        with self.records.reading() as session:
            return self._shown(find(session, UsageLimitRow, name))

    def views(self, session: Session, rows: Sequence[UsageLimitRow]) -> list[UsageLimitView]:
        """Several limits and their present usage."""
        return [self._shown(row) for row in rows]

    def _shown(self, row: UsageLimitRow) -> UsageLimitView:
        limit = self._limits.get(row.name)
        return (
            row.view() if limit is None else row.view().model_copy(update={"used": limit.used_view(self._clock.now())})
        )

    def admit(self, account: Account, tokens: int) -> tuple[Lease, Charge]:
        """Reserve `tokens` for a request, until its lease or charge ends. Raises RateLimitExceeded, UsageQuotaExceeded
        or InvalidField, and then reserves nothing."""
        now, scale = self._clock.now(), self._clock.scale
        limits = [each for _, each in sorted(self._limits.items()) if each.applies_to(account)]
        for limit in limits:
            limit.check(tokens, now, scale)
        lease = Lease(account, limits, tokens, now, scale)
        self._leases.add(lease)
        return lease, Charge(self.accounts, account, lease, self._clock.now)

    def sum_usage(
        self, group_by: Sequence[str], bucket_s: int | None, start: float | None, end: float | None
    ) -> list[dict[str, Any]]:
        """Usage by project and `group_by`, with open charges written first."""
        self.accounts.flush()
        with self.records.reading() as session:
            return sum_usage(session, group_by, bucket_s, start, end)

    async def flush_and_roll_up(self) -> str:
        """Write open charges, and roll up old buckets into wider ones."""
        charged, gone, now = self.accounts.flush(), 0, self._clock.now()
        if (since := retention_starts(now)) != self._rolled_up:
            with self.records.transaction() as session:
                gone = roll_up(session, now)
            self._rolled_up = since
        return f"{charged} accounts charged, {gone} buckets rolled up"

    def _count_earlier_usage(self, limits: Iterable[UsageLimit]) -> None:
        """Count the earlier usage of today in the windows of these limits."""
        limits, now = list(limits), self._clock.now()
        if not limits:
            return
        self.accounts.flush()
        with self.records.reading() as session:
            rows = used_since(session, floor(now / DAY_S) * DAY_S)
        for limit in limits:
            for window in limit.windows.values():
                window.roll_over(now)
                for account, start, requests, tokens in rows:
                    if start >= window.start and limit.applies_to(account):
                        window.requests += requests
                        window.tokens += tokens
