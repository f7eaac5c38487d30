"""What Kopf logs, said as the rest of the stack says it.

Kopf logs an error for each attempt that it will make again, and adds all of its settings to the lines of a resource.
Here a resource that is not as specified yet is ordinary (its status says what it waits for), and who refuses, is away
or does not answer is a warning, as to any watcher. What Kopf gives up stays an error.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

import kopf

from matrixcontainer.operator.handlers import NotAsSpecified

KOPF = "kopf"
RETRIED = "failed; will retry: "
"""What Kopf says of a request that it sends again."""


class KopfLines(logging.Filter):
    """For whatever writes lines: those of Kopf's loggers are changed or left out, others pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] != KOPF:
            return True
        raised = sys.exc_info()[1]  # Kopf logs it where it is caught, and does not say in the record what it was
        if isinstance(raised, NotAsSpecified):
            return False
        if isinstance(raised, kopf.TemporaryError) or RETRIED in record.getMessage():
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        for internal in ("settings", "k8s_skip"):
            record.__dict__.pop(internal, None)
        return True


def configure_kopf(handlers: Iterable[logging.Handler]) -> None:
    """Have these handlers write of Kopf what is worth a line."""
    logging.getLogger(KOPF).setLevel(logging.WARNING)
    for handler in handlers:
        handler.addFilter(KopfLines())
