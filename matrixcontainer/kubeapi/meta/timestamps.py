"""Moments as metadata carries them: RFC 3339, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

FIRST, LAST = -62_135_596_800, 253_402_300_799
"""The years 1 and 9999: RFC 3339 has no others."""


def timestamp(now: float) -> str:
    """Seconds since the epoch as RFC 3339 with whole seconds, as metadata carries it; what is beyond its last year is
    its last second, for who may say how long something takes may say any number.
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
