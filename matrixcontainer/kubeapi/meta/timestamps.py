"""Timestamps as in metadata: RFC 3339, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

FIRST, LAST = -62_135_596_800, 253_402_300_799
"""The bounds of RFC 3339: years 1 to 9999."""


def timestamp(now: float) -> str:
    """Format seconds since the epoch as RFC 3339 with whole seconds, clamped to its range, as clients may request any
    duration.
    """
    return _whole_second(max(FIRST, min(int(now), LAST)))


@lru_cache(maxsize=64)
def _whole_second(now: int) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> float:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
