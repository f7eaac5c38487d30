"""Deletion: finalizers, preconditions, collections, garbage collection, namespaces."""

from typing import Any

from tests.conformance.catalogue import case, rows
from tests.conformance.talk import Talk
from tests.conformance.things import GROUP, L, W, config_map, loose, owner, pod, widget

HOLD = ["conformance.test/hold"]


@case("P0")
def delete_answers(talk: Talk) -> None:
    """A Status for most kinds, the object for some."""
    talk.post(W, widget(), note=False)
    reported = talk.delete(f"{W}/one")
    assert reported["kind"] == "Status"
    assert reported["status"] == "Success"
    talk.post("~configmaps", config_map(), note=False)
    talk.delete("~configmaps/one")
    talk.post(
        "~services", {"metadata": {"name": "x"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}, note=False
    )
    talk.delete("~services/x")
    talk.post("~serviceaccounts", {"metadata": {"name": "x"}}, note=False)
    talk.delete("~serviceaccounts/x")


@case("P0")
def finalizers_hold_an_object(talk: Talk) -> None:
    talk.post(W, widget(metadata={"finalizers": [*HOLD, "conformance.test/other"]}))
    reported = talk.delete(f"{W}/one")
    assert reported["metadata"]["deletionTimestamp"]
    assert reported["metadata"]["deletionGracePeriodSeconds"] == 0
    assert reported["metadata"]["generation"] == 2
    again = talk.delete(f"{W}/one")
    assert again["metadata"]["generation"] == 2
    talk.patch(
        f"{W}/one", {"metadata": {"finalizers": [*HOLD, "conformance.test/other", "conformance.test/new"]}}, want=422
    )
    talk.patch(f"{W}/one", {"spec": {"size": 5}})
    talk.patch(f"{W}/one/status", {"status": {"phase": "Going"}})
    talk.patch(f"{W}/one", {"metadata": {"deletionTimestamp": None}})
    talk.post(W, widget(), want=409)
    talk.patch(f"{W}/one", {"metadata": {"finalizers": HOLD}})
    talk.patch(f"{W}/one", {"metadata": {"finalizers": []}})
    talk.get(f"{W}/one", want=404)


@case("P0")
def finalizers_removed_with_a_test(talk: Talk) -> None:
    """As Kopf does it."""
    made = talk.post(W, widget(metadata={"finalizers": HOLD}))
    talk.delete(f"{W}/one")
    patch = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": made.rv},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    kind = "application/json-patch+json"
    talk.patch(f"{W}/one", patch, kind=kind, want=422)
    patch[0]["value"] = talk.get(f"{W}/one", note=False).rv
    talk.patch(f"{W}/one", patch, kind=kind)
    talk.get(f"{W}/one", want=404)


def preconditions(talk: Talk, body: Any, code: int) -> None:
    made = talk.post(W, widget())
    text = {"uid": made["metadata"]["uid"], "rv": made.rv}
    filled = {key: text.get(value, value) for key, value in body.items()}
    reported = talk.delete(f"{W}/one", {"preconditions": filled}, want=code, note=False)
    talk.note("reason", [reported.reason, reported.message.split(". ")[0]])


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


def refused_delete(talk: Talk, body: Any, query: dict[str, Any], code: int) -> None:
    talk.post(W, widget(), note=False)
    talk.delete(f"{W}/one", body, want=code, **query)
    talk.get(f"{W}/one")


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
def delete_a_collection(talk: Talk) -> None:
    for i in range(4):
        talk.post(
            W,
            widget(f"w{i}", spec={"color": "blue" if i == 3 else "red"}, metadata={"labels": {"half": str(i % 2)}}),
            note=False,
        )
    reported = talk.delete(W, labelSelector="half=0")
    assert sorted(reported.names) == ["w0", "w2"]
    talk.delete(W, fieldSelector="spec.color=blue")
    assert talk.get(W).names == ["w1"]
    talk.post("~configmaps", config_map(finalizers=HOLD), note=False)
    reported = talk.delete("~configmaps", fieldSelector="metadata.name=one")
    talk.get("~configmaps/one")
    talk.patch("~configmaps/one", {"metadata": {"finalizers": None}}, note=False)
    assert talk.delete(W).names == ["w1"]
    assert talk.delete(W)["items"] == []


# ---- garbage


def collector_knows_widgets(talk: Talk) -> None:
    """A real garbage collector looks for new resources every half minute."""

    def probe() -> None:
        made = talk.post("~configmaps", config_map("probe-owner"), note=False)
        talk.post(W, widget("probe", metadata={"ownerReferences": [owner(made)]}), note=False)
        talk.post(L, loose("probe", metadata={"ownerReferences": [owner(made)]}), note=False)
        talk.delete("~configmaps/probe-owner", note=False)
        talk.until_gone(f"{W}/probe", note=False, patience_s=60)
        talk.until_gone(f"{L}/probe", note=False, patience_s=60)

    talk.server.once("collector", probe)


def family(talk: Talk, **more: Any) -> Any:
    """An owner and two dependents, one of them custom."""
    collector_knows_widgets(talk)
    made = talk.post("~configmaps", config_map("owner"), note=False)
    reference = owner(made, **more)
    talk.post("~configmaps", config_map("child", ownerReferences=[reference]), note=False)
    talk.post(W, widget("child", metadata={"ownerReferences": [reference]}), note=False)
    return made


@case("P1", "Garbage collector should support cascading deletion of custom resources")
def background_deletion(talk: Talk) -> None:
    family(talk)
    talk.delete("~configmaps/owner", {"propagationPolicy": "Background"})
    talk.get("~configmaps/owner", want=404)
    talk.until_gone("~configmaps/child")
    talk.until_gone(f"{W}/child")


@case("P1", "Garbage collector should orphan pods created by rc if delete options say so")
def orphaning_deletion(talk: Talk) -> None:
    family(talk)
    reported = talk.delete("~configmaps/owner", {"propagationPolicy": "Orphan"})
    assert reported["metadata"]["finalizers"] == ["orphan"]
    talk.until_gone("~configmaps/owner")
    assert "ownerReferences" not in talk.get("~configmaps/child", note=False)["metadata"]
    assert "ownerReferences" not in talk.get(f"{W}/child", note=False)["metadata"]


@case("P1", "Garbage collector should keep the rc around until all its pods are deleted if the deleteOptions says so")
def foreground_deletion(talk: Talk) -> None:
    collector_knows_widgets(talk)
    made = talk.post("~configmaps", config_map("owner"), note=False)
    reference = owner(made, blockOwnerDeletion=True)
    talk.post(W, widget("child", metadata={"ownerReferences": [reference], "finalizers": HOLD}), note=False)
    reported = talk.delete("~configmaps/owner", {"propagationPolicy": "Foreground"})
    assert reported["metadata"]["finalizers"] == ["foregroundDeletion"]
    talk.until(f"{W}/child", lambda reported: "deletionTimestamp" in reported["metadata"], note=False)
    talk.get("~configmaps/owner")
    talk.patch(f"{W}/child", {"metadata": {"finalizers": None}}, note=False)
    talk.until_gone("~configmaps/owner")


@case("P1", "Garbage collector should not delete dependents that have both valid owner and owner that's waiting")
def a_second_owner_keeps_a_dependent(talk: Talk) -> None:
    first = talk.post("~configmaps", config_map("first"), note=False)
    second = talk.post("~configmaps", config_map("second"), note=False)
    references = [owner(first, blockOwnerDeletion=True), owner(second)]
    talk.post("~configmaps", config_map("child", ownerReferences=references), note=False)
    talk.delete("~configmaps/first", {"propagationPolicy": "Foreground"})
    talk.until_gone("~configmaps/first")
    left = talk.until(
        "~configmaps/child", lambda reported: len(reported["metadata"]["ownerReferences"]) == 1, note=False
    )
    assert left["metadata"]["ownerReferences"][0]["name"] == "second"
    talk.delete("~configmaps/second")
    talk.until_gone("~configmaps/child")


@case("P1", "Garbage collector should not be blocked by dependency circle")
def circles_of_owners(talk: Talk) -> None:
    made = [talk.post("~configmaps", config_map(name), note=False) for name in ("a", "b", "c")]
    for one, other in ((0, 1), (1, 2), (2, 0)):
        reference = owner(made[other], blockOwnerDeletion=True)
        talk.patch(f"~configmaps/{'abc'[one]}", {"metadata": {"ownerReferences": [reference]}}, note=False)
    talk.delete("~configmaps/a", {"propagationPolicy": "Foreground"})
    for name in "abc":
        talk.until_gone(f"~configmaps/{name}")


@case("P1")
def an_absent_owner_is_collected(talk: Talk) -> None:
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "11111111-1111-1111-1111-111111111111"}
    talk.post("~configmaps", config_map("child", ownerReferences=[ghost]), note=False)
    talk.until_gone("~configmaps/child")


@case("P1")
def an_owner_of_an_unknown_kind_is_left_alone(talk: Talk) -> None:
    ghost = {
        "apiVersion": "no.such.group/v1",
        "kind": "Ghost",
        "name": "ghost",
        "uid": "11111111-1111-1111-1111-111111111111",
    }
    talk.post("~configmaps", config_map("child", ownerReferences=[ghost]), note=False)
    made = talk.post("~configmaps", config_map("owner"), note=False)
    talk.post("~configmaps", config_map("other", ownerReferences=[owner(made)]), note=False)
    talk.delete("~configmaps/owner")
    talk.until_gone("~configmaps/other")
    talk.get("~configmaps/child")


@case("P1")
def three_generations(talk: Talk) -> None:
    collector_knows_widgets(talk)
    made = talk.post(L, loose("a"), note=False)
    made = talk.post(L, loose("b", metadata={"ownerReferences": [owner(made)]}), note=False)
    talk.post("~configmaps", config_map("c", ownerReferences=[owner(made)]), note=False)
    talk.delete(f"{L}/a")
    talk.until_gone("~configmaps/c")


# ---- namespaces


@case("P0", "Namespaces should ensure that all services are removed when a namespace is deleted")
def namespace_life(talk: Talk) -> None:
    name = "namespace-life-x"
    made = talk.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made["status"]["phase"] == "Active"
    assert made["spec"]["finalizers"] == ["kubernetes"]
    here, customs = f"/api/v1/namespaces/{name}", f"/apis/{GROUP}/v1/namespaces/{name}/widgets"
    talk.post(f"{here}/configmaps", config_map(), note=False)
    talk.post(customs, widget(), note=False)
    reported = talk.delete(here)
    assert reported["status"]["phase"] == "Terminating"
    talk.until_gone(here)
    assert talk.get(f"{here}/configmaps")["items"] == []
    assert talk.get(customs)["items"] == []
    talk.post("/api/v1/namespaces", {"metadata": {"name": name}})


@case("P0")
def a_terminating_namespace_takes_nothing_new(talk: Talk) -> None:
    talk.post("~configmaps", config_map(finalizers=HOLD), note=False)
    talk.delete(f"/api/v1/namespaces/{talk.ns}", note=False)
    reported = talk.post("~configmaps", config_map("two"), want=403)
    assert reported.causes[0]["reason"] == "NamespaceTerminating"
    talk.post(W, widget(), want=403)
    talk.patch("~configmaps/one", {"data": {"k": "w"}}, note=False)

    def remaining(reported: Any) -> bool:
        kinds = {one["type"]: one["status"] for one in reported["status"].get("conditions", [])}
        return kinds.get("NamespaceFinalizersRemaining") == "True"

    reported = talk.until(f"/api/v1/namespaces/{talk.ns}", remaining, note=False)
    talk.note(
        "conditions",
        sorted([one["type"], one["status"], one["reason"], one["message"]] for one in reported["status"]["conditions"]),
    )
    talk.patch("~configmaps/one", {"metadata": {"finalizers": None}}, note=False)
    talk.until_gone(f"/api/v1/namespaces/{talk.ns}")


@case("P1", "Namespaces should apply a finalizer to a Namespace")
def namespace_finalize(talk: Talk) -> None:
    path = f"/api/v1/namespaces/{talk.ns}"
    current = talk.get(path)
    current.body["spec"]["finalizers"] = ["kubernetes", "conformance.test/hold"]
    talk.put(f"{path}/finalize", current.body)
    talk.patch(path, {"spec": {"finalizers": []}})
    talk.delete(path)
    reported = talk.until(
        path, lambda reported: reported["spec"].get("finalizers") == ["conformance.test/hold"], note=False
    )
    reported.body["spec"]["finalizers"] = []
    talk.put(f"{path}/finalize", reported.body, note=False)
    talk.until_gone(path)


@case("P1", "Namespaces should apply changes to a namespace status")
def namespace_status(talk: Talk) -> None:
    path = f"/api/v1/namespaces/{talk.ns}"
    condition = {
        "type": "StatusPatch",
        "status": "True",
        "reason": "E2E",
        "message": "m",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    talk.patch(f"{path}/status", {"status": {"conditions": [condition]}}, note=False)
    talk.get(f"{path}/status")
    talk.patch(path, {"metadata": {"labels": {"a": "b"}}})


@case("P1")
def standing_namespaces(talk: Talk) -> None:
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        reported = talk.get(f"/api/v1/namespaces/{name}", note=False)
        assert reported["metadata"]["labels"]["kubernetes.io/metadata.name"] == name
    for name in ("default", "kube-system", "kube-public"):
        talk.delete(f"/api/v1/namespaces/{name}", want=403)


@case("P1", "ServiceAccounts should guarantee kube-root-ca.crt exist in any namespace")
def what_a_namespace_is_given(talk: Talk) -> None:
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200)
    reported = talk.until("~configmaps/kube-root-ca.crt", lambda reported: reported.code == 200, note=False)
    talk.note("keys", [sorted(reported["data"]), reported["metadata"].get("annotations")])
    talk.delete("~serviceaccounts/default", note=False)
    talk.delete("~configmaps/kube-root-ca.crt", note=False)
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200)
    talk.until("~configmaps/kube-root-ca.crt", lambda reported: reported.code == 200, note=False)


# ---- pods


@case("P1", "Pods should be submitted and removed")
def pod_deletion(talk: Talk) -> None:
    """At once while unbound; bound, the kubelet has its grace."""
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    talk.post("~pods", pod("loose"), note=False)
    talk.delete("~pods/loose", note=False)
    talk.get("~pods/loose", want=404)
    for name, body in (("bound", None), ("short", {"gracePeriodSeconds": 5}), ("now", {"gracePeriodSeconds": 0})):
        talk.post("~pods", pod(name, nodeName="conformance-no-node"), note=False)
        reported = talk.delete(f"~pods/{name}", body, note=False)
        talk.note(
            name,
            [
                reported["kind"],
                reported["metadata"].get("deletionGracePeriodSeconds"),
                talk.get(f"~pods/{name}", want=None, note=False).code if name == "now" else 0,
            ],
        )


@case("P1", "DisruptionController should block an eviction until the PDB is updated to allow it")
def eviction(talk: Talk) -> None:
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    talk.post("~pods", pod("loose"), note=False)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "loose"}}
    talk.post("~pods/loose/eviction", body)
    talk.get("~pods/loose", want=404)
    talk.post("~pods/loose/eviction", body, want=404)
    talk.post("~pods/loose/eviction", body | {"metadata": {"name": "other"}}, want=400)


@case("P1", "Pods binding")
def binding(talk: Talk) -> None:
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    talk.post("~pods", pod(), note=False)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "one", "annotations": {"a": "b"}},
        "target": {"kind": "Node", "name": "conformance-no-node"},
    }
    talk.post("~pods/one/binding", body)
    reported = talk.get("~pods/one", want=None, note=False)
    if reported.code == 200:  # the pod garbage collector of a real cluster may have been quicker
        assert reported["spec"]["nodeName"] == "conformance-no-node"
        assert reported["metadata"]["annotations"] == {"a": "b"}
    talk.post("~pods/one/binding", body, want=409)
    talk.post("~pods/two/binding", body | {"metadata": {"name": "two"}}, want=404)
    talk.post("~pods", pod("three"), note=False)
    talk.post(
        "~pods/three/binding", body | {"metadata": {"name": "three"}, "target": {"kind": "Tree", "name": "x"}}, want=500
    )
    talk.post(
        "~pods/three/binding", body | {"metadata": {"name": "three"}, "target": {"kind": "Node", "name": ""}}, want=500
    )


@case("P1")
def pod_streams(talk: Talk) -> None:
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    talk.post("~pods", pod(), note=False)
    talk.get("~pods/none/log", want=404)
    talk.get("~pods/one/log", want=400, container="none")
