"""Logging as one line of JSON per event on standard error, with process, request id, trace and resource."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from matrixcommon.telemetry.trace import RESOURCE, trace_id

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")

_PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            "event": record.getMessage(),
        }
        if REQUEST_ID.get():
            line["requestId"] = REQUEST_ID.get()
        if traced := trace_id() or TRACEPARENT.get()[3:35]:
            line["traceId"] = traced
        if RESOURCE.get():
            line["resource"] = RESOURCE.get()
        line |= {key: value for key, value in vars(record).items() if key not in _PLAIN}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(process: str, level: str = "INFO") -> None:
    """Send every log line of this process to standard error as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
