"""The trace of a write stays with the object: who reconciles it later continues that trace.

The annotation is the one that KEP-5915 proposes, in W3C form. It is written only while a span is recorded, and only
where what was asked for has changed: a status, a lease or a finalizer begins nothing.
"""

from typing import Any

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource

ANNOTATION = "tracing.k8s.io/traceparent"


async def keep_trace_context(
    resource: Resource, verb: str, new: dict[str, Any] | None, old: dict[str, Any] | None, options: Options
) -> None:
    if new is None or not resource.custom or options.subresource == "status":
        return
    if not trace.get_current_span().is_recording() or (old is not None and old.get("spec") == new.get("spec")):
        return
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    new["metadata"].setdefault("annotations", {})[ANNOTATION] = carrier["traceparent"]
