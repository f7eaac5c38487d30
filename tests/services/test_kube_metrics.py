"""/metrics of the embedded Kubernetes API: what is counted, within which bounds, and for whom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from matrixcontainer.kubeapi.auth.authorizer import Attributes
from matrixcontainer.kubeapi.registry.resource import Registry
from matrixcontainer.kubeapi.storage.change_log import ResourceLog
from services.kube.metrics import KINDS_MAX, METRICS, KubeMetrics
from services.testing.kubernetes import KubernetesApi
from tests.observability.test_catalogue import complaints

SCRAPER = "/api/v1/namespaces/default/serviceaccounts/scraper"


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    return samples(text).get((name, tuple(sorted(labels.items()))), 0.0)


def scraped(kubernetes: KubernetesApi) -> str:
    return kubernetes.client.http.get("/metrics").raise_for_status().text


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def test_what_is_asked_is_counted_by_verb_kind_and_code(kubernetes: KubernetesApi) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    http = kubernetes.client.http
    before = scraped(kubernetes)
    assert http.post(path, json=config_map("one")).status_code == 201
    assert http.post(path, json=config_map("one")).status_code == 409
    assert http.get(path).status_code == 200
    assert http.get(f"{path}/none").status_code == 404
    assert http.get("/apis/made.up/v1/namespaces/default/things").status_code == 404
    after = scraped(kubernetes)
    for verb, resource, code, count in (
        ("POST", "configmaps", "201", 1),
        ("POST", "configmaps", "409", 1),
        ("LIST", "configmaps", "200", 1),
        ("GET", "configmaps", "404", 1),
        ("LIST", "_OTHER", "404", 1),
    ):
        labels = {"verb": verb, "resource": resource, "code": code}
        assert (
            value(after, "apiserver_request_total", **labels) - value(before, "apiserver_request_total", **labels)
            == count
        )
    objects = {"resource": "configmaps"}
    assert (
        value(after, "apiserver_storage_objects", **objects) - value(before, "apiserver_storage_objects", **objects)
        == 1
    )
    assert value(after, "apiserver_request_duration_seconds_count", verb="POST") >= 2
    assert not list(complaints("kube", after))


def test_a_watch_counts_while_it_is_open(kubernetes: KubernetesApi) -> None:
    with kubernetes.client.http.stream("GET", "/api/v1/secrets", params={"watch": "true"}) as stream:
        assert stream.status_code == 200
        open_now = value(scraped(kubernetes), "apiserver_longrunning_requests", resource="secrets")
        assert open_now >= 1
        assert value(scraped(kubernetes), "apiserver_request_total", verb="WATCH", resource="secrets", code="200") >= 1


def test_a_watch_that_is_behind_shows_how_old_what_it_has_not_been_handed_is(kubernetes: KubernetesApi) -> None:
    kubernetes.client.http.post("/api/v1/namespaces/default/configmaps", json=config_map("seen"))
    with kubernetes.client.http.stream("GET", "/api/v1/configmaps", params={"watch": "true"}) as stream:
        lines = stream.iter_lines()
        assert "seen" in "".join(next(lines) for _ in range(2))
        text = scraped(kubernetes)
        assert ("cloudmatrix_kube_watch_lag_seconds", (("resource", "configmaps"),)) in samples(text)
        assert value(text, "cloudmatrix_kube_watch_lag_seconds", resource="configmaps") == 0

    log, places = ResourceLog(), {"fast": 3, "slow": 1, "new": None}
    log.changes.extend(SimpleNamespace(at=at) for at in (10.0, 20.0, 30.0))  # type: ignore[misc]
    assert log.max_lag_s(40.0) == 0, "nobody reads it"
    for name in places:
        log.waiters[lambda name=name: name] = lambda name=name: places[name]  # type: ignore[misc]
    assert log.max_lag_s(40.0) == 20, "the slow one has to be handed the change of 20 yet"
    places["slow"] = 3
    assert log.max_lag_s(40.0) == 0
    places["new"] = 0
    log.changes.popleft()
    log.start = 1
    assert log.max_lag_s(40.0) == 20, "what was forgotten is not counted: it is told to list anew"


def test_the_token_for_metrics_reads_those_and_nothing_else(kubernetes: KubernetesApi) -> None:
    known = json.loads((kubernetes.folder / "kube" / "tokens.json").read_text())["tokens"]
    headers = {"Authorization": f"Bearer {known['metrics']['token']}"}
    with httpx.Client(base_url=kubernetes.url, headers=headers, verify=False, trust_env=False) as client:
        assert "apiserver_request_total" in client.get("/metrics").raise_for_status().text
        assert client.get("/api/v1/namespaces/default/configmaps").status_code == 403
        assert client.get("/api/v1/secrets").status_code == 403
        assert client.post("/api/v1/namespaces/default/configmaps", json=config_map("no")).status_code == 403


@pytest.fixture
def anybody(kubernetes: KubernetesApi) -> Iterator[httpx.Client]:
    """A client as a service account without rights."""
    kubernetes.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "scraper", "namespace": "default"}}
    )
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
    made = kubernetes.client.http.post(f"{SCRAPER}/token", json=request).raise_for_status().json()
    headers = {"Authorization": f"Bearer {made['status']['token']}"}
    with httpx.Client(base_url=kubernetes.url, headers=headers, verify=False, trust_env=False) as client:
        yield client


def test_metrics_are_for_those_whom_a_role_lets(kubernetes: KubernetesApi, anybody: httpx.Client) -> None:
    assert anybody.get("/metrics", headers={"Authorization": "Bearer made-up"}).status_code == 401
    refused = anybody.get("/metrics")
    assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden")
    kubernetes.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "scraper"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring"},
            "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}],
        }
    )  # fmt: skip
    allowed = anybody.get("/metrics")
    assert allowed.status_code == 200
    assert allowed.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_kinds_beyond_the_bound_are_counted_together() -> None:
    registry = Registry()
    for number in range(KINDS_MAX + 10):
        registry.add(SimpleNamespace(group="made.up", version="v1", plural=f"k{number}", storage=f"k{number}.made.up"))  # type: ignore[arg-type]
    empty = SimpleNamespace(count=lambda storage: 1, log=lambda storage: ResourceLog(), now=lambda: 0.0)
    metrics = KubeMetrics(SimpleNamespace(registry=registry, store=empty))  # type: ignore[arg-type]
    for number in range(KINDS_MAX + 10):
        metrics.record_request(Attributes("get", "made.up", f"k{number}"), 200, 0.001)
    metrics.record_admission("admit", "CREATE", True, 0.2)
    text = metrics.render().decode()
    assert value(text, "apiserver_request_total", verb="GET", resource="_OTHER", code="200") == 10
    assert value(text, "apiserver_storage_objects", resource="_OTHER") == 10
    slow = {"type": "admit", "operation": "CREATE", "rejected": "true"}
    assert value(text, "apiserver_admission_webhook_admission_duration_seconds_count", **slow) == 1
    assert not list(complaints("kube", text))
    seen = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    declared = {name for metric in METRICS for name in metric.exported()}
    assert declared - seen <= {"apiserver_longrunning_requests", "cloudmatrix_kube_watch_lag_seconds"}
