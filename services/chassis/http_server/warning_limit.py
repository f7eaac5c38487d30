"""A limit on warnings that anybody who connects may cause: equal ones are logged once a minute, with their number."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

PERIOD_WALL_S = 60.0
TEXTS_MAX = 100
"""Texts that are known at once; with more, all are forgotten, and each is logged again."""


class RepeatedWarnings(logging.Filter):
    """Passes the first of equal warnings in each period, with the number that were left out since the last as
    `repeated`. Everything else passes, and so do warnings with a traceback."""

    def __init__(self, wall: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._wall = wall
        self._known: dict[str, tuple[float, int]] = {}
        """By text, when it was last logged, and how often it was left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or record.exc_info:
            return True
        text, now = record.getMessage(), self._wall()
        logged_at, left_out = self._known.get(text, (-math.inf, 0))
        if now - logged_at < PERIOD_WALL_S:
            self._known[text] = logged_at, left_out + 1
            return False
        if len(self._known) >= TEXTS_MAX:
            self._known.clear()
        self._known[text] = now, 0
        if left_out:
            record.repeated = left_out
        return True


SERVER_WARNINGS = RepeatedWarnings()
"""For uvicorn, which warns of every invalid request."""
