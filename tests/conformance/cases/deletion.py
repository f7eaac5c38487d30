"""Deletion: finalizers, preconditions, collections, garbage collection, namespaces."""

from typing import Any

from tests.conformance.api_session import ApiSession
from tests.conformance.catalogue import case, rows
from tests.conformance.things import GROUP, L, W, config_map, loose, owner, pod, widget

HOLD = ["conformance.test/hold"]


@case("P0")
def delete_answers(session: ApiSession) -> None:
    """A Status for most kinds, the object for some."""
    session.post(W, widget(), note=False)
    reported = session.delete(f"{W}/one")
    assert reported["kind"] == "Status"
    assert reported["status"] == "Success"
    session.post("~configmaps", config_map(), note=False)
    session.delete("~configmaps/one")
    session.post(
        "~services", {"metadata": {"name": "x"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}, note=False
    )
    session.delete("~services/x")
    session.post("~serviceaccounts", {"metadata": {"name": "x"}}, note=False)
    session.delete("~serviceaccounts/x")


@case("P0")
def finalizers_hold_an_object(session: ApiSession) -> None:
    session.post(W, widget(metadata={"finalizers": [*HOLD, "conformance.test/other"]}))
    reported = session.delete(f"{W}/one")
    assert reported["metadata"]["deletionTimestamp"]
    assert reported["metadata"]["deletionGracePeriodSeconds"] == 0
    assert reported["metadata"]["generation"] == 2
    again = session.delete(f"{W}/one")
    assert again["metadata"]["generation"] == 2
    session.patch(
        f"{W}/one", {"metadata": {"finalizers": [*HOLD, "conformance.test/other", "conformance.test/new"]}}, want=422
    )
    session.patch(f"{W}/one", {"spec": {"size": 5}})
    session.patch(f"{W}/one/status", {"status": {"phase": "Going"}})
    session.patch(f"{W}/one", {"metadata": {"deletionTimestamp": None}})
    session.post(W, widget(), want=409)
    session.patch(f"{W}/one", {"metadata": {"finalizers": HOLD}})
    session.patch(f"{W}/one", {"metadata": {"finalizers": []}})
    session.get(f"{W}/one", want=404)


@case("P0")
def finalizers_removed_with_a_test(session: ApiSession) -> None:
    """As Kopf does it."""
    made = session.post(W, widget(metadata={"finalizers": HOLD}))
    session.delete(f"{W}/one")
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": made.rv},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    kind = "application/json-patch+json"
    session.patch(f"{W}/one", patch, kind=kind, want=422)
    patch[0]["value"] = session.get(f"{W}/one", note=False).rv
    session.patch(f"{W}/one", patch, kind=kind)
    session.get(f"{W}/one", want=404)


def preconditions(session: ApiSession, body: Any, code: int) -> None:
    made = session.post(W, widget())
    text = {"uid": made["metadata"]["uid"], "rv": made.rv}
    filled = {key: text.get(value, value) for key, value in body.items()}
    reported = session.delete(f"{W}/one", {"preconditions": filled}, want=code, note=False)
    session.note("reason", [reported.reason, reported.message.split(". ")[0]])


rows(
    "P0",
    "deletion",
    "delete with",
    [
        ("its uid", {"uid": "uid"}, 200),
        ("another uid", {"uid": "11111111-1111-1111-1111-111111111111"}, 409),
        ("its version", {"resourceVersion": "rv"}, 200),
        ("another version", {"resourceVersion": "1"}, 409),
        ("its uid and version", {"uid": "uid", "resourceVersion": "rv"}, 200),
    ],
    preconditions,
)


def refused_delete(session: ApiSession, body: Any, query: dict[str, Any], code: int) -> None:
    session.post(W, widget(), note=False)
    session.delete(f"{W}/one", body, want=code, **query)
    session.get(f"{W}/one")


rows(
    "P1",
    "deletion",
    "delete refused",
    [
        ("unknown policy", {"propagationPolicy": "Perhaps"}, {}, 422),
        ("policy and orphan", {"propagationPolicy": "Background", "orphanDependents": True}, {}, 422),
        ("unknown policy in the query", None, {"propagationPolicy": "Perhaps"}, 422),
        ("unknown dry run", {"dryRun": ["Some"]}, {}, 422),
        ("bad body", b"{", {}, 500),
    ],
    refused_delete,
)


@case("P0", "Events should delete a collection of events")
def delete_a_collection(session: ApiSession) -> None:
    for i in range(4):
        session.post(
            W,
            widget(f"w{i}", spec={"color": "blue" if i == 3 else "red"}, metadata={"labels": {"half": str(i % 2)}}),
            note=False,
        )
    reported = session.delete(W, labelSelector="half=0")
    assert sorted(reported.names) == ["w0", "w2"]
    session.delete(W, fieldSelector="spec.color=blue")
    assert session.get(W).names == ["w1"]
    session.post("~configmaps", config_map(finalizers=HOLD), note=False)
    reported = session.delete("~configmaps", fieldSelector="metadata.name=one")
    session.get("~configmaps/one")
    session.patch("~configmaps/one", {"metadata": {"finalizers": None}}, note=False)
    assert session.delete(W).names == ["w1"]
    assert session.delete(W)["items"] == []


# ---- garbage


def collector_knows_widgets(session: ApiSession) -> None:
    """A real garbage collector looks for new resources every half minute."""

    def probe() -> None:
        made = session.post("~configmaps", config_map("probe-owner"), note=False)
        session.post(W, widget("probe", metadata={"ownerReferences": [owner(made)]}), note=False)
        session.post(L, loose("probe", metadata={"ownerReferences": [owner(made)]}), note=False)
        session.delete("~configmaps/probe-owner", note=False)
        session.until_gone(f"{W}/probe", note=False, patience_s=60)
        session.until_gone(f"{L}/probe", note=False, patience_s=60)

    session.server.once("collector", probe)


def family(session: ApiSession, **more: Any) -> Any:
    """An owner and two dependents, one of them custom."""
    collector_knows_widgets(session)
    made = session.post("~configmaps", config_map("owner"), note=False)
    reference = owner(made, **more)
    session.post("~configmaps", config_map("child", ownerReferences=[reference]), note=False)
    session.post(W, widget("child", metadata={"ownerReferences": [reference]}), note=False)
    return made


@case("P1", "Garbage collector should support cascading deletion of custom resources")
def background_deletion(session: ApiSession) -> None:
    family(session)
    session.delete("~configmaps/owner", {"propagationPolicy": "Background"})
    session.get("~configmaps/owner", want=404)
    session.until_gone("~configmaps/child")
    session.until_gone(f"{W}/child")


@case("P1", "Garbage collector should orphan pods created by rc if delete options say so")
def orphaning_deletion(session: ApiSession) -> None:
    family(session)
    reported = session.delete("~configmaps/owner", {"propagationPolicy": "Orphan"})
    assert reported["metadata"]["finalizers"] == ["orphan"]
    session.until_gone("~configmaps/owner")
    assert "ownerReferences" not in session.get("~configmaps/child", note=False)["metadata"]
    assert "ownerReferences" not in session.get(f"{W}/child", note=False)["metadata"]


@case("P1", "Garbage collector should keep the rc around until all its pods are deleted if the deleteOptions says so")
def foreground_deletion(session: ApiSession) -> None:
    collector_knows_widgets(session)
    made = session.post("~configmaps", config_map("owner"), note=False)
    reference = owner(made, blockOwnerDeletion=True)
    session.post(W, widget("child", metadata={"ownerReferences": [reference], "finalizers": HOLD}), note=False)
    reported = session.delete("~configmaps/owner", {"propagationPolicy": "Foreground"})
    assert reported["metadata"]["finalizers"] == ["foregroundDeletion"]
    session.until(f"{W}/child", lambda reported: "deletionTimestamp" in reported["metadata"], note=False)
    session.get("~configmaps/owner")
    session.patch(f"{W}/child", {"metadata": {"finalizers": None}}, note=False)
    session.until_gone("~configmaps/owner")


@case("P1", "Garbage collector should not delete dependents that have both valid owner and owner that's waiting")
def a_second_owner_keeps_a_dependent(session: ApiSession) -> None:
    first = session.post("~configmaps", config_map("first"), note=False)
    second = session.post("~configmaps", config_map("second"), note=False)
    references = [owner(first, blockOwnerDeletion=True), owner(second)]
    session.post("~configmaps", config_map("child", ownerReferences=references), note=False)
    session.delete("~configmaps/first", {"propagationPolicy": "Foreground"})
    session.until_gone("~configmaps/first")
    left = session.until(
        "~configmaps/child", lambda reported: len(reported["metadata"]["ownerReferences"]) == 1, note=False
    )
    assert left["metadata"]["ownerReferences"][0]["name"] == "second"
    session.delete("~configmaps/second")
    session.until_gone("~configmaps/child")


@case("P1", "Garbage collector should not be blocked by dependency circle")
def circles_of_owners(session: ApiSession) -> None:
    made = [session.post("~configmaps", config_map(name), note=False) for name in ("a", "b", "c")]
    for one, other in ((0, 1), (1, 2), (2, 0)):
        reference = owner(made[other], blockOwnerDeletion=True)
        session.patch(f"~configmaps/{'abc'[one]}", {"metadata": {"ownerReferences": [reference]}}, note=False)
    session.delete("~configmaps/a", {"propagationPolicy": "Foreground"})
    for name in "abc":
        session.until_gone(f"~configmaps/{name}")


@case("P1")
def an_absent_owner_is_collected(session: ApiSession) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "11111111-1111-1111-1111-111111111111"}
    session.post("~configmaps", config_map("child", ownerReferences=[ghost]), note=False)
    session.until_gone("~configmaps/child")


@case("P1")
def an_owner_of_an_unknown_kind_is_left_alone(session: ApiSession) -> None:
    ghost = {
        "apiVersion": "no.such.group/v1",
        "kind": "Ghost",
        "name": "ghost",
        "uid": "11111111-1111-1111-1111-111111111111",
    }
    session.post("~configmaps", config_map("child", ownerReferences=[ghost]), note=False)
    made = session.post("~configmaps", config_map("owner"), note=False)
    session.post("~configmaps", config_map("other", ownerReferences=[owner(made)]), note=False)
    session.delete("~configmaps/owner")
    session.until_gone("~configmaps/other")
    session.get("~configmaps/child")


@case("P1")
def three_generations(session: ApiSession) -> None:
    collector_knows_widgets(session)
    made = session.post(L, loose("a"), note=False)
    made = session.post(L, loose("b", metadata={"ownerReferences": [owner(made)]}), note=False)
    session.post("~configmaps", config_map("c", ownerReferences=[owner(made)]), note=False)
    session.delete(f"{L}/a")
    session.until_gone("~configmaps/c")


# ---- namespaces


@case("P0", "Namespaces should ensure that all services are removed when a namespace is deleted")
def namespace_life(session: ApiSession) -> None:
    name = "namespace-life-x"
    made = session.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made["status"]["phase"] == "Active"
    assert made["spec"]["finalizers"] == ["kubernetes"]
    here, customs = f"/api/v1/namespaces/{name}", f"/apis/{GROUP}/v1/namespaces/{name}/widgets"
    session.post(f"{here}/configmaps", config_map(), note=False)
    session.post(customs, widget(), note=False)
    reported = session.delete(here)
    assert reported["status"]["phase"] == "Terminating"
    session.until_gone(here)
    assert session.get(f"{here}/configmaps")["items"] == []
    assert session.get(customs)["items"] == []
    session.post("/api/v1/namespaces", {"metadata": {"name": name}})


@case("P0")
def a_terminating_namespace_takes_nothing_new(session: ApiSession) -> None:
    session.post("~configmaps", config_map(finalizers=HOLD), note=False)
    session.delete(f"/api/v1/namespaces/{session.ns}", note=False)
    reported = session.post("~configmaps", config_map("two"), want=403)
    assert reported.causes[0]["reason"] == "NamespaceTerminating"
    session.post(W, widget(), want=403)
    session.patch("~configmaps/one", {"data": {"k": "w"}}, note=False)

    def remaining(reported: Any) -> bool:
        kinds = {one["type"]: one["status"] for one in reported["status"].get("conditions", [])}
        return kinds.get("NamespaceFinalizersRemaining") == "True"

    reported = session.until(f"/api/v1/namespaces/{session.ns}", remaining, note=False)
    session.note(
        "conditions",
        sorted([one["type"], one["status"], one["reason"], one["message"]] for one in reported["status"]["conditions"]),
    )
    session.patch("~configmaps/one", {"metadata": {"finalizers": None}}, note=False)
    session.until_gone(f"/api/v1/namespaces/{session.ns}")


@case("P1", "Namespaces should apply a finalizer to a Namespace")
def namespace_finalize(session: ApiSession) -> None:
    path = f"/api/v1/namespaces/{session.ns}"
    current = session.get(path)
    current.body["spec"]["finalizers"] = ["kubernetes", "conformance.test/hold"]
    session.put(f"{path}/finalize", current.body)
    session.patch(path, {"spec": {"finalizers": []}})
    session.delete(path)
    reported = session.until(
        path, lambda reported: reported["spec"].get("finalizers") == ["conformance.test/hold"], note=False
    )
    reported.body["spec"]["finalizers"] = []
    session.put(f"{path}/finalize", reported.body, note=False)
    session.until_gone(path)


@case("P1", "Namespaces should apply changes to a namespace status")
def namespace_status(session: ApiSession) -> None:
    path = f"/api/v1/namespaces/{session.ns}"
    condition = {
        "type": "StatusPatch",
        "status": "True",
        "reason": "E2E",
        "message": "m",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    session.patch(f"{path}/status", {"status": {"conditions": [condition]}}, note=False)
    session.get(f"{path}/status")
    session.patch(path, {"metadata": {"labels": {"a": "b"}}})


@case("P1")
def standing_namespaces(session: ApiSession) -> None:
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        reported = session.get(f"/api/v1/namespaces/{name}", note=False)
        assert reported["metadata"]["labels"]["kubernetes.io/metadata.name"] == name
    for name in ("default", "kube-system", "kube-public"):
        session.delete(f"/api/v1/namespaces/{name}", want=403)


@case("P1", "ServiceAccounts should guarantee kube-root-ca.crt exist in any namespace")
def what_a_namespace_is_given(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200)
    reported = session.until("~configmaps/kube-root-ca.crt", lambda reported: reported.code == 200, note=False)
    session.note("keys", [sorted(reported["data"]), reported["metadata"].get("annotations")])
    session.delete("~serviceaccounts/default", note=False)
    session.delete("~configmaps/kube-root-ca.crt", note=False)
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200)
    session.until("~configmaps/kube-root-ca.crt", lambda reported: reported.code == 200, note=False)


# ---- pods


@case("P1", "Pods should be submitted and removed")
def pod_deletion(session: ApiSession) -> None:
    """At once while unbound; bound, the kubelet has its grace."""
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    session.post("~pods", pod("loose"), note=False)
    session.delete("~pods/loose", note=False)
    session.get("~pods/loose", want=404)
    for name, body in (("bound", None), ("short", {"gracePeriodSeconds": 5}), ("now", {"gracePeriodSeconds": 0})):
        session.post("~pods", pod(name, nodeName="conformance-no-node"), note=False)
        reported = session.delete(f"~pods/{name}", body, note=False)
        session.note(
            name,
            [
                reported["kind"],
                reported["metadata"].get("deletionGracePeriodSeconds"),
                session.get(f"~pods/{name}", want=None, note=False).code if name == "now" else 0,
            ],
        )


@case("P1", "DisruptionController should block an eviction until the PDB is updated to allow it")
def eviction(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    session.post("~pods", pod("loose"), note=False)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "loose"}}
    session.post("~pods/loose/eviction", body)
    session.get("~pods/loose", want=404)
    session.post("~pods/loose/eviction", body, want=404)
    session.post("~pods/loose/eviction", body | {"metadata": {"name": "other"}}, want=400)


@case("P1", "Pods binding")
def binding(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    session.post("~pods", pod(), note=False)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "one", "annotations": {"a": "b"}},
        "target": {"kind": "Node", "name": "conformance-no-node"},
    }
    session.post("~pods/one/binding", body)
    reported = session.get("~pods/one", want=None, note=False)
    if reported.code == 200:  # the pod garbage collector of a real cluster may have been quicker
        assert reported["spec"]["nodeName"] == "conformance-no-node"
        assert reported["metadata"]["annotations"] == {"a": "b"}
    session.post("~pods/one/binding", body, want=409)
    session.post("~pods/two/binding", body | {"metadata": {"name": "two"}}, want=404)
    session.post("~pods", pod("three"), note=False)
    session.post(
        "~pods/three/binding", body | {"metadata": {"name": "three"}, "target": {"kind": "Tree", "name": "x"}}, want=500
    )
    session.post(
        "~pods/three/binding", body | {"metadata": {"name": "three"}, "target": {"kind": "Node", "name": ""}}, want=500
    )


@case("P1")
def pod_streams(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    session.post("~pods", pod(), note=False)
    session.get("~pods/none/log", want=404)
    session.get("~pods/one/log", want=400, container="none")
