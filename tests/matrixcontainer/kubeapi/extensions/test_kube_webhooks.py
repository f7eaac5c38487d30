"""Admission webhooks: who is asked what, what they may change and refuse, and what happens when they cannot answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.api_session import JSON_PATCH, WIDGETS, ApiSession, a_crd, a_widget
from tests.matrixcontainer.kubeapi.hooks import CONFIGURATIONS, Hooks, allow, hook_server, patch

NS = "/api/v1/namespaces/default"


@pytest.fixture
async def hooks(widgets: ApiSession, tmp_path: Path) -> AsyncIterator[Hooks]:
    async with hook_server(tmp_path) as found:
        yield found
        await widgets.api.webhooks.client.close()


async def configure(session: ApiSession, sort: str, *hooks: dict[str, Any], name: str = "tests") -> None:
    body = {"metadata": {"name": name}, "webhooks": list(hooks)}
    reported = await session.post(f"{CONFIGURATIONS}/{sort}webhookconfigurations", body)
    assert reported.code == 201, reported.body


def deny(**status: Any) -> Any:
    return lambda request: {"allowed": False, "status": status}


async def test_a_validating_webhook_sees_the_request_and_refuses(widgets: ApiSession, hooks: Hooks) -> None:
    await configure(widgets, "validating", hooks.hook("/no", deny(message="too big", code=403, reason="Forbidden")))
    reported = await widgets.post(WIDGETS, a_widget(), fieldManager="me", fieldValidation="Strict")
    assert (reported.code, reported.body["reason"]) == (403, "Forbidden")
    assert reported.body["message"] == 'admission webhook "no.hooks.test" denied the request: too big'
    assert (await widgets.get(f"{WIDGETS}/one")).code == 404
    seen = hooks.seen["/no"][0]
    assert seen["kind"] == {"group": "example.test", "version": "v1", "kind": "Widget"}
    assert (seen["operation"], seen["name"], seen["namespace"]) == ("CREATE", "one", "default")
    assert (seen["oldObject"], seen["object"]["spec"]["color"]) == (None, "red")
    assert seen["userInfo"]["username"] == "admin"
    assert (seen["options"]["fieldManager"], seen["dryRun"]) == ("me", False)
    assert seen["object"]["metadata"]["uid"]


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [({}, 400, " without explanation"), ({"reason": "Why"}, 400, ": Why"), ({"message": "m", "code": 200}, 400, ": m")],
)
async def test_denial_messages(widgets: ApiSession, hooks: Hooks, status: Any, code: int, text: str) -> None:
    await configure(widgets, "validating", hooks.hook("/no", deny(**status)))
    reported = await widgets.post(WIDGETS, a_widget())
    assert (reported.code, reported.body["message"]) == (
        code,
        f'admission webhook "no.hooks.test" denied the request{text}',
    )


async def test_mutation_is_pruned_defaulted_and_validated(widgets: ApiSession, hooks: Hooks) -> None:
    change = patch(
        {"op": "replace", "path": "/spec/size", "value": 9},
        {"op": "add", "path": "/spec/nonsense", "value": 1},
        {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}},
    )
    await configure(widgets, "mutating", hooks.hook("/change", change))
    await configure(widgets, "validating", hooks.hook("/look", allow))
    made = (await widgets.post(WIDGETS, a_widget())).body
    assert (made["spec"], made["metadata"]["labels"]) == ({"size": 9, "color": "red"}, {"seen": "yes"})
    assert hooks.seen["/look"][0]["object"]["spec"]["size"] == 9
    hooks.answers["/change"] = patch({"op": "replace", "path": "/spec/size", "value": 1000})
    assert (await widgets.post(WIDGETS, a_widget("two"))).code == 422
    applied = await widgets.apply(f"{WIDGETS}/three", a_widget("three"), "me")
    assert applied.code == 422
    hooks.answers["/change"] = patch({"op": "add", "path": "/spec/note", "value": "hook"})
    applied = await widgets.apply(f"{WIDGETS}/three", a_widget("three"), "me")
    assert applied.body["spec"]["note"] == "hook"
    owners = {(e["operation"], json.dumps(e["fieldsV1"])) for e in applied.body["metadata"]["managedFields"]}
    assert ("Update", '{"f:spec": {"f:note": {}}}') in owners


async def test_updates_and_deletes_are_asked_with_the_old_object(widgets: ApiSession, hooks: Hooks) -> None:
    await widgets.post(WIDGETS, a_widget())
    await configure(widgets, "validating", hooks.hook("/look", allow))
    await widgets.patch(f"{WIDGETS}/one", {"spec": {"size": 4}})
    await widgets.patch(f"{WIDGETS}/one/status", {"status": {"size": 4}})
    hooks.answers["/look"] = deny(message="stay")
    assert (await widgets.delete(f"{WIDGETS}/one")).code == 400
    hooks.answers["/look"] = allow
    await widgets.delete(f"{WIDGETS}/one")
    found = [(r["operation"], r["object"] is None, r["oldObject"]["spec"]["size"]) for r in hooks.seen["/look"]]
    assert found == [("UPDATE", False, 3), ("DELETE", True, 4), ("DELETE", True, 4)]


async def test_rules_say_what_is_seen(widgets: ApiSession, hooks: Hooks) -> None:
    create = {"operations": ["CREATE"]}
    await configure(
        widgets,
        "validating",
        hooks.hook("/status", allow, rule={"resources": ["widgets/status"]}),
        hooks.hook("/scale", allow, rule={"resources": ["*/scale"]}),
        hooks.hook("/other", allow, rule=create | {"apiVersions": ["v2"]}, matchPolicy="Exact"),
        hooks.hook("/cluster", allow, rule=create | {"scope": "Cluster"}),
        hooks.hook("/labelled", allow, objectSelector={"matchLabels": {"a": "b"}}),
        hooks.hook("/space", allow, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}),
        hooks.hook("/when", allow, matchConditions=[{"name": "c", "expression": "object.spec.size > 5"}]),
    )
    await widgets.post(WIDGETS, a_widget())
    await widgets.patch(f"{WIDGETS}/one/status", {"status": {"size": 4}})
    await widgets.patch(f"{WIDGETS}/one/scale", {"spec": {"replicas": 7}})
    await widgets.patch(f"{WIDGETS}/one", {"metadata": {"labels": {"a": "b"}}})
    await widgets.post(WIDGETS.replace("default", "kube-system"), a_widget())
    counts = {path: len(seen) for path, seen in hooks.seen.items()}
    assert counts == {"/status": 1, "/scale": 1, "/labelled": 1, "/space": 1, "/when": 1}
    assert hooks.seen["/scale"][0]["object"]["spec"] == {"replicas": 7}
    assert hooks.seen["/scale"][0]["kind"]["kind"] == "Scale"


async def test_another_version_of_the_kind_counts_too(session: ApiSession, tmp_path: Path) -> None:
    crd = a_crd()
    v1 = crd["spec"]["versions"][0]
    crd["spec"]["versions"] = [v1, v1 | {"name": "v2", "storage": False}]
    await session.define(crd)
    async with hook_server(tmp_path) as hooks:
        change = patch({"op": "replace", "path": "/spec/size", "value": 9})
        await configure(session, "mutating", hooks.hook("/change", change))
        made = await session.post(WIDGETS.replace("/v1/", "/v2/"), a_widget() | {"apiVersion": "example.test/v2"})
        assert (made.body["apiVersion"], made.body["spec"]["size"]) == ("example.test/v2", 9)
        seen = hooks.seen["/change"][0]
        assert (seen["object"]["apiVersion"], seen["requestResource"]["version"]) == ("example.test/v1", "v2")
        await session.api.webhooks.client.close()


async def test_unreachable_webhooks(widgets: ApiSession, hooks: Hooks) -> None:
    gone = hooks.hook("/gone", allow, clientConfig={"url": "https://127.0.0.1:1/gone"})
    await configure(widgets, "validating", gone | {"failurePolicy": "Ignore"})
    assert (await widgets.post(WIDGETS, a_widget())).code == 201
    await widgets.patch(f"{CONFIGURATIONS}/validatingwebhookconfigurations/tests", {"webhooks": [gone]})
    reported = await widgets.post(WIDGETS, a_widget("two"))
    assert (reported.code, reported.body["reason"]) == (500, "InternalError")
    text = (
        'Internal error occurred: failed calling webhook "gone.hooks.test": failed to call webhook: Post "https://127'
    )
    assert reported.body["message"].startswith(text)
    stranger = gone | {"clientConfig": hooks.client("/gone") | {"caBundle": ""}}
    await widgets.patch(f"{CONFIGURATIONS}/validatingwebhookconfigurations/tests", {"webhooks": [stranger]})
    assert "certificate" in (await widgets.post(WIDGETS, a_widget("two"))).body["message"]
    behind = gone | {"clientConfig": {"service": {"name": "s", "namespace": "default"}}}
    path = f"{CONFIGURATIONS}/validatingwebhookconfigurations/tests"
    warned = await widgets.patch(path, {"webhooks": [behind]})
    assert "cannot be called by this server" in warned.warnings[0]
    assert "cannot be called by this server" in (await widgets.post(WIDGETS, a_widget("two"))).body["message"]
    assert (await widgets.delete(path)).code == 200


@pytest.mark.parametrize(
    "answer", [{"uid": "other"}, {"allowed": True, "http": 503}, {"allowed": True, "patch": "eA=="}]
)
async def test_invalid_webhook_responses(widgets: ApiSession, hooks: Hooks, answer: dict[str, Any]) -> None:
    await configure(widgets, "mutating", hooks.hook("/odd", lambda request: dict(answer)))
    reported = await widgets.post(WIDGETS, a_widget())
    assert reported.code == 500
    assert reported.body["message"].startswith('Internal error occurred: failed calling webhook "odd.hooks.test": ')


async def test_dry_runs_warnings_and_reinvocation(widgets: ApiSession, hooks: Hooks) -> None:
    def first(request: dict[str, Any]) -> dict[str, Any]:
        return {"allowed": True, "warnings": [f"first saw {request['object']['spec']['size']}"]}

    change = patch({"op": "replace", "path": "/spec/size", "value": 9})
    await configure(
        widgets, "mutating", hooks.hook("/a", first, reinvocationPolicy="IfNeeded"), hooks.hook("/b", change)
    )
    reported = await widgets.post(WIDGETS, a_widget(), dryRun="All")
    assert [text.split('"')[1] for text in reported.warnings] == ["first saw 3", "first saw 9"]
    assert hooks.seen["/a"][0]["dryRun"] is True
    assert len(hooks.seen["/b"]) == 1
    assert (await widgets.get(f"{WIDGETS}/one")).code == 404


async def test_built_in_objects_and_what_is_made_below_them(widgets: ApiSession, hooks: Hooks) -> None:
    core = {"apiGroups": [""], "resources": ["pods", "pods/binding", "configmaps"], "operations": ["CREATE"]}
    await configure(widgets, "validating", hooks.hook("/core", allow, rule=core))
    await widgets.post(f"{NS}/pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    await widgets.post(f"{NS}/pods/p/binding", binding)
    await widgets.post(f"{NS}/configmaps", {"metadata": {"name": "c"}})
    kinds = [(r["kind"]["kind"], r.get("subResource")) for r in hooks.seen["/core"]]
    assert kinds == [("Pod", None), ("Binding", "binding"), ("ConfigMap", None)]


async def test_configurations_are_defaulted_and_validated(session: ApiSession) -> None:
    path = f"{CONFIGURATIONS}/mutatingwebhookconfigurations"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {"name": "a.b.c", "clientConfig": {"url": "https://x"}, "sideEffects": "None", "rules": [rule]}
    reported = await session.post(
        path, {"metadata": {"name": "w"}, "webhooks": [hook | {"admissionReviewVersions": ["v1"]}]}
    )
    made = reported.body["webhooks"][0]
    assert (made["failurePolicy"], made["matchPolicy"], made["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
    assert (made["reinvocationPolicy"], made["namespaceSelector"], made["rules"][0]["scope"]) == ("Never", {}, "*")
    bad = {
        "name": "a",
        "clientConfig": {"url": "http://x"},
        "timeoutSeconds": 60,
        "rules": [rule | {"operations": ["X"]}],
    }
    reported = await session.post(path, {"metadata": {"name": "v"}, "webhooks": [bad]})
    assert set(reported.causes) == {
        "webhooks[0].name", "webhooks[0].admissionReviewVersions", "webhooks[0].rules[0].operations[0]",
        "webhooks[0].sideEffects", "webhooks[0].timeoutSeconds", "webhooks[0].clientConfig.url",
    }  # fmt: skip
    reported = await session.patch(f"{path}/w", [{"op": "remove", "path": "/webhooks"}], JSON_PATCH)
    assert reported.code == 200
