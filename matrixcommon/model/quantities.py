"""Quantities with their units, as people write them and as the code represents them.

In code: bytes as `int`, rates in GB/s (1e9 bytes per second, one direction) as `float`, times in seconds as `float`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=1024)
def timestamp(at: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


TIMESTAMP_MAX_S = 253_402_300_799.0
"""9999-12-31T23:59:59Z, the last second that a timestamp can represent."""


def parse_timestamp(text: str) -> float:
    """The inverse of `timestamp`."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def validate_timestamp(text: str) -> str:
    """Check a time that a user wrote (RFC 3339 with a time zone) and return it unchanged. Raises ValueError that says
    what is accepted."""
    try:
        at = parse_timestamp(text)
    except (ValueError, TypeError, OverflowError) as wrong:
        raise ValueError("write a moment such as 2026-01-31T08:00:00Z") from wrong
    if at > TIMESTAMP_MAX_S:
        raise ValueError(f"there is no moment after {timestamp(TIMESTAMP_MAX_S)}")
    if "Z" not in text and "+" not in text[10:] and "-" not in text[10:]:
        raise ValueError("say the time zone: end with Z")
    return text


def pluralized(count: float | str, noun: str) -> str:
    """A count with its noun in the right number: `1 spare`, `3 spares`, `0.5 NPUs`, `10% nodes`."""
    number = f"{count:g}" if isinstance(count, float) else f"{count}"
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"


def format_duration(seconds: float) -> str:
    """Seconds in human-readable form: `850ms`, `12.4s`, `3m10s`, `2h05m`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    seconds = max(seconds, 60)  # 59.95 and more round up to a minute
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"
