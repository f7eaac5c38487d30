"""What Kopf logs of its handlers, said as the rest of the stack says it.

Kopf logs an error for whatever a handler raises to be called again, and adds all of its settings to the line. Here a
resource that is not as specified yet is ordinary (its status says what it waits for), and a neighbour that refuses or
is away is a warning, as it is of any watcher.
"""

from __future__ import annotations

import logging
import sys

import kopf

from matrixcontainer.operator.handlers import NotAsSpecified

KOPF = "kopf"
HANDLERS = "kopf.objects"
"""Kopf's logger of what befalls one resource."""


class HandlerLines(logging.Filter):
    """For the logger of handlers, before any line is written."""

    def filter(self, record: logging.LogRecord) -> bool:
        raised = sys.exc_info()[1]  # Kopf logs it where it is caught, and does not say in the record what it was
        if isinstance(raised, NotAsSpecified):
            return False
        if isinstance(raised, kopf.TemporaryError):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        for internal in ("settings", "k8s_skip"):
            record.__dict__.pop(internal, None)
        return True


def configure_kopf() -> None:
    """Have Kopf log as this says, in this process."""
    logging.getLogger(KOPF).setLevel(logging.WARNING)
    handlers = logging.getLogger(HANDLERS)
    if not any(isinstance(each, HandlerLines) for each in handlers.filters):
        handlers.addFilter(HandlerLines())
