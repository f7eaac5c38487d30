"""Records the embedded Kubernetes API while something fails, and while nothing does: `python -m tests.observability.kube_record`.

The process is a real one. Its disk is full because it may write no more (RLIMIT_FSIZE); it is slow because a webhook that
is asked about each ConfigMap takes its time; a watch lags because its client does not read. A scrape stands for half a
minute, and between two of them a client makes the same requests each time; where it is time itself that matters, scrapes
are as far apart as they say.
"""

from __future__ import annotations

import base64
import json
import resource
import ssl
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from matrixcontainer.kubeapi.transport.certificates import certificate_files, ensure_certificates
from services.testing.kubernetes import KubernetesApi
from tests.observability.record import INTERVAL_S, READ, RECORDED, Fires, Story, document, nothing

PATH = "/api/v1/namespaces/default/configmaps"
BEFORE, AFTER = 10, 40
"""Scrapes before the failure and after it."""
SLOW_S = 1.5
LARGE_BYTES, LARGE = 900_000, 30
"""More than a server and two kernels keep for a client that does not read, and less than the API's history."""

STORIES = {
    "kube-healthy": Story("the embedded Kubernetes API is asked and answers", nothing, nothing, ()),
    "kube-disk-full": Story(
        "the embedded Kubernetes API cannot write any more",
        nothing,
        nothing,
        (Fires("CloudMatrixKubeErrors", 270, 480),),
    ),
    "kube-slow": Story(
        f"a webhook that the embedded Kubernetes API asks takes {SLOW_S:g} s to answer",
        nothing,
        nothing,
        (Fires("CloudMatrixKubeSlow", 270, 480),),
    ),
    "kube-watch-lags": Story(
        "somebody who watches ConfigMaps does not read on",
        nothing,
        nothing,
        (Fires("CloudMatrixKubeWatchLags", 120, 180),),
        interval_s=5,
    ),
}


def fill_disk(kubernetes: KubernetesApi, _: ExitStack) -> None:
    """Let the process write no byte to any file from now on."""
    assert kubernetes.process_id is not None
    resource.prlimit(kubernetes.process_id, resource.RLIMIT_FSIZE, (0, 0))


def ask_a_slow_webhook(kubernetes: KubernetesApi, until: ExitStack) -> None:
    """From now on about each new ConfigMap."""
    url, ca = until.enter_context(slow_webhook(kubernetes.folder / "webhook"))
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    hook = {
        "name": "slow.hooks.test",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(ca).decode()},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind, version = "ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1"
    kubernetes.apply({"apiVersion": version, "kind": kind, "metadata": {"name": "slow"}, "webhooks": [hook]})


def write_more_than_is_read(kubernetes: KubernetesApi, _: ExitStack) -> None:
    """The watch that `play` opens is read by nobody: so much fits on the way to it, and no more."""
    for each in range(LARGE):
        body = {"metadata": {"name": f"large-{each}"}, "data": {"a": "b" * LARGE_BYTES}}
        kubernetes.client.http.post(PATH, json=body).raise_for_status()


@contextmanager
def slow_webhook(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Its address and its authority; it allows everything."""
    ensure_certificates(folder, [])
    ca, certificate, key = certificate_files(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/review", ca.read_bytes()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Slow(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(SLOW_S)
        answer = {**review, "response": {"uid": review["request"]["uid"], "allowed": True}}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        return


@dataclass(frozen=True)
class Failure:
    """`strikes` brings it about, for as long as the record goes on; `writes` a scrape, as many as it leaves time for."""

    strikes: Callable[[KubernetesApi, ExitStack], None]
    writes: int = 10


FAILURES = {
    "kube-disk-full": Failure(fill_disk),
    "kube-slow": Failure(ask_a_slow_webhook, writes=1),
    "kube-watch-lags": Failure(write_more_than_is_read),
}


def play(name: str) -> dict[str, dict[int, float]]:
    """The series of every metric that an alert reads."""
    series: dict[str, dict[int, float]] = defaultdict(dict)
    failure, apart_s = FAILURES.get(name), STORIES[name].interval_s
    with ExitStack() as until:
        kubernetes = until.enter_context(KubernetesApi())
        until.enter_context(kubernetes.client.http.stream("GET", PATH, params={"watch": "true"}))
        began = time.monotonic()
        for at in range(BEFORE + AFTER):
            if at == BEFORE and failure is not None:
                failure.strikes(kubernetes, until)
            for each in range(failure.writes if failure else 10):
                body = {"metadata": {"name": f"map-{at}-{each}"}, "data": {"a": "b"}}
                kubernetes.client.http.post(PATH, json=body)
            for _ in range(10):
                kubernetes.client.http.get(PATH, params={"limit": 5})
            scrape(kubernetes, series, at)
            if apart_s < INTERVAL_S:
                time.sleep(max(0.0, began + (at + 1) * apart_s - time.monotonic()))
    return series


def scrape(kubernetes: KubernetesApi, series: dict[str, dict[int, float]], at: int) -> None:
    where = 'instance="kube",job="cloudmatrix",pod="kube-0",service="kube"'
    text = kubernetes.client.http.get("/metrics").raise_for_status().text
    for family in text_string_to_metric_families(text):
        if not READ & {family.name, f"{family.name}_total"}:
            continue
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            series[f"{sample.name}{{{','.join(filter(None, (labels, where)))}}}"][at] = sample.value


if __name__ == "__main__":
    for each in sys.argv[1:] or STORIES:
        text = document(STORIES[each], play(each), BEFORE + AFTER, BEFORE)
        text = text.replace("tests.observability.record`", "tests.observability.kube_record`", 1)
        (RECORDED / f"{each}.yaml").write_text(text)
        print(f"{each}: {len(text) // 1000} kB, {STORIES[each].interval_s} s a scrape")
