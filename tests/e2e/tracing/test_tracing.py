"""One trace from an apply to the agents' acknowledgement, through every process on the way."""

from __future__ import annotations

import gzip
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from services.matrixctl.supervisor.up import stop_stack
from tests.e2e.conftest import RealStack, eventually

trace_service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
    reason="the extra `tracing` is not installed: NO TRACE WAS TAKEN",
)
pytestmark = pytest.mark.e2e

PLANES = 3
INSTANCE = """
apiVersion: cloudmatrix.io/v1alpha1
kind: CloudMatrixInstance
metadata: {name: traced, namespace: default}
spec: {nodes: 2}
"""


@dataclass(frozen=True)
class Span:
    process: str
    name: str
    trace: str
    id: str
    parent: str
    start_ns: int
    end_ns: int
    about: dict[str, str]


class Collector:
    """An OTLP collector for HTTP, in this process, that keeps every span."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, body: bytes) -> None:
        request = trace_service.ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            about = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [self._span(about["service.name"], span) for span in scope.spans]

    @staticmethod
    def _span(process: str, span: Any) -> Span:
        about = {each.key: each.value.string_value or str(each.value.int_value) for each in span.attributes}
        times = span.start_time_unix_nano, span.end_time_unix_nano
        return Span(
            process, span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), *times, about
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    yield made
    made.close()


@pytest.fixture
def traced_stack(tmp_path: Path, collector: Collector) -> Iterator[RealStack]:
    stack = RealStack(tmp_path / "traced")
    stack.up()
    yield stack
    stop_stack(stack.folder)


def trace_of_apply(collector: Collector) -> dict[str, Span]:
    """The spans of the trace that the apply began, by their ids; {} until it has come."""
    roots = [
        span for span in collector.spans
        if span.process == "kube" and not span.parent and "cloudmatrixinstances" in span.name
    ]  # fmt: skip
    if not roots:
        return {}
    return {span.id: span for span in collector.spans if span.trace == roots[0].trace}


def test_one_apply_is_one_trace_from_kubectl_to_the_agents_acknowledgement(
    traced_stack: RealStack, collector: Collector, tmp_path: Path
) -> None:
    (tmp_path / "traced.yaml").write_text(INSTANCE)
    traced_stack.cluster.apply(tmp_path / "traced.yaml")
    eventually(lambda: traced_stack.instance("traced").get("status", {}).get("state") == "Active", "it is active")

    def whole() -> dict[str, Span]:
        spans = trace_of_apply(collector)
        acknowledged = {span.about.get("node") for span in spans.values() if span.name == "acknowledged"}
        hanging = all(span.parent in spans for span in spans.values() if span.parent)
        programmed = {(span.about["node"], span.about["slice"]) for span in spans.values() if span.name == "programmed"}
        return spans if len(acknowledged) == 2 and len(programmed) == 2 * PLANES and hanging else {}

    spans = eventually(
        whole, "both nodes' acknowledgements are in the trace of the apply, and everything hangs on its root"
    )
    by_process = defaultdict(list)
    for span in spans.values():
        by_process[span.process].append(span)
    assert set(by_process) >= {"kube", "operator", "compute", "resource", "link", "agents"}
    assert len([span for span in spans.values() if not span.parent]) == 1, "one root: the write at the Kubernetes API"

    def above(span: Span) -> list[str]:
        path = []
        while span.parent:
            span = spans[span.parent]
            path.append(f"{span.process}: {span.name}")
        return path

    agents = [span for span in by_process["agents"] if span.name == "agent deploy"]
    assert len(agents) == 2
    for span in agents:
        path = above(span)
        assert any(name.startswith("resource: PUT") for name in path), path
        assert "compute: step bind_nodes" in path
        assert any(name.startswith("operator: reconcile CloudMatrixInstance") for name in path)
        assert path[-1].startswith("kube: ")
    for span in [each for each in by_process["link"] if each.name == "programmed"]:
        assert span.about["state"] == "Programmed"
        assert "compute: step program_routes" in above(span), (
            "what a link agent acknowledged is beside who asked for it"
        )
    slices = [span for span in by_process["link"] if span.name.startswith("PUT")]
    assert any("compute: step admit_slices" in above(span) for span in slices)
    statements = [span for span in spans.values() if "db.query.text" in span.about]
    assert {span.process for span in statements} >= {"compute", "resource", "link"}
    for span in spans.values():
        assert span.end_ns >= span.start_ns
        assert "Bearer" not in str(span.about), "tokens are in no attribute"


def test_nothing_that_repeats_by_itself_begins_a_trace(traced_stack: RealStack, collector: Collector) -> None:
    """Reports, polls, leases and mirrors: a stack that nobody uses sends no spans."""
    eventually(traced_stack.all_ready, "it is ready")
    before = {span.trace for span in collector.spans if not span.parent}
    runs = metric(traced_stack, "cloudmatrix_watcher_runs_total")
    eventually(lambda: metric(traced_stack, "cloudmatrix_watcher_runs_total") > runs + 50, "watchers have come round")
    began = [span for span in collector.spans if not span.parent and span.trace not in before]
    asked = [span for span in began if not span.name.endswith(("/metrics", "/readyz", "/healthz"))]
    assert not asked, [f"{span.process}: {span.name}" for span in asked]


def metric(stack: RealStack, name: str) -> float:
    lines = stack.client.fetch("resource", "/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))
