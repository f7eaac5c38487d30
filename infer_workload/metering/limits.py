"""Usage limits, checked when a request arrives.

A window is a minute or a day of emulated time. It counts the usage in the accounts, from which it is read after a
restart, and the reservations of requests in flight: prompt and longest answer, until they end. The first limit that
would be exceeded refuses the request and says when to retry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, floor

from infer_workload.metering.contract import UsageLimitRequest, UsedView
from infer_workload.metering.tables import DAY_S, MINUTE_S, Account
from matrixcommon.model.errors import InvalidField, RateLimitExceeded, TooManyRequests, UsageQuotaExceeded
from matrixcommon.model.quantities import pluralized, timestamp
from matrixcommon.model.resource_key import name_of, project_of, resolve

WINDOWS_S = {"minute": MINUTE_S, "day": DAY_S}
ALIASES = {
    "requests_per_minute": "requestsPerMinute",
    "tokens_per_minute": "tokensPerMinute",
    "requests_per_day": "requestsPerDay",
    "tokens_per_day": "tokensPerDay",
}


@dataclass
class Window:
    """Requests and tokens since `start`."""

    width_s: int
    start: float = 0.0
    requests: int = 0
    tokens: int = 0

    def roll_over(self, now: float) -> None:
        """Reset the counts if a new window has begun."""
        begins = floor(now / self.width_s) * self.width_s
        if begins != self.start:
            self.start, self.requests, self.tokens = begins, 0, 0

    @property
    def ends_at(self) -> float:
        return self.start + self.width_s


@dataclass
class UsageLimit:
    """One limit and the usage in its windows."""

    name: str
    spec: UsageLimitRequest
    windows: dict[str, Window] = field(
        default_factory=lambda: {name: Window(width) for name, width in WINDOWS_S.items()}
    )
    in_flight: int = 0
    reserved_tokens: int = 0
    """Tokens that requests in flight may still use."""

    def applies_to(self, account: Account) -> bool:
        project, key, deployment, model = account
        if project_of(self.name) != project or self.spec.token_name not in ("", key):
            return False
        return self.spec.model in ("", model) or resolve(self.spec.model, project) == deployment

    def check(self, tokens: int, now: float, scale: float) -> None:
        """Raise RateLimitExceeded, or UsageQuotaExceeded for a daily limit, if a request of that many tokens does not
        fit now, and InvalidField if it never will."""
        for window in self.windows.values():
            window.roll_over(now)
        where = name_of(self.name)
        if self.spec.requests_in_flight is not None and self.in_flight >= self.spec.requests_in_flight:
            raise RateLimitExceeded(
                f"limit {where} allows {pluralized(self.spec.requests_in_flight, 'request')} in flight, "
                "which is reached",
                field="requestsInFlight",
                retry_after_s=1.0,
            )
        for field_name, alias in ALIASES.items():
            most = getattr(self.spec, field_name)
            if most is None:
                continue
            unit, _, width = field_name.partition("_per_")
            used, asked = self.used(unit, width), tokens if unit == "tokens" else 1
            if unit == "tokens" and asked > most:  # would not fit an empty window either
                raise InvalidField(
                    f"limit {where} allows {pluralized(most, 'token')} per {width}, and this request may use {asked}; "
                    "shorten the prompt or lower max_tokens",
                    field="max_tokens",
                )
            if used + asked > most:
                window = self.windows[width]
                refused: type[TooManyRequests] = UsageQuotaExceeded if width == "day" else RateLimitExceeded
                raise refused(
                    f"limit {where} allows {pluralized(most, unit.removesuffix('s'))} per {width}: "
                    f"{used} used or reserved, {asked} more requested",
                    field=alias,
                    retry_after_s=max(1.0, ceil((window.ends_at - now) / scale)),
                )

    def used(self, unit: str, width: str) -> int:
        """Requests or tokens of the present minute or day, reservations included."""
        window = self.windows[width]
        return window.requests if unit == "requests" else window.tokens + self.reserved_tokens

    def used_view(self, now: float) -> dict[str, UsedView]:
        found: dict[str, UsedView] = {}
        for name, alias in ALIASES.items():
            if (most := getattr(self.spec, name)) is not None:
                unit, _, width = name.partition("_per_")
                self.windows[width].roll_over(now)
                ends = timestamp(self.windows[width].ends_at)
                found[alias] = UsedView(limit=most, used=self.used(unit, width), resets_at=ends)
        if self.spec.requests_in_flight is not None:
            found["requestsInFlight"] = UsedView(limit=self.spec.requests_in_flight, used=self.in_flight)
        return found


class Lease:
    """The reservation of one request in its limits, until it ends."""

    def __init__(self, account: Account, limits: Iterable[UsageLimit], tokens: int, now: float, scale: float) -> None:
        self._account = account
        self._limits = list(limits)
        self._left = tokens
        self._charged = self._ended = False
        self.headers: dict[str, str] = {}
        for limit in self._limits:
            limit.in_flight += 1
            limit.reserved_tokens += tokens
            for window in limit.windows.values():
                window.roll_over(now)
                window.requests += 1
        for unit in ("requests", "tokens"):
            self._describe(unit, now, scale)

    def charge(self, tokens: int, now: float) -> None:
        """Turn that many reserved tokens into used ones."""
        self._charged = True
        taken = min(tokens, self._left)
        self._left -= taken
        for limit in self._limits:
            limit.reserved_tokens -= taken
            for window in limit.windows.values():
                window.roll_over(now)
                window.tokens += tokens

    def restore(self, tokens: int, charged_at: float, now: float) -> None:
        """Turn used tokens back into reserved ones. Windows that began after `charged_at` did not count them."""
        self._left += tokens
        for limit in self._limits:
            limit.reserved_tokens += tokens
            for window in limit.windows.values():
                window.roll_over(now)
                if charged_at >= window.start:
                    window.tokens = max(0, window.tokens - tokens)

    def add_limit(self, limit: UsageLimit, now: float) -> None:
        """Reserve the rest in a limit that was set meanwhile and has counted the usage in the accounts."""
        if self._ended or not limit.applies_to(self._account):
            return
        self._limits.append(limit)
        limit.in_flight += 1
        limit.reserved_tokens += self._left
        for window in () if self._charged else limit.windows.values():
            window.roll_over(now)
            window.requests += 1

    def cancel(self, now: float) -> None:
        """End the reservation of a request that was not accepted, without counting it."""
        for window in [] if self._ended else [each for limit in self._limits for each in limit.windows.values()]:
            window.roll_over(now)
            window.requests = max(0, window.requests - 1)
        self.end()

    def end(self) -> None:
        """Release the reservation; idempotent."""
        if self._ended:
            return
        self._ended = True
        for limit in self._limits:
            limit.in_flight -= 1
            limit.reserved_tokens -= self._left
        self._left = 0

    def _describe(self, unit: str, now: float, scale: float) -> None:
        """Set OpenAI's rate-limit headers from the per-minute limit with the least left; seconds are wall seconds."""
        found = [
            (most - limit.used(unit, "minute"), most, limit.windows["minute"].ends_at)
            for limit in self._limits
            if (most := getattr(limit.spec, f"{unit}_per_minute")) is not None
        ]
        if found:
            left, most, ends_at = min(found)
            self.headers |= {
                f"x-ratelimit-limit-{unit}": str(most),
                f"x-ratelimit-remaining-{unit}": str(max(0, left)),
                f"x-ratelimit-reset-{unit}": f"{max(0.0, ends_at - now) / scale:.3f}s",
            }
