"""Patches of every kind, and server-side apply with its managed fields."""

from typing import Any

from tests.conformance.api_session import APPLY, JSON_PATCH, MERGE, STRATEGIC, ApiSession
from tests.conformance.catalogue import case, rows
from tests.conformance.things import GROUP, L, W, config_map, deployment, loose, pod_spec, widget


def patched(session: ApiSession, path: str, body: dict[str, Any], patch: Any, kind: str, code: int = 200) -> None:
    made = session.post(path, body, note=False)
    name = made["metadata"]["name"]
    session.patch(f"{path}/{name}", patch, kind=kind, want=code)
    session.get(f"{path}/{name}")


FULL = widget(
    spec={
        "tags": ["a", "b"],
        "labels": {"x": "y"},
        "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}],
        "nested": {"a": "z"},
    }
)
rows(
    "P0",
    "patches",
    "merge patch",
    [
        ("changes", W, FULL, {"spec": {"size": 7}}, MERGE),
        ("null deletes", W, FULL, {"spec": {"labels": {"x": None}, "note": None}}, MERGE),
        ("null brings the default back", W, FULL, {"spec": {"color": None}}, MERGE),
        ("lists replace", W, FULL, {"spec": {"tags": ["c"], "ports": [{"name": "c", "port": 3}]}}, MERGE),
        ("of the labels", W, FULL, {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}, MERGE),
        ("to an invalid value", W, FULL, {"spec": {"size": -1}}, MERGE, 422),
        ("to a wrong type", W, FULL, {"spec": {"size": "three"}}, MERGE, 422),
        ("removing what is required", W, FULL, {"spec": {"size": None}}, MERGE, 422),
        ("of the name", W, FULL, {"metadata": {"name": "two"}}, MERGE, 400),
        ("of the kind", W, FULL, {"kind": "Other"}, MERGE, 422),
        ("of the uid", W, FULL, {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}}, MERGE, 422),
        ("with a stale version", W, FULL, {"metadata": {"resourceVersion": "1"}, "spec": {"size": 7}}, MERGE, 409),
        ("that is a list", W, FULL, [1], MERGE, 400),
        ("broken", W, FULL, b"{", MERGE, 400),
        ("of a built-in", "~configmaps", config_map(), {"data": {"k": None, "l": "m"}}, MERGE),
        ("of a built-in to a wrong type", "~configmaps", config_map(), {"data": "x"}, MERGE, 422),
        ("of a built-in with unknown fields", "~configmaps", config_map(), {"odd": 1}, MERGE),
        ("setting status through main", W, FULL, {"status": {"a": 1}}, MERGE),
    ],
    patched,
)
rows(
    "P0",
    "patches",
    "json patch",
    [
        ("replace", W, FULL, [{"op": "replace", "path": "/spec/size", "value": 7}], JSON_PATCH),
        (
            "add and remove",
            W,
            FULL,
            [{"op": "add", "path": "/spec/tags/-", "value": "c"}, {"op": "remove", "path": "/spec/labels"}],
            JSON_PATCH,
        ),
        (
            "test holds",
            W,
            FULL,
            [{"op": "test", "path": "/spec/size", "value": 3}, {"op": "add", "path": "/spec/note", "value": "n"}],
            JSON_PATCH,
        ),
        (
            "test fails",
            W,
            FULL,
            [{"op": "add", "path": "/spec/note", "value": "n"}, {"op": "test", "path": "/spec/size", "value": 4}],
            JSON_PATCH,
            422,
        ),
        ("test of an absent path", W, FULL, [{"op": "test", "path": "/spec/none", "value": 4}], JSON_PATCH, 422),
        ("replace of nothing", W, FULL, [{"op": "replace", "path": "/spec/none", "value": 1}], JSON_PATCH),
        ("remove of nothing", W, FULL, [{"op": "remove", "path": "/spec/none"}], JSON_PATCH, 422),
        ("add below nothing", W, FULL, [{"op": "add", "path": "/spec/none/a", "value": 1}], JSON_PATCH, 422),
        (
            "move and copy",
            W,
            FULL,
            [
                {"op": "copy", "from": "/spec/nested/a", "path": "/spec/note"},
                {"op": "move", "from": "/spec/tags/0", "path": "/spec/tags/1"},
            ],
            JSON_PATCH,
        ),
        ("unknown op", W, FULL, [{"op": "wish", "path": "/spec/size"}], JSON_PATCH, 422),
        ("not a list", W, FULL, {"op": "remove"}, JSON_PATCH, 400),
        ("to an invalid value", W, FULL, [{"op": "replace", "path": "/spec/size", "value": 1000}], JSON_PATCH, 422),
        ("of a finalizer", W, FULL, [{"op": "add", "path": "/metadata/finalizers", "value": ["a.test/b"]}], JSON_PATCH),
        (
            "of a built-in",
            "~configmaps",
            config_map(),
            [{"op": "replace", "path": "/data/k", "value": "w"}],
            JSON_PATCH,
        ),
        (
            "with an escaped path",
            "~configmaps",
            config_map(annotations={"a/b": "c"}),
            [{"op": "replace", "path": "/metadata/annotations/a~1b", "value": "d"}],
            JSON_PATCH,
        ),
    ],
    patched,
)

TWO = deployment(paused=True, template={"metadata": {"labels": {"app": "a"}}, "spec": pod_spec(
    containers=[{"name": "a", "image": "i:1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "i:2"}],
    tolerations=[{"key": "k", "operator": "Exists"}], volumes=[{"name": "v", "emptyDir": {}}])})  # fmt: skip


def of_template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def strategic(session: ApiSession, patch: Any, code: int = 200) -> None:
    session.post("~apps/v1/deployments", TWO, note=False)
    reported = session.patch("~apps/v1/deployments/one", patch, kind=STRATEGIC, want=code, note=False)
    session.note("result", reported["spec"]["template"]["spec"] if code == 200 else reported.body)


rows(
    "P1",
    "patches",
    "strategic patch",
    [
        ("merges containers by name", of_template(containers=[{"name": "b", "image": "i:3"}])),
        ("adds a container", of_template(containers=[{"name": "c", "image": "i:3"}])),
        ("deletes a container", of_template(containers=[{"name": "a", "$patch": "delete"}])),
        ("replaces the list", of_template(containers=[{"name": "z", "image": "i:9"}, {"$patch": "replace"}])),
        ("replaces a map", {"spec": {"template": {"metadata": {"labels": {"app": "a", "$patch": "replace"}}}}}),
        (
            "orders elements",
            of_template(
                containers=[{"name": "b", "image": "i:3"}],
                **{"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]},
            ),
        ),
        (
            "retains keys",
            of_template(volumes=[{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]),
        ),
        ("atomic lists are replaced", of_template(tolerations=[{"key": "z", "operator": "Exists"}])),
        ("merges env of a container", of_template(containers=[{"name": "a", "env": [{"name": "Y", "value": "2"}]}])),
        ("without the merge key", of_template(containers=[{"image": "i:3"}]), 500),
        ("with null", of_template(tolerations=None)),
        ("with a bad directive", of_template(containers=[{"name": "a", "$patch": "wish"}]), 500),
    ],
    strategic,
)


@case("P0")
def strategic_patch_of_a_custom_resource_is_refused(session: ApiSession) -> None:
    session.post(W, widget())
    session.patch(f"{W}/one", {"spec": {"size": 4}}, kind=STRATEGIC, want=415)
    session.patch(f"{W}/one", {"spec": {"size": 4}}, kind="application/json", want=415)
    session.patch(f"{W}/one", {"spec": {"size": 4}}, kind=None, want=415)
    session.post("~configmaps", config_map())
    session.patch("~configmaps/one", {"data": {}}, kind="application/json", want=415)


@case("P1")
def strategic_finalizers_and_primitive_lists(session: ApiSession) -> None:
    session.post("~configmaps", config_map(finalizers=["a.test/x", "a.test/y"]))
    session.patch("~configmaps/one", {"metadata": {"finalizers": ["a.test/z"]}}, kind=STRATEGIC)
    session.patch(
        "~configmaps/one", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.test/x"]}}, kind=STRATEGIC
    )
    session.patch(
        "~configmaps/one", {"metadata": {"$setElementOrder/finalizers": ["a.test/z", "a.test/y"]}}, kind=STRATEGIC
    )


# ---- server-side apply


@case("P1", "ServerSideApply should create an applied object if it does not already exist")
def apply_creates(session: ApiSession) -> None:
    made = session.apply(
        f"{W}/one", widget(spec={"ports": [{"name": "a", "port": 1}], "tags": ["x"], "labels": {"l": "m"}}), want=201
    )
    assert made["metadata"]["managedFields"][0]["operation"] == "Apply"
    again = session.apply(
        f"{W}/one", widget(spec={"ports": [{"name": "a", "port": 1}], "tags": ["x"], "labels": {"l": "m"}})
    )
    assert again.rv == made.rv
    session.apply("~configmaps/one", config_map(), want=201)
    session.apply("~apps/v1/deployments/one", deployment(paused=True), want=201)


@case("P1", "ServerSideApply should work for subresources")
def apply_to_status(session: ApiSession) -> None:
    session.apply(f"{W}/one", widget(), want=201)
    body = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": "one"},
        "status": {"phase": "Good", "list": [{"a": 1}]},
    }
    session.apply(f"{W}/one/status", body, "controller")
    session.apply(f"{W}/one", widget(spec={"size": 5}) | {"status": {"phase": "Bad"}})
    session.apply(f"{W}/none/status", body | {"metadata": {"name": "none"}}, "controller", want=404)


@case("P1", "ServerSideApply should remove a field if it is owned but removed in the apply request")
def apply_removes_what_it_owned(session: ApiSession) -> None:
    session.apply(
        f"{W}/one",
        widget(
            spec={
                "note": "n",
                "labels": {"a": "b", "c": "d"},
                "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}],
                "tags": ["x", "y"],
            }
        ),
        want=201,
    )
    reported = session.apply(
        f"{W}/one", widget(spec={"labels": {"a": "b"}, "ports": [{"name": "b", "port": 2}], "tags": ["y"]})
    )
    assert "note" not in reported["spec"]
    assert reported["spec"]["labels"] == {"a": "b"}
    assert [port["name"] for port in reported["spec"]["ports"]] == ["b"]
    assert reported["spec"]["tags"] == ["y"]


@case(
    "P1",
    "ServerSideApply should not remove a field if an owner unsets the field but other managers still have ownership of the field",
)
def apply_leaves_what_others_own(session: ApiSession) -> None:
    session.apply(f"{W}/one", widget(spec={"note": "n", "tags": ["x", "y"]}), want=201)
    session.apply(f"{W}/one", widget(spec={"note": "n", "tags": ["y", "z"]}), "two")
    reported = session.apply(f"{W}/one", widget())
    assert reported["spec"]["note"] == "n"
    assert reported["spec"]["tags"] == ["y", "z"]
    reported = session.apply(f"{W}/one", widget(), "two")
    assert "note" not in reported["spec"]


@case("P1", "ServerSideApply should ignore conflict errors if force apply is used")
def apply_conflicts(session: ApiSession) -> None:
    session.apply(f"{W}/one", widget(spec={"note": "n"}), want=201)
    reported = session.apply(f"{W}/one", widget(spec={"size": 4, "note": "m"}), "two", want=409)
    assert {cause["reason"] for cause in reported.causes} == {"FieldManagerConflict"}
    reported = session.apply(f"{W}/one", widget(spec={"size": 4, "note": "m"}), "two", force=True)
    assert reported["spec"]["size"] == 4
    session.apply(f"{W}/one", widget(spec={"size": 3}), want=409)


@case("P1", "ServerSideApply should give up ownership of a field if forced applied by a controller")
def apply_conflicts_with_updates(session: ApiSession) -> None:
    session.apply(f"{W}/one", widget(), want=201)
    session.patch(f"{W}/one", {"spec": {"size": 9, "note": "hand"}}, fieldManager="hand")
    session.apply(f"{W}/one", widget(), want=409)
    session.apply(f"{W}/one", widget(spec={"size": 9}))
    session.apply(f"{W}/one", widget(spec={"size": 3}), force=True)
    session.put(f"{W}/one", session.get(f"{W}/one", note=False).body | {"spec": {"size": 5}}, fieldManager="put")
    session.get(f"{W}/one")


def refused_apply(session: ApiSession, path: str, body: Any, code: int, query: dict[str, Any]) -> None:
    session.patch(path, body, kind=APPLY, want=code, **query)


M = {"fieldManager": "one"}
rows(
    "P1",
    "patches",
    "apply refused",
    [
        ("without a manager", f"{W}/one", widget(), 422, {}),
        ("with managed fields", f"{W}/one", widget(metadata={"managedFields": [{"manager": "x"}]}), 400, M),
        ("of another name", f"{W}/one", widget("two"), 400, M),
        ("without a kind", f"{W}/one", {"spec": {"size": 1}}, 400, M),
        ("of another version", f"{W}/one", widget() | {"apiVersion": f"{GROUP}/v9"}, 400, M),
        ("of an invalid object", f"{W}/one", widget(spec={"size": 1000}), 422, M),
        ("of a wrong type", f"{W}/one", widget(spec={"size": "three"}), 500, M),
        (
            "of keys twice",
            f"{W}/one",
            widget(spec={"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}),
            500,
            M,
        ),
        ("of an item without its key", f"{W}/one", widget(spec={"ports": [{"port": 1}]}), 500, M),
        ("of a set twice", f"{W}/one", widget(spec={"tags": ["a", "a"]}), 500, M),
        ("in another namespace", f"{W}/one", widget(metadata={"namespace": "elsewhere"}), 400, M),
        (
            "built-in unknown field",
            "~configmaps/one",
            config_map() | {"odd": 1},
            500,
            M | {"fieldValidation": "Strict"},
        ),
        ("built-in of a wrong type", "~configmaps/one", config_map() | {"data": {"a": 1}}, 500, M),
    ],
    refused_apply,
)


@case("P1")
def force_is_for_apply_only(session: ApiSession) -> None:
    session.post(W, widget())
    session.patch(f"{W}/one", {"spec": {"size": 4}}, force=True, want=422)


@case("P1")
def managed_fields_of_writes(session: ApiSession) -> None:
    """Update entries, one for each manager, version and subresource."""
    made = session.post(
        W,
        widget(spec={"tags": ["a"], "ports": [{"name": "a", "port": 1}], "free": {"x": [1]}, "whole": {"k": "v"}}),
        fieldManager="creator",
    )
    session.patch(
        f"{W}/one",
        {"spec": {"size": 4, "tags": ["a", "b"]}, "metadata": {"labels": {"a": "b"}}},
        fieldManager="patcher",
    )
    session.patch(f"{W}/one/status", {"status": {"x": {"y": 1}}}, fieldManager="patcher")
    session.patch(f"{W}/one", {"spec": {"note": "n"}})
    session.put(
        f"{W}/one",
        made.body | {"metadata": {"name": "one", "resourceVersion": session.get(f"{W}/one", note=False).rv}},
        fieldManager="putter",
    )
    session.patch(
        f"{W}/one",
        {
            "metadata": {
                "finalizers": ["a.test/b"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}],
            }
        },
        fieldManager="owner",
    )


@case("P1")
def managed_fields_of_built_ins(session: ApiSession) -> None:
    session.post("~configmaps", config_map(labels={"a": "b"}), fieldManager="creator")
    session.patch("~configmaps/one", {"data": {"x": "y"}}, kind=STRATEGIC, fieldManager="patcher")
    session.post(
        "~services",
        {
            "metadata": {"name": "x"},
            "spec": {"clusterIP": "None", "ports": [{"port": 80, "name": "web"}], "selector": {"a": "b"}},
        },
    )
    session.post("~apps/v1/deployments", deployment(paused=True))


@case("P1")
def managed_fields_can_be_reset(session: ApiSession) -> None:
    session.post("~configmaps", config_map())
    reported = session.patch("~configmaps/one", {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in reported["metadata"]
    session.patch("~configmaps/one", {"data": {"x": "y"}})
    session.patch("~configmaps/one", {"metadata": {"managedFields": []}})


@case("P1")
def managed_fields_can_be_rewritten(session: ApiSession) -> None:
    """kubectl migrates from client-side apply so."""
    made = session.post("~configmaps", config_map(), fieldManager="kubectl-client-side-apply")
    entry = dict(made["metadata"]["managedFields"][0], manager="kubectl", operation="Apply")
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": made.rv},
    ]
    reported = session.patch("~configmaps/one", patch, kind=JSON_PATCH)
    assert reported["metadata"]["managedFields"][0]["operation"] == "Apply"
    assert (
        session.apply(
            "~configmaps/one", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}, "kubectl"
        ).body.get("data")
        is None
    )


@case("P1", "ServerSideApply should work for CRDs")
def apply_in_yaml_and_free_form(session: ApiSession) -> None:
    text = f"apiVersion: {GROUP}/v1\nkind: Loose\nmetadata:\n  name: one\n  finalizers: [a.test/x]\nspec:\n  list: [1, 2]\n  map: {{a: b}}\n  deep: [{{name: x}}]\n"
    session.patch(f"{L}/one", text, kind=APPLY, fieldManager="yaml", want=201)
    session.apply(f"{L}/one", loose(metadata={"finalizers": ["a.test/y"]}, spec={"map": {"c": "d"}}), "two")
    session.apply(f"{L}/one", loose(spec={"list": [3]}), "two", want=409)


@case("P1")
def apply_with_atomic_parts(session: ApiSession) -> None:
    session.apply(f"{W}/one", widget(spec={"whole": {"a": "b"}, "plain": [1, 2]}), want=201)
    session.apply(f"{W}/one", widget(spec={"whole": {"c": "d"}}), "two", want=409)
    session.apply(f"{W}/one", widget(spec={"whole": {"c": "d"}, "plain": [3]}), "two", force=True)


@case("P1")
def apply_to_keyed_lists_of_built_ins(session: ApiSession) -> None:
    path = "~apps/v1/deployments/one"
    session.apply(path, TWO, want=201)
    partly = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "one"},
        "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "i:9"}]}}},
    }
    session.apply(path, partly, "two", want=409)
    reported = session.apply(path, partly, "two", force=True, note=False)
    assert [one["image"] for one in reported["spec"]["template"]["spec"]["containers"]] == ["i:9", "i:2"]
    session.note(
        "managers",
        [
            [e["manager"], e["operation"]]
            for e in reported["metadata"]["managedFields"]
            if e["manager"] in ("one", "two")
        ],
    )
