"""Traces, sent to the OpenTelemetry collector named by OTEL_EXPORTER_OTLP_ENDPOINT; without it nothing is recorded.

Server spans are FastAPI's own. This module has the provider and a span for each SQL statement; `http` has the client
span for each request of a trace. Sampling and batching are set by the SDK's environment variables.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from matrixcommon.telemetry.trace import TRACER

if TYPE_CHECKING:
    from sqlalchemy import Engine

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
FLUSH_WALL_MS = 1000
STATEMENT_CHARS_MAX = 1000


def tracing_enabled(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether traces are sent."""
    return any(environ.get(name) for name in ENDPOINTS) and environ.get("OTEL_SDK_DISABLED", "").lower() != "true"


def configure_tracing(process: str) -> None:
    """Record and send the spans of this process, if requested and the extra `tracing` is installed."""
    if not tracing_enabled():
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("not tracing: %s is set, but `cloudmatrix[tracing]` is not installed", ENDPOINTS[-1])
        return
    provider = TracerProvider(resource=Resource.create({"service.name": process, "service.namespace": "cloudmatrix"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def flush() -> None:
    """Send the recorded spans before the process ends."""
    provider: Any = trace.get_tracer_provider()
    if tracing_enabled() and hasattr(provider, "force_flush"):
        provider.force_flush(FLUSH_WALL_MS)


def trace_statements(engine: Engine) -> None:
    """Record a span for each statement within a trace, with its text but never its parameters."""

    from sqlalchemy import event  # not loaded by processes without a database

    @event.listens_for(engine, "before_cursor_execute")
    def start_span(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if context is None or not trace.get_current_span().is_recording():
            return
        attributes = {"db.system.name": engine.dialect.name, "db.query.text": statement[:STATEMENT_CHARS_MAX]}
        context.span = TRACER.start_span(
            statement.split(None, 1)[0].upper(), kind=SpanKind.CLIENT, attributes=attributes
        )

    @event.listens_for(engine, "after_cursor_execute")
    def end_span(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if (span := getattr(context, "span", None)) is not None:
            span.end()

    @event.listens_for(engine, "handle_error")
    def record_error(context: Any) -> None:
        if (span := getattr(context.execution_context, "span", None)) is not None:
            span.set_status(StatusCode.ERROR, type(context.original_exception).__name__)
            span.end()
