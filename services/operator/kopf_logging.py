"""Kopf's log lines, adapted to the rest of the stack.

Kopf logs an error for each attempt that it will retry, and adds all of its settings to the lines of a resource. Here a
resource that is not as specified yet is normal (its status says what it waits for) and not logged; a service that
refuses or does not answer is a warning, as for any watcher. What Kopf gives up on stays an error.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

import kopf

from matrixcontainer.operator.handlers import NotConverged

KOPF = "kopf"
RETRY_TEXT = "failed; will retry: "
"""The text by which Kopf's message about a retried request is recognised."""


class KopfLogFilter(logging.Filter):
    """A filter for log handlers that changes or drops records of Kopf's loggers; others pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] != KOPF:
            return True
        error = sys.exc_info()[1]  # Kopf logs inside the except block, without the exception in the record
        if isinstance(error, NotConverged):
            return False
        if isinstance(error, kopf.TemporaryError) or RETRY_TEXT in record.getMessage():
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        for internal in ("settings", "k8s_skip"):
            record.__dict__.pop(internal, None)
        return True


def configure_kopf(handlers: Iterable[logging.Handler]) -> None:
    """Filter Kopf's records in these handlers, and drop those below WARNING."""
    logging.getLogger(KOPF).setLevel(logging.WARNING)
    for handler in handlers:
        handler.addFilter(KopfLogFilter())
