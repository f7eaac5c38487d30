"""Discovery, OpenAPI, tables: what clients learn the server from."""

import json
from typing import Any

from tests.matrixcontainer.kubeapi.api_session import TABLE, WIDGETS, ApiSession, a_crd, a_widget

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def test_old_discovery(widgets: ApiSession) -> None:
    assert (await widgets.get("/api")).body["versions"] == ["v1"]
    groups = {g["name"]: g for g in (await widgets.get("/apis")).body["groups"]}
    assert groups["example.test"]["preferredVersion"] == {"groupVersion": "example.test/v1", "version": "v1"}
    found = {r["name"]: r for r in (await widgets.get("/apis/example.test/v1")).body["resources"]}
    assert set(found) == {"widgets", "widgets/status", "widgets/scale"}
    assert found["widgets"]["shortNames"] == ["wd"]
    assert found["widgets"]["singularName"] == "widget"
    assert (found["widgets/scale"]["group"], found["widgets/scale"]["kind"]) == ("autoscaling", "Scale")
    core = {r["name"]: r for r in (await widgets.get("/api/v1")).body["resources"]}
    assert core["pods/binding"]["kind"] == "Binding"
    assert (core["pods/eviction"]["group"], core["pods/eviction"]["version"]) == ("policy", "v1")
    assert "deletecollection" not in core["namespaces"]["verbs"]


async def test_aggregated_discovery_and_etags(widgets: ApiSession) -> None:
    reported = await widgets.ask("GET", "/apis", accept=AGGREGATED)
    assert reported.headers["content-type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert (reported.body["kind"], reported.body["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    group = next(item for item in reported.body["items"] if item["metadata"]["name"] == "example.test")
    resource = group["versions"][0]["resources"][0]
    assert (resource["resource"], resource["scope"]) == ("widgets", "Namespaced")
    assert {s["subresource"] for s in resource["subresources"]} == {"status", "scale"}
    core = await widgets.ask("GET", "/api", accept=AGGREGATED)
    assert len(core.body["items"]) == 1
    plain = await widgets.get("/apis")
    assert plain.body["kind"] == "APIGroupList"
    tag = reported.headers["etag"]
    await widgets.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.test")
    await widgets.until("/apis/example.test", lambda s: s.code == 404)
    assert (await widgets.ask("GET", "/apis", accept=AGGREGATED)).headers["etag"] != tag


async def test_both_forms_tell_the_same(widgets: ApiSession) -> None:
    aggregated = await widgets.ask("GET", "/apis", accept=AGGREGATED)
    for group in aggregated.body["items"]:
        name = group["metadata"]["name"]
        for version in group["versions"]:
            old = (await widgets.get(f"/apis/{name}/{version['version']}")).body["resources"]
            names = {r["name"] for r in old if "/" not in r["name"]}
            assert names == {r["resource"] for r in version["resources"]}


def _parameters(operation: dict[str, Any]) -> set[str]:
    return {parameter["name"] for parameter in operation["parameters"]}


async def test_openapi_3_names_what_kubectl_looks_for(widgets: ApiSession) -> None:
    index = (await widgets.get("/openapi/v3")).body["paths"]
    for name, entry in index.items():
        path, _, query = entry["serverRelativeURL"].partition("?")
        assert query.startswith("hash=")
        document = (await widgets.get(path)).body
        assert document["openapi"] == "3.0.0", name
        references = set()
        _collect(document, references)
        missing = {r for r in references if r.rpartition("/")[2] not in document["components"]["schemas"]}
        assert not missing, name
    document = (await widgets.get("/openapi/v3/apis/example.test/v1")).body
    patch = document["paths"]["/apis/example.test/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert {"fieldValidation", "dryRun", "fieldManager", "force"} <= _parameters(patch)
    schema = document["components"]["schemas"]["test.example.v1.Widget"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "example.test", "version": "v1", "kind": "Widget"}]
    core = (await widgets.get("/openapi/v3/api/v1")).body
    assert "fieldValidation" in _parameters(core["paths"]["/api/v1/namespaces/{name}"]["patch"])
    containers = core["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert (containers["x-kubernetes-patch-merge-key"], containers["x-kubernetes-list-type"]) == ("name", "map")


def _collect(node: Any, found: set[str]) -> None:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            found.add(node["$ref"])
        for value in node.values():
            _collect(value, found)
    elif isinstance(node, list):
        for value in node:
            _collect(value, found)


async def test_hashes_move_with_content_only(widgets: ApiSession) -> None:
    before = (await widgets.get("/openapi/v3")).body["paths"]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.test"
    await widgets.patch(path, {"metadata": {"labels": {"a": "b"}}})
    assert (await widgets.get("/openapi/v3")).body["paths"] == before
    crd = a_crd()
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "something else"
    await widgets.patch(path, {"spec": crd["spec"]})
    after = (await widgets.get("/openapi/v3")).body["paths"]
    assert {name for name in after if after[name] != before[name]} == {"apis/example.test/v1"}


async def test_openapi_2_has_a_head_alone(widgets: ApiSession) -> None:
    reported = await widgets.get("/openapi/v2")
    assert reported.body["swagger"] == "2.0"
    assert (reported.body["paths"], reported.body["definitions"]) == ({}, {})
    form = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    bare = await widgets.ask("GET", "/openapi/v2", accept=form)
    assert (bare.code, "Kubernetes" in bare.body) == (200, True)


async def test_tables(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget())
    widgets.clock.moment += 192
    table = (await widgets.ask("GET", WIDGETS, accept=TABLE)).body
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(c["name"], c["type"]) for c in table["columnDefinitions"]] == [
        ("Name", "string"),
        ("Size", "integer"),
        ("Age", "date"),
    ]
    assert table["rows"][0]["cells"] == ["one", 3, "3m12s"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = (await widgets.ask("GET", WIDGETS, accept=TABLE, includeObject="Object")).body
    assert whole["rows"][0]["object"]["kind"] == "Widget"
    bare = (await widgets.ask("GET", f"{WIDGETS}/one", accept=TABLE, includeObject="None")).body
    assert bare["rows"] == [{"cells": ["one", 3, "3m12s"], "object": None}]
    partial = (
        await widgets.ask("GET", WIDGETS, accept="application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
    ).body
    assert (partial["kind"], "spec" in partial["items"][0]) == ("PartialObjectMetadataList", False)
    text = await widgets.ask("GET", f"{WIDGETS}/one", accept="application/yaml")
    assert "kind: Widget" in text.body
    assert (await widgets.ask("GET", WIDGETS, accept="application/xml")).code == 406


async def test_documents_are_made_once(widgets: ApiSession) -> None:
    first = widgets.api.app.documents.openapi.document("example.test", "v1")
    assert widgets.api.app.documents.openapi.document("example.test", "v1") is first
    assert json.loads(first)["info"]["title"] == "Kubernetes"
