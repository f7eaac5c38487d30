"""Objects: what the server fills in, refuses, keeps and counts."""

import json
from typing import Any

from tests.conformance.api_session import MERGE, ApiSession
from tests.conformance.catalogue import case, rows
from tests.conformance.things import GROUP, G, L, W, config_map, deployment, loose, pod, secret, widget

# ---- create


@case("P0", "ConfigMap should run through a ConfigMap lifecycle")
def config_map_life(session: ApiSession) -> None:
    made = session.post("~configmaps", config_map(labels={"a": "b"}))
    assert made["metadata"]["uid"]
    assert "generation" not in made["metadata"]
    session.get("~configmaps/one")
    session.patch("~configmaps/one", {"data": {"k": "w"}})
    session.get("~configmaps", labelSelector="a=b")
    session.get("/api/v1/configmaps", labelSelector="a=b")
    session.delete("~configmaps/one")
    session.get("~configmaps/one", want=404)
    session.delete("~configmaps/one", want=404)


@case("P0", "CustomResourceDefinition Simple CustomResourceDefinition creating/deleting objects works")
def custom_resource_life(session: ApiSession) -> None:
    made = session.post(W, widget(spec={"ports": [{"name": "a", "port": 1}], "nested": {}}))
    assert made["spec"]["color"] == "red"
    assert made["spec"]["ports"][0]["protocol"] == "TCP"
    assert made["metadata"]["generation"] == 1
    session.get(f"{W}/one")
    session.get(W)
    changed = session.put(f"{W}/one", made.body | {"spec": {"size": 4}})
    assert changed["metadata"]["generation"] == 2
    session.delete(f"{W}/one")
    session.get(f"{W}/one", want=404)
    session.delete(f"{W}/one", want=404)


@case("P0")
def server_fills_metadata(session: ApiSession) -> None:
    """What a client says about uid, times and versions is not believed."""
    location = {"uid": "11111111-1111-1111-1111-111111111111", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9, "selfLink": "/x",
            "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}  # fmt: skip
    for path, body in ((W, widget(metadata=location)), ("~configmaps", config_map(**location))):
        made = session.post(path, body)
        assert made["metadata"]["uid"] != location["uid"]
        assert not made["metadata"]["creationTimestamp"].startswith("2001")
        assert "deletionTimestamp" not in made["metadata"]


@case("P0")
def generate_name(session: ApiSession) -> None:
    for path, body in ((W, widget()), ("~configmaps", config_map())):
        body["metadata"] = {"generateName": "made-"}
        names = {session.post(path, body)["metadata"]["name"] for _ in range(2)}
        assert len(names) == 2
        assert all(len(name) == len("made-") + 5 for name in names)


@case("P1")
def generate_name_too_long_is_cut(session: ApiSession) -> None:
    body = config_map()
    body["metadata"] = {"generateName": "x" * 70}
    made = session.post("~configmaps", body, note=False)
    session.note("length", len(made["metadata"]["name"]))


def refused_create(
    session: ApiSession,
    path: str,
    body: Any,
    code: int,
    query: dict[str, Any] | None = None,
    kind: str | None = "application/json",
) -> None:
    reported = session.post(path, body, want=code, kind=kind, **(query or {}))
    assert reported["kind"] == "Status"
    assert reported["status"] == "Failure"
    assert reported["code"] == code


def no_name(body: dict[str, Any]) -> dict[str, Any]:
    return body | {"metadata": {}}


rows(
    "P0",
    "objects",
    "create refused",
    [
        ("without a name", "~configmaps", no_name(config_map()), 422),
        ("custom without a name", W, no_name(widget()), 422),
        ("with a bad name", "~configmaps", config_map("Not_A_Name"), 422),
        ("custom with a bad name", W, widget("Not_A_Name"), 422),
        ("with a bad label value", "~configmaps", config_map(labels={"a": "b c"}), 422),
        ("with a bad label key", "~configmaps", config_map(labels={"a b/c d": "e"}), 422),
        ("with a bad annotation key", "~configmaps", config_map(annotations={"a b": "c"}), 422),
        ("custom with bad labels", W, widget(metadata={"labels": {"a": "b c", "d e": "f"}}), 422),
        ("in another namespace than the body says", "~configmaps", config_map(namespace="elsewhere"), 400),
        ("custom in another namespace", W, widget(metadata={"namespace": "elsewhere"}), 400),
        ("in a namespace that is not", "/api/v1/namespaces/not-there/configmaps", config_map(), 404),
        ("custom in a namespace that is not", f"/apis/{GROUP}/v1/namespaces/not-there/widgets", widget(), 404),
        ("custom of another kind", W, widget() | {"kind": "Gadget"}, 422),
        ("of another kind", "~configmaps", config_map() | {"kind": "Secret"}, 400),
        ("custom of another version", W, widget() | {"apiVersion": f"{GROUP}/v2"}, 400),
        ("of another version", "~configmaps", config_map() | {"apiVersion": "v2"}, 400),
        ("custom without a kind", W, {"apiVersion": f"{GROUP}/v1", "metadata": {"name": "x"}, "spec": {"size": 1}}, 400),
        ("custom without a version", W, {"kind": "Widget", "metadata": {"name": "x"}, "spec": {"size": 1}}, 400),
        ("with no body", "~configmaps", b"", 400),
        ("with broken JSON", "~configmaps", b'{"kind": "ConfigMap", ', 400),
        ("custom with broken JSON", W, b'{"kind": ', 400),
        ("with a list for an object", "~configmaps", b"[]", 400),
        ("with a string for a map", "~configmaps", config_map() | {"data": "text"}, 400),
        ("with a number for a string", "~configmaps", config_map() | {"data": {"a": 1}}, 400),
        ("with a string for metadata", W, widget() | {"metadata": "text"}, 400),
        ("with a number for a label", W, widget(metadata={"labels": {"a": 1}}), 400),
        ("with an unknown media type", "~configmaps", b"x", 415, None, "text/strange"),
        ("with a bad dryRun", "~configmaps", config_map(), 422, {"dryRun": "Some"}),
        ("with a bad fieldValidation", "~configmaps", config_map(), 422, {"fieldValidation": "Maybe"}),
        ("with a long fieldManager", "~configmaps", config_map(), 422, {"fieldManager": "x" * 200}),
        ("with an owner without uid", "~configmaps", config_map(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p"}]), 422),
        ("with two controllers", "~configmaps", config_map(ownerReferences=[
            {"apiVersion": "v1", "kind": "Pod", "name": n, "uid": n, "controller": True} for n in ("p", "q")]), 422),
        ("with a bad finalizer", W, widget(metadata={"finalizers": ["no slash"]}), 422),
        ("with an unqualified finalizer", "~configmaps", config_map(finalizers=["plain"]), 422),
    ],
    refused_create,
)  # fmt: skip


@case("P0")
def create_again_is_refused(session: ApiSession) -> None:
    for path, body in (("~configmaps", config_map()), (W, widget())):
        session.post(path, body)
        assert session.post(path, body, want=409).reason == "AlreadyExists"
    session.post("/api/v1/namespaces", {"metadata": {"name": session.ns}}, want=409)


@case("P1")
def create_with_a_resource_version(session: ApiSession) -> None:
    session.post("~configmaps", config_map(resourceVersion="5"), want=500)
    session.post(W, widget(metadata={"resourceVersion": "5"}), want=500)


@case("P1")
def create_fills_kind_of_built_ins(session: ApiSession) -> None:
    """The Python client sends neither kind nor apiVersion, nor a Content-Type."""
    made = session.post("~configmaps", json.dumps({"metadata": {"name": "one"}, "data": {"a": "b"}}), kind=None)
    assert made["kind"] == "ConfigMap"


@case("P1")
def create_from_yaml(session: ApiSession) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  day: '2020-01-01'\n  on: 'yes'\n"
    session.post("~configmaps", text, kind="application/yaml")
    free = f"apiVersion: {GROUP}/v1\nkind: Loose\nmetadata: {{name: two}}\nspec: {{day: 2020-01-01, sure: yes, off: 0x10, list: [1, 2.5, null]}}\n"
    session.post(L, free, kind="application/yaml")


@case("P1")
def too_large_a_body(session: ApiSession) -> None:
    reported = session.post("~configmaps", config_map(data={"k": "x" * (4 << 20)}), want=413)
    session.note("reason", reported.reason)


@case("P1")
def numbers_keep_their_form(session: ApiSession) -> None:
    """Integers up to 64 bits stay what they are; fractions too; text of any script."""
    body = loose(
        spec={
            "big": 9007199254740993,
            "minus": -9223372036854775808,
            "half": 0.5,
            "e": 1e3,
            "text": 'α \u2028 " <>&',
            "none": None,
        }
    )
    made = session.post(L, body)
    assert made["spec"]["big"] == 9007199254740993
    session.get(f"{L}/one")


# ---- update


@case("P0")
def stale_update_is_refused(session: ApiSession) -> None:
    for path, body, change in (
        ("~configmaps", config_map(), {"data": {"k": "w"}}),
        (W, widget(), {"spec": {"size": 5}}),
    ):
        first = session.post(path, body)
        session.put(f"{path}/one", first.body | change)
        reported = session.put(f"{path}/one", first.body | {"data": {"k": "x"}}, want=409)
        assert reported.reason == "Conflict"
        assert "the object has been modified" in reported.message


@case("P0")
def update_without_resource_version(session: ApiSession) -> None:
    session.post("~configmaps", config_map())
    session.put("~configmaps/one", config_map(data={"k": "other"}))
    session.post(W, widget())
    reported = session.put(f"{W}/one", widget(), want=422)
    assert "must be specified for an update" in reported.message


def refused_update(session: ApiSession, path: str, body: dict[str, Any], change: dict[str, Any], code: int) -> None:
    made = session.post(path, body)
    name = made["metadata"]["name"]
    sent = dict(made.body) | {key: value for key, value in change.items() if key != "metadata"}
    sent["metadata"] = made["metadata"] | change.get("metadata", {})
    if "deployments" in path:  # controllers write too
        sent["metadata"].pop("resourceVersion")
    session.put(f"{path}/{name}", sent, want=code)
    reported = session.get(f"{path}/{name}", note="deployments" not in path)
    session.note("kept", reported.body.get("spec"))


rows(
    "P0",
    "objects",
    "update",
    [
        ("of another name", "~configmaps", config_map(), {"metadata": {"name": "two"}}, 400),
        ("custom of another name", W, widget(), {"metadata": {"name": "two"}}, 400),
        ("of another uid", "~configmaps", config_map(), {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}}, 409),
        ("custom of another uid", W, widget(), {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}}, 409),
        ("with another creation time is kept", W, widget(), {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}, 200),
        ("with a deletion time is refused", W, widget(), {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}, 422),
        ("with another generation is kept", W, widget(), {"metadata": {"generation": 7}}, 200),
        ("to another namespace", "~configmaps", config_map(), {"metadata": {"namespace": "elsewhere"}}, 400),
        ("with an invalid spec", W, widget(), {"spec": {"size": 1000}}, 422),
        ("without the spec", W, widget(), {"spec": None}, 200),
        ("drops unknown fields", W, widget(), {"spec": {"size": 3, "unknown": 1}, "more": 2}, 200),
        ("of the labels", W, widget(), {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}, 200),
        ("of a secret's type", "~secrets", secret(), {"type": "other"}, 422),
        ("of an immutable secret", "~secrets", secret(immutable=True, data={"a": "Yg=="}), {"data": {"a": "Yw=="}}, 422),
        ("of an immutable config map", "~configmaps", config_map() | {"immutable": True}, {"data": {"k": "x"}}, 422),
        ("making an immutable config map mutable", "~configmaps", config_map() | {"immutable": True}, {"immutable": False}, 422),
        ("of a deployment's selector", "~apps/v1/deployments", deployment(),
         {"spec": deployment(selector={"matchLabels": {"app": "b"}}, template={"metadata": {"labels": {"app": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})["spec"]}, 422),
    ],
    refused_update,
)  # fmt: skip


rows(
    "P2",
    "objects",
    "update",
    [
        ("of a malformed version", "~configmaps", config_map(), {"metadata": {"resourceVersion": "abc"}}, 500),
        ("custom of a malformed version", W, widget(), {"metadata": {"resourceVersion": "abc"}}, 500),
    ],
    refused_update,
)


@case("P0")
def update_of_nothing(session: ApiSession) -> None:
    session.put("~configmaps/one", config_map(), want=404)
    session.put(f"{W}/one", widget(), want=404)
    session.patch("~configmaps/one", {}, want=404)
    session.patch(f"{W}/one", {}, want=404)


@case("P0")
def write_without_change_keeps_the_version(session: ApiSession) -> None:
    for path, body in (("~configmaps", config_map()), (W, widget())):
        made = session.post(path, body)
        assert session.put(f"{path}/one", made.body).rv == made.rv
        assert session.patch(f"{path}/one", {}).rv == made.rv
        assert session.patch(f"{path}/one", {"metadata": {"labels": {}}}).rv == made.rv


@case("P0")
def generation_counts_specs(session: ApiSession) -> None:
    session.post(W, widget(metadata={"finalizers": ["conformance.test/hold"]}))
    seen = []
    for path, change in (
        ("", {"metadata": {"labels": {"a": "b"}}}),
        ("", {"spec": {"size": 4}}),
        ("/status", {"status": {"x": 1}}),
        ("", {"status": {"x": 2}}),
    ):
        seen.append(session.patch(f"{W}/one{path}", change)["metadata"]["generation"])
    seen.append(session.delete(f"{W}/one")["metadata"]["generation"])
    assert seen == [1, 2, 2, 2, 3]
    session.patch(f"{W}/one", {"metadata": {"finalizers": None}})


@case("P1")
def generation_without_a_status_subresource(session: ApiSession) -> None:
    session.post(L, loose(spec={"a": 1}))
    assert session.patch(f"{L}/one", {"status": {"x": 1}})["metadata"]["generation"] == 2
    assert session.patch(f"{L}/one", {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 2
    assert session.patch(f"{L}/one", {"top": 1})["metadata"]["generation"] == 3


@case("P1")
def generation_of_built_ins(session: ApiSession) -> None:
    assert session.post("~apps/v1/deployments", deployment(paused=True))["metadata"]["generation"] == 1
    assert (
        session.patch("~apps/v1/deployments/one", {"spec": {"replicas": 1}}, note=False)["metadata"]["generation"] == 2
    )
    assert (
        session.patch("~apps/v1/deployments/one", {"metadata": {"labels": {"a": "b"}}}, note=False)["metadata"][
            "generation"
        ]
        == 2
    )


@case("P0")
def status_is_apart(session: ApiSession) -> None:
    """The main resource leaves status alone, /status leaves the rest alone."""
    made = session.post(W, widget(status={"phase": "Lie"}))
    assert "status" not in made.body
    reported = session.patch(
        f"{W}/one/status", {"status": {"phase": "Good"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
    )
    assert reported["status"] == {"phase": "Good"}
    assert reported["spec"]["size"] == 3
    assert "labels" not in reported["metadata"]
    reported = session.patch(f"{W}/one", {"status": {"phase": "Bad"}})
    assert reported["status"] == {"phase": "Good"}
    reported = session.put(f"{W}/one/status", reported.body | {"status": {"phase": "New"}})
    assert reported["status"] == {"phase": "New"}
    session.get(f"{W}/one/status")


@case("P1")
def dry_run_stores_nothing(session: ApiSession) -> None:
    session.post("~configmaps", config_map(), dryRun="All")
    session.get("~configmaps/one", want=404)
    first = session.post("~configmaps", config_map())
    session.patch("~configmaps/one", {"data": {"k": "w"}}, dryRun="All")
    session.put("~configmaps/one", config_map(data={"a": "b"}), dryRun="All")
    session.delete("~configmaps/one", dryRun="All")
    session.delete("~configmaps/one", {"dryRun": ["All"]})
    assert session.get("~configmaps/one").rv == first.rv
    session.post("~configmaps", config_map(), dryRun="All", want=409)
    session.post(W, widget(spec={"size": 1000}), dryRun="All", want=422)
    session.delete("~configmaps", dryRun="All", fieldSelector="metadata.name=one")
    session.get("~configmaps/one")


# ---- field validation


def unknown_fields(session: ApiSession, path: str, body: Any, mode: str, code: int) -> None:
    query = {"fieldValidation": mode} if mode else {}
    reported = session.post(path, body, want=code, **query)
    session.note("warnings", reported.warnings)


DUPLICATE_CR = json.dumps(widget()).replace('"size": 3', '"size": 3, "size": 4')
DUPLICATE_CM = json.dumps(config_map()).replace('"k": "v"', '"k": "v", "k": "w"')
UNKNOWN = [
    ("cr", W, widget(spec={"unknown": 1, "nested": {"z": 1}})),
    ("cr metadata", W, widget(metadata={"odd": "x"})),
    ("cr root", W, widget() | {"odd": 1}),
    ("cr list item", W, widget(spec={"ports": [{"name": "a", "port": 1, "odd": 2}]})),
    ("cr duplicate", W, DUPLICATE_CR),
    ("typed", "~configmaps", config_map() | {"odd": 1, "more": {"a": 1}}),
    ("typed metadata", "~configmaps", config_map(odd="x")),
    ("typed deep", "~apps/v1/deployments", deployment(template={"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i", "odd": 1}], "strange": 2}})),
    ("typed duplicate", "~configmaps", DUPLICATE_CM),
    ("free cr", L, loose(spec={"anything": 1})),
]  # fmt: skip
rows(
    "P0",
    "objects",
    "FieldValidation",
    [
        (f"{name} {mode or 'default'}", path, body, mode, 400 if mode == "Strict" and name != "free cr" else 201)
        for name, path, body in UNKNOWN
        for mode in ("Strict", "Warn", "Ignore", "")
    ],
    unknown_fields,
)


@case("P1", "FieldValidation should detect unknown fields on update and patch too")
def field_validation_on_writes(session: ApiSession) -> None:
    made = session.post(W, widget())
    for mode in ("Strict", "Warn", "Ignore"):
        want = 400 if mode == "Strict" else 200
        session.put(
            f"{W}/one", made.body | {"spec": {"size": 3, "color": "red", "odd": 1}}, want=want, fieldValidation=mode
        )
        session.patch(f"{W}/one", {"spec": {"odd": 1}}, want=422 if mode == "Strict" else 200, fieldValidation=mode)
        session.apply(f"{W}/two", widget("two", spec={"odd": 1}), want=None, fieldValidation=mode)


# ---- kinds with rules of their own

REFUSED_KINDS: list[tuple[Any, ...]] = [
    ("config map key", "~configmaps", config_map(data={"a b": "c"}), 422),
    ("config map same key twice", "~configmaps", config_map(data={"a": "c"}) | {"binaryData": {"a": "Yg=="}}, 422),
    ("config map empty key", "~configmaps", config_map(data={"": "c"}), 422),
    ("secret key", "~secrets", secret(data={"a b": "Yg=="}), 422),
    ("secret not base64", "~secrets", secret(data={"a": "not base64!"}), 400),
    ("tls secret without keys", "~secrets", secret(type="kubernetes.io/tls"), 422),
    ("docker secret without key", "~secrets", secret(type="kubernetes.io/dockerconfigjson"), 422),
    ("namespace name", "/api/v1/namespaces", {"metadata": {"name": "a.b"}}, 422),
    ("pod without containers", "~pods", pod(containers=[]), 422),
    ("pod with no image", "~pods", pod(containers=[{"name": "c"}]), 422),
    ("pod with bad container name", "~pods", pod(containers=[{"name": "C_", "image": "i"}]), 422),
    ("pod with containers alike", "~pods", pod(containers=[{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]), 422),
    ("pod restart policy", "~pods", pod(restartPolicy="Sometimes"), 422),
    ("pod request over limit", "~pods", pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]), 422),
    ("pod bad quantity", "~pods", pod(containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "much"}}}]), 400),
    ("pod port", "~pods", pod(containers=[{"name": "c", "image": "i", "ports": [{"containerPort": 70000}]}]), 422),
    ("pod mount without volume", "~pods", pod(containers=[{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]), 422),
    ("pod env name", "~pods", pod(containers=[{"name": "c", "image": "i", "env": [{"name": "", "value": "x"}]}]), 422),
    ("pod image pull policy", "~pods", pod(containers=[{"name": "c", "image": "i", "imagePullPolicy": "Perhaps"}]), 422),
    ("deployment without selector", "~apps/v1/deployments", {"metadata": {"name": "x"}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}, 422),
    ("deployment selector mismatch", "~apps/v1/deployments", deployment(selector={"matchLabels": {"app": "z"}}), 422),
    ("deployment negative replicas", "~apps/v1/deployments", deployment(replicas=-1), 422),
    ("deployment string replicas", "~apps/v1/deployments", deployment(replicas="two"), 400),
    ("job without template", "~batch/v1/jobs", {"metadata": {"name": "x"}, "spec": {}}, 422),
    ("job restart policy", "~batch/v1/jobs", {"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}, 422),
    ("service without ports", "~services", {"metadata": {"name": "x"}, "spec": {}}, 422),
    ("service port", "~services", {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 0}]}}, 422),
    ("service name", "~services", {"metadata": {"name": "1x"}, "spec": {"ports": [{"port": 80}]}}, 422),
    ("service type", "~services", {"metadata": {"name": "x"}, "spec": {"type": "Wish", "ports": [{"port": 80}]}}, 422),
    ("lease duration", "~coordination.k8s.io/v1/leases", {"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 0}}, 422),
    ("priority class value", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "too-high"}, "value": 2000000000}, 422),
    ("priority class system name", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "system-x"}, "value": 5}, 422),
    ("budget with both", "~policy/v1/poddisruptionbudgets", {"metadata": {"name": "x"}, "spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": {}}}, 422),
    ("role rule without verbs", "~rbac.authorization.k8s.io/v1/roles", {"metadata": {"name": "x"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]}, 422),
    ("role rule without resources", "~rbac.authorization.k8s.io/v1/roles", {"metadata": {"name": "x"}, "rules": [{"verbs": ["get"]}]}, 422),
    ("role binding without role", "~rbac.authorization.k8s.io/v1/rolebindings", {"metadata": {"name": "x"}, "roleRef": {"kind": "Role", "name": ""}}, 422),
    ("role binding subject kind", "~rbac.authorization.k8s.io/v1/rolebindings", {"metadata": {"name": "x"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "Thing", "name": "a"}]}, 422),
    ("hpa without target", "~autoscaling/v2/horizontalpodautoscalers", {"metadata": {"name": "x"}, "spec": {"maxReplicas": 1}}, 422),
    ("hpa max below min", "~autoscaling/v2/horizontalpodautoscalers", {"metadata": {"name": "x"}, "spec": {"minReplicas": 3, "maxReplicas": 1, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}}, 422),
    ("stateful set without service name", "~apps/v1/statefulsets", {"metadata": {"name": "x"}, "spec": {"selector": {"matchLabels": {"a": "z"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}, 422),
]  # fmt: skip
rows("P1", "objects", "invalid", REFUSED_KINDS, refused_create)


def defaulted(session: ApiSession, path: str, body: dict[str, Any]) -> None:
    """The object as it comes back from its creation, without status (controllers are quick)."""
    made = session.post(path, body, note=False)
    session.note("spec", {key: value for key, value in made.body.items() if key != "status"})


SOUND: list[tuple[Any, ...]] = [
    ("secret", "~secrets", secret(stringData={"a": "b"}, data={"c": "ZA=="})),
    ("service account", "~serviceaccounts", {"metadata": {"name": "x"}}),
    ("pod", "~pods", pod(containers=[{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"port": 80}}, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}], volumes=[{"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}}])),
    ("deployment", "~apps/v1/deployments", deployment()),
    ("replica set", "~apps/v1/replicasets", deployment(replicas=0) | {"kind": "ReplicaSet"}),
    ("stateful set", "~apps/v1/statefulsets", deployment(serviceName="s", replicas=0) | {"kind": "StatefulSet"}),
    ("job", "~batch/v1/jobs", {"metadata": {"name": "x"}, "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
    ("cron job", "~batch/v1/cronjobs", {"metadata": {"name": "x"}, "spec": {"suspend": True, "schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
    ("headless service", "~services", {"metadata": {"name": "x"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"a": "b"}}}),
    ("service", "~services", {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80, "targetPort": "web"}], "selector": {"a": "b"}}}),
    ("lease", "~coordination.k8s.io/v1/leases", {"metadata": {"name": "x"}, "spec": {"holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.123456Z"}}),
    ("role", "~rbac.authorization.k8s.io/v1/roles", {"metadata": {"name": "x"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    ("role binding", "~rbac.authorization.k8s.io/v1/rolebindings", {"metadata": {"name": "x"}, "roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "a"}]}),
    ("budget", "~policy/v1/poddisruptionbudgets", {"metadata": {"name": "x"}, "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}}),
    ("priority class", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "conformance-sound"}, "value": 5}),
    ("ingress", "~networking.k8s.io/v1/ingresses", {"metadata": {"name": "x"}, "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
    ("network policy", "~networking.k8s.io/v1/networkpolicies", {"metadata": {"name": "x"}, "spec": {"podSelector": {}}}),
    ("autoscaler", "~autoscaling/v2/horizontalpodautoscalers", {"metadata": {"name": "x"}, "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}),
    ("storage class", "/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "conformance-sound"}, "provisioner": "x.test/y"}),
    ("claim", "~persistentvolumeclaims", {"metadata": {"name": "x"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none"}}),
    ("node", "/api/v1/nodes", {"metadata": {"name": "conformance-sound", "labels": {"a": "b"}}, "spec": {"unschedulable": True}}),
    ("endpoint slice", "~discovery.k8s.io/v1/endpointslices", {"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [{"port": 80}]}),
    ("webhook configuration", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {"metadata": {"name": "conformance-sound"}, "webhooks": [{"name": "a.b.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/x"}, "rules": [{"apiGroups": ["none.test"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"]}]}]}),
]  # fmt: skip


def sound(session: ApiSession, path: str, body: dict[str, Any]) -> None:
    if "pods" in path:
        session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    defaulted(session, path, body)


rows("P1", "objects", "defaults of a", SOUND, sound)


@case("P1", "Secrets should patch a secret")
def secret_string_data(session: ApiSession) -> None:
    made = session.post("~secrets", secret(stringData={"a": "b"}))
    assert made["data"] == {"a": "Yg=="}
    assert made["type"] == "Opaque"
    session.patch("~secrets/one", {"stringData": {"a": "c"}}, kind=MERGE)


@case("P1", "Pods should run through the lifecycle of Pods and PodStatus")
def pod_spec_is_immutable(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    session.post("~pods", pod())
    session.patch("~pods/one", {"spec": {"containers": [{"name": "main", "image": "other:2"}]}})
    session.patch("~pods/one", {"spec": {"activeDeadlineSeconds": 5}})
    session.patch("~pods/one", {"spec": {"nodeName": "somewhere"}}, want=422)
    session.patch("~pods/one", {"spec": {"restartPolicy": "Never"}}, want=422)


@case("P1", "Pods should patch a pod status")
def pod_status(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    session.post("~pods", pod())
    session.patch(
        "~pods/one/status", {"status": {"message": "patched", "phase": "Running"}, "metadata": {"labels": {"a": "b"}}}
    )
    session.get("~pods/one/status")
    session.patch("~pods/one", {"status": {"message": "ignored"}})


@case("P1", "Node Lifecycle should run through the lifecycle of a node")
def node_life(session: ApiSession) -> None:
    name = "conformance-life"
    session.post("/api/v1/nodes", {"metadata": {"name": name}})
    session.patch(
        f"/api/v1/nodes/{name}/status",
        {"status": {"capacity": {"cpu": "4000m", "huawei.com/Ascend910": "8"}}},
        note=False,
    )
    reported = session.get(f"/api/v1/nodes/{name}", note=False)
    session.note("capacity", reported["status"]["capacity"])
    session.delete(f"/api/v1/nodes/{name}")
    session.until_gone(f"/api/v1/nodes/{name}")


@case("P1", "ServiceAccounts should run through the lifecycle of a ServiceAccount")
def service_account_life(session: ApiSession) -> None:
    session.post("~serviceaccounts", {"metadata": {"name": "x"}, "automountServiceAccountToken": False})
    session.patch("~serviceaccounts/x", {"metadata": {"labels": {"a": "b"}}})
    session.get("~serviceaccounts", labelSelector="a=b")
    reported = session.post("~serviceaccounts/x/token", {"spec": {"expirationSeconds": 1000}}, note=False)
    session.note("kind", [reported["kind"], reported["spec"]["expirationSeconds"]])
    me = session.post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token=reported["status"]["token"], note=False
    )
    session.note("who", [me["status"]["userInfo"]["username"], me["status"]["userInfo"]["groups"]])
    session.post("~serviceaccounts/x/token", {"spec": {"expirationSeconds": 10}}, want=422)
    session.post("~serviceaccounts/none/token", {}, want=404)
    session.delete("~serviceaccounts/x")


@case("P1", "Lease lease API should be available")
def lease_life(session: ApiSession) -> None:
    path = "~coordination.k8s.io/v1/leases"
    made = session.post(
        path,
        {
            "metadata": {"name": "x"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 30, "acquireTime": "2020-01-01T00:00:00.000000Z"},
        },
    )
    made.body["spec"]["holderIdentity"] = "b"
    session.put(f"{path}/x", made.body)
    made.body["spec"]["holderIdentity"] = "c"
    session.put(f"{path}/x", made.body, want=409)
    session.patch(f"{path}/x", {"spec": {"leaseTransitions": 2, "renewTime": "2020-01-01T00:00:01.500000Z"}})
    session.delete(f"{path}/x")


@case("P1", "Events API should ensure that an event can be fetched, patched, deleted, and listed")
def events_in_both_groups(session: ApiSession) -> None:
    involved = {"kind": "Pod", "namespace": session.ns, "name": "p"}
    session.post(
        "~events",
        {
            "metadata": {"name": "x"},
            "involvedObject": involved,
            "reason": "Why",
            "message": "m",
            "type": "Normal",
            "count": 2,
            "source": {"component": "c"},
            "firstTimestamp": "2020-01-01T00:00:00Z",
        },
    )
    session.get("~events.k8s.io/v1/events/x")
    session.post(
        "~events.k8s.io/v1/events",
        {
            "metadata": {"name": "y"},
            "regarding": involved,
            "reason": "Why",
            "note": "n",
            "type": "Warning",
            "action": "Act",
            "reportingController": "c.test/d",
            "reportingInstance": "i",
            "eventTime": "2020-01-01T00:00:00.000001Z",
        },
    )
    session.get("~events/y")
    session.patch("~events/x", {"message": "other"})
    session.get("~events", fieldSelector="involvedObject.name=p,type=Warning")
    session.get("~events.k8s.io/v1/events", fieldSelector="regarding.name=p,reason=Why")
    session.delete("~events.k8s.io/v1/events/x")
    session.post(
        "~events", {"metadata": {"name": "z"}, "involvedObject": involved | {"namespace": "elsewhere"}}, want=422
    )
    session.post(
        "~events.k8s.io/v1/events", {"metadata": {"name": "z"}, "regarding": involved, "reason": "r"}, want=422
    )


@case("P1", "Discovery of a cluster-scoped custom resource")
def cluster_scoped_custom_resource(session: ApiSession) -> None:
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Gadget",
        "metadata": {"name": "conformance-gadget"},
        "spec": {"a": "b"},
    }
    session.post(G, body)
    older = f"/apis/{GROUP}/v1beta1/gadgets"
    reported = session.get(f"{older}/conformance-gadget")
    assert reported["apiVersion"] == f"{GROUP}/v1beta1"
    session.patch(f"{older}/conformance-gadget", {"spec": {"a": "c"}})
    session.post(G, body | {"metadata": {"name": "conformance-gadget", "namespace": "default"}}, want=409)
    session.delete(f"{G}/conformance-gadget")
