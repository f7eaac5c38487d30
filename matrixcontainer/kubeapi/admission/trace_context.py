"""Store the trace context of a write in the object, so that whoever reconciles it continues that trace.

The annotation is the one proposed by KEP-5915, in W3C format. It is written only while a span is being recorded, and
only for custom objects whose spec changes: changes of status or finalizers start no trace.
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
