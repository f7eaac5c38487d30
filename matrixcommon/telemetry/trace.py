"""Trace contexts of work, propagated across processes, restarts and time.

W3C trace context accompanies every request. For work that continues later by itself (a workflow's steps, an agent's
stages) it is stored with the request and resumed from there. Without a tracer provider, which only
`services.chassis.tracing` sets, the functions here do next to nothing and nothing is stored.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACER = trace.get_tracer("cloudmatrix")
RESOURCE: ContextVar[str] = ContextVar("resource", default="")
"""The resource that the current work is about, e.g. `instances/default/one`; included in log lines."""

_W3C = TraceContextTextMapPropagator()
_CONTEXTS_MAX = 4096


def traceparent() -> str:
    """The context of the current span in W3C form; "" if none is being recorded."""
    if not trace.get_current_span().is_recording():
        return ""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.get("traceparent", "")


def trace_id() -> str:
    """The trace ID of the current span, 32 hexadecimal digits; "" if there is none."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


@contextmanager
def resumed_span(parent: str | None, name: str, *expected: type[BaseException], **about: str) -> Iterator[Span]:
    """A span under a stored context; without one, nothing is recorded. An exception marks the span as failed unless it
    is `expected`, that is, only says how the work continues."""
    if not parent:
        yield trace.INVALID_SPAN
        return
    context = _W3C.extract({"traceparent": parent})
    with TRACER.start_as_current_span(
        name, context, attributes=dict(about), record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except expected as waits:
            span.add_event("waits", {"why": str(waits)[:300]})
            raise
        except Exception as wrong:
            span.set_status(StatusCode.ERROR, type(wrong).__name__)
            raise


def record_span(parent: str | None, name: str, started_ns: int, **about: str) -> None:
    """Record a span of work that has just ended; `started_ns` is wall time (time.time_ns)."""
    if parent:
        context = _W3C.extract({"traceparent": parent})
        span = TRACER.start_span(name, context, SpanKind.INTERNAL, dict(about), start_time=started_ns)
        span.end(time.time_ns())


class TraceContexts:
    """The trace contexts of the last requests for resources, at most `_CONTEXTS_MAX` of them. They are lost with the
    process; a repeated request, as from a workflow's step after a crash, supplies its context again."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, str] = OrderedDict()

    def note(self, name: str) -> None:
        """Store the current trace context, if any, for a resource."""
        if parent := traceparent():
            self._of[name] = parent
            self._of.move_to_end(name)
            while len(self._of) > _CONTEXTS_MAX:
                self._of.popitem(last=False)

    def get(self, name: str | None) -> str | None:
        return self._of.get(name or "")
