"""Tables and partial forms: what `kubectl get` prints."""

from typing import Any

from tests.conformance.api_session import TABLE, ApiSession
from tests.conformance.catalogue import case, rows
from tests.conformance.things import CRDS, GROUP, L, W, config_map, deployment, loose, pod, secret, widget

PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


@case("P1")
def table_of_custom_resources(session: ApiSession) -> None:
    session.post(W, widget(), note=False)
    session.post(W, widget("two", spec={"color": "blue"}), note=False)
    session.patch(f"{W}/two/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, note=False)
    reported = session.get(W, accept=TABLE)
    assert [column["name"] for column in reported["columnDefinitions"]] == ["Name", "Size", "Color", "Ready", "Age"]
    assert reported["rows"][0]["cells"][:4] == ["one", 3, "red", None]
    assert reported["rows"][1]["cells"][:4] == ["two", 3, "blue", "True"]
    session.get(f"{W}/one", accept=TABLE)


@case("P1")
def table_with_objects(session: ApiSession) -> None:
    session.post(W, widget(), note=False)
    for include in ("None", "Metadata", "Object"):
        session.get(W, accept=TABLE, includeObject=include)
    session.get(W, accept=TABLE, includeObject="Everything", want=None)


@case("P1")
def table_without_columns(session: ApiSession) -> None:
    session.post(L, loose(), note=False)
    session.get(L, accept=TABLE)
    session.get(f"~{GROUP}/v1/looses", accept=TABLE, limit=1)


@case("P1")
def table_in_the_older_form(session: ApiSession) -> None:
    session.post(W, widget(), note=False)
    reported = session.get(W, accept="application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
    assert reported["apiVersion"] == "meta.k8s.io/v1beta1"


@case("P1")
def table_of_an_empty_list(session: ApiSession) -> None:
    reported = session.get(W, accept=TABLE)
    assert reported["rows"] == []


@case("P1")
def unknown_forms(session: ApiSession) -> None:
    session.post(W, widget(), note=False)
    session.get(W, accept="application/json;as=Painting;v=v1;g=meta.k8s.io", want=406)
    session.get(W, accept="text/plain", want=406)
    assert (
        session.get(W, accept="application/json;as=Painting;v=v1;g=meta.k8s.io,application/json")["kind"]
        == "WidgetList"
    )
    assert session.get(W, accept="*/*")["kind"] == "WidgetList"
    assert (
        session.get("~configmaps", accept="application/vnd.kubernetes.protobuf,application/json", note=False).code
        == 200
    )
    assert "kind: WidgetList" in session.get(W, accept="application/yaml", note=False).body


@case("P2")
def an_answer_in_protobuf_alone(session: ApiSession) -> None:
    reported = session.get("~configmaps", accept="application/vnd.kubernetes.protobuf", want=None, note=False)
    session.note("code", reported.code)


@case("P1")
def partial_forms(session: ApiSession) -> None:
    session.post(W, widget(metadata={"labels": {"a": "b"}}), note=False)
    session.get(f"{W}/one", accept=PARTIAL)
    session.get(W, accept=PARTIALS)
    session.post("~configmaps", config_map(), note=False)
    session.get("~configmaps/one", accept=PARTIAL)


@case("P1")
def table_of_a_write(session: ApiSession) -> None:
    reported = session.post(W, widget(), accept=TABLE)
    assert reported["kind"] == "Table"
    session.patch(f"{W}/one", {"spec": {"size": 4}}, accept=TABLE)


def built_in(session: ApiSession, path: str, bodies: list[dict[str, Any]]) -> None:
    if "pods" in path:
        session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    selector = f"case={session.case}"
    for body in bodies:
        if "involvedObject" in body:
            body = body | {"involvedObject": body["involvedObject"] | {"namespace": session.ns}}
        body = body | {"metadata": body["metadata"] | {"labels": {"case": session.case}}}
        session.post(path, body, note=False)
    if path.endswith("/jobs"):  # the job controller says that it is suspended
        session.until(f"{path}/one", lambda reported: (reported.body.get("status") or {}).get("conditions"), note=False)
    reported = session.get(path, accept=TABLE, labelSelector=selector, note=False)
    columns = [[c["name"], c["type"], c["format"], c["priority"]] for c in reported["columnDefinitions"]]
    session.note("columns", columns)
    session.note("rows", {"kind": "Table", "cells": [row["cells"] for row in reported["rows"]]})


SPEC = {"containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j:2"}], "restartPolicy": "Never"}
JOB = {"suspend": True, "template": {"spec": SPEC}}
META = {"metadata": {"name": "one"}}
RULES = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}
rows(
    "P1",
    "tables",
    "table of",
    [
        ("config maps", "~configmaps", [config_map(), config_map("two", {"a": "b", "c": "d"})]),
        ("secrets", "~secrets", [secret(stringData={"a": "b"}), secret("two", type="x.test/y")]),
        ("service accounts", "~serviceaccounts", [META]),
        ("namespaces", "/api/v1/namespaces", [{"metadata": {"name": "conformance-table"}}]),
        ("nodes", "/api/v1/nodes", [{"metadata": {"name": "conformance-table"}, "spec": {"unschedulable": True}}]),
        ("pods", "~pods", [pod(), pod("two", containers=SPEC["containers"])]),
        ("services", "~services", [META | {"spec": {"clusterIP": "None", "ports": [{"port": 80}, {"port": 443, "name": "b", "protocol": "TCP"}][:1], "selector": {"a": "b"}}}]),
        ("deployments", "~apps/v1/deployments", [deployment(paused=True)]),
        ("replica sets", "~apps/v1/replicasets", [deployment() | {"kind": "ReplicaSet"}]),
        ("stateful sets", "~apps/v1/statefulsets", [deployment(serviceName="s") | {"kind": "StatefulSet"}]),
        ("jobs", "~batch/v1/jobs", [META | {"spec": JOB}]),
        ("cron jobs", "~batch/v1/cronjobs", [META | {"spec": {"schedule": "0 0 * * *", "suspend": True, "jobTemplate": {"spec": JOB}}}]),
        ("leases", "~coordination.k8s.io/v1/leases", [META | {"spec": {"holderIdentity": "me"}}]),
        ("roles", "~rbac.authorization.k8s.io/v1/roles", [META | RULES]),
        ("role bindings", "~rbac.authorization.k8s.io/v1/rolebindings", [META | {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "a", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}]),
        ("priority classes", "/apis/scheduling.k8s.io/v1/priorityclasses", [{"metadata": {"name": "conformance-table"}, "value": 5}]),
        ("budgets", "~policy/v1/poddisruptionbudgets", [META | {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"no": "ne"}}}}]),
        ("ingresses", "~networking.k8s.io/v1/ingresses", [META | {"spec": {"rules": [{"host": "a.test"}]}}]),
        ("network policies", "~networking.k8s.io/v1/networkpolicies", [META | {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}]),
        ("storage classes", "/apis/storage.k8s.io/v1/storageclasses", [{"metadata": {"name": "conformance-table"}, "provisioner": "x.test/y"}]),
        ("claims", "~persistentvolumeclaims", [META | {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}}]),
        ("events", "~events", [META | {"involvedObject": {"kind": "Pod", "name": "p"}, "reason": "Why", "message": "m", "type": "Normal", "count": 3, "firstTimestamp": "2020-01-01T00:00:00Z", "lastTimestamp": "2020-01-01T00:00:00Z", "source": {"component": "c"}}]),
        ("endpoint slices", "~discovery.k8s.io/v1/endpointslices", [META | {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"port": 80}]}]),
    ],
    built_in,
)  # fmt: skip


@case("P1")
def table_of_definitions(session: ApiSession) -> None:
    reported = session.get(f"{CRDS}/widgets.{GROUP}", accept=TABLE, note=False)
    session.note("columns", reported["columnDefinitions"])
    session.note("name", reported["rows"][0]["cells"][0])
