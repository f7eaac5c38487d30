"""The trace that a piece of work belongs to, across processes, restarts and time.

W3C trace context goes with every request; where work continues by itself later (a workflow's steps, an agent's stages)
it is kept beside what is asked for, and taken up again from there. Without a tracer provider, which only
`services.chassis.tracing` sets, every function here does next to nothing and nothing is kept.
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
"""What the work at hand is about, `instances/default/one`: log lines name it."""

_W3C = TraceContextTextMapPropagator()
_KEPT = 4096


def traceparent() -> str:
    """The context of the span that is being recorded, in W3C's form; empty where none is."""
    if not trace.get_current_span().is_recording():
        return ""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.get("traceparent", "")


def trace_id() -> str:
    """Of the span that is being recorded, 32 hexadecimal digits; empty where none is."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.is_valid else ""


@contextmanager
def continued(parent: str | None, name: str, *expected: type[BaseException], **about: str) -> Iterator[Span]:
    """A span under a context that was kept; without one, nothing is recorded. An exception marks the span as failed,
    unless it is one of those `expected`, which say how the work continues."""
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


def finished(parent: str | None, name: str, started_ns: int, **about: str) -> None:
    """Record a span of work that has just ended; `started_ns` is of the wall (time.time_ns)."""
    if parent:
        context = _W3C.extract({"traceparent": parent})
        span = TRACER.start_span(name, context, SpanKind.INTERNAL, dict(about), start_time=started_ns)
        span.end(time.time_ns())


class TraceBook:
    """The contexts in which resources were last asked for, the newest so many. A hint that is lost with the process:
    whoever asks again, as a workflow's step does after a crash, brings it again."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, str] = OrderedDict()

    def note(self, name: str) -> None:
        """What is asked for now belongs to the trace at hand, where there is one."""
        if parent := traceparent():
            self._of[name] = parent
            self._of.move_to_end(name)
            while len(self._of) > _KEPT:
                self._of.popitem(last=False)

    def get(self, name: str | None) -> str | None:
        return self._of.get(name or "")
