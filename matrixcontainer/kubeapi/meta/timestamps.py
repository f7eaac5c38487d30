"""Moments as metadata carries them: RFC 3339, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def timestamp(now: float) -> str:
    """Seconds since the epoch as RFC 3339 with whole seconds, as metadata carries it."""
    return _whole_second(int(now))


@lru_cache(maxsize=64)
def _whole_second(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> float:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
