"""The cost of a tracing span per request: without tracing, for one request in a hundred, and for every request.

One service in this process is asked for an empty list over ASGI, so the figure includes no network and no other
service. Each variant runs in a separate process, since a tracer provider can be set only once; spans are created,
batched and discarded.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from benchmarks import Figure

REQUESTS, ROUNDS = 300, 5
MODES: dict[str, dict[str, str]] = {
    "off": {},
    "one in a hundred": {"OTEL_TRACES_SAMPLER_ARG": "0.01"},
    "every one": {"OTEL_TRACES_SAMPLER_ARG": "1"},
}


def measure() -> Iterator[Figure]:
    for way, settings in MODES.items():
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | settings
        if settings:
            environ |= {
                "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
            }
        done = subprocess.run([sys.executable, "-m", "benchmarks.tracing"], env=environ, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        yield Figure(
            f"processor time of a request, spans {way}", json.loads(done.stdout), "us",
            f"median of {ROUNDS} rounds of {REQUESTS} lists of CloudMatrix-Infer's deployments (none)",
        )  # fmt: skip


async def time_requests() -> float:
    """Return the CPU microseconds per request, the median of the rounds."""
    from matrixcommon.model.clock import WallClock
    from services.chassis.database import DatabaseEngine
    from services.chassis.tracing import configure_tracing, tracing_enabled
    from services.infer import main as infer

    configure_tracing("infer")
    if tracing_enabled():
        discard_spans()
    with tempfile.TemporaryDirectory() as folder:
        database = DatabaseEngine(f"sqlite:///{folder}/infer.db")
        database.migrate(infer.MIGRATIONS)
        app = infer.build(infer.InferSettings(state=Path(folder), agents_url=""), WallClock(), database)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://infer") as http:
            rounds = []
            for _ in range(ROUNDS):
                begun = time.thread_time()
                for _ in range(REQUESTS):
                    (await http.get("/v1/deployments")).raise_for_status()
                rounds.append((time.thread_time() - begun) / REQUESTS * 1e6)
    return sorted(rounds)[ROUNDS // 2]


def discard_spans() -> None:
    """Discard spans instead of sending them: there is no collector, and sending is another thread's time anyway."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    OTLPSpanExporter.export = lambda self, spans: SpanExportResult.SUCCESS  # type: ignore[method-assign]


if __name__ == "__main__":
    print(json.dumps(round(asyncio.run(time_requests()), 1)))
