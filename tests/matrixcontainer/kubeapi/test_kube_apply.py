"""Server-side apply and managed fields, as the public documentation of the rules tells them."""

import json
from typing import Any

import pytest

from matrixcontainer.kubeapi.patch.apply import merge
from matrixcontainer.kubeapi.patch.field_set import applied_paths, from_fields, path_text, to_fields
from matrixcontainer.kubeapi.patch.patches import strategic_patch
from matrixcontainer.kubeapi.schema.structural import Schema
from matrixcontainer.kubeapi.schema.types import schema_of
from tests.matrixcontainer.kubeapi.api_session import JSON_PATCH, SPEC, STRATEGIC, WIDGETS, ApiSession, a_widget

ONE = f"{WIDGETS}/one"
ROOT = Schema({"type": "object", "properties": {"spec": SPEC}})


def fields(obj: dict[str, Any], manager: str, subresource: str = "") -> dict[str, Any]:
    for entry in obj["metadata"].get("managedFields", []):
        if entry["manager"] == manager and entry.get("subresource", "") == subresource:
            return entry["fieldsV1"]
    return {}


async def test_apply_creates_and_owns(widgets: ApiSession) -> None:
    reported = await widgets.apply(
        ONE, a_widget(spec={"size": 3, "tags": ["x"], "ports": [{"name": "a", "port": 1}]}), "me"
    )
    assert reported.code == 201
    assert fields(reported.body, "me") == {
        "f:spec": {
            "f:size": {},
            "f:tags": {'v:"x"': {}},
            "f:ports": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:port": {}}},
        }
    }
    again = await widgets.apply(
        ONE, a_widget(spec={"size": 3, "tags": ["x"], "ports": [{"name": "a", "port": 1}]}), "me"
    )
    assert again.body["metadata"]["resourceVersion"] == reported.body["metadata"]["resourceVersion"]


async def test_conflict_names_fields_and_managers(widgets: ApiSession) -> None:
    await widgets.apply(ONE, a_widget(spec={"size": 3, "note": "n"}), "me")
    reported = await widgets.apply(ONE, a_widget(spec={"size": 4, "note": "m"}), "you")
    assert (reported.code, reported.body["reason"]) == (409, "Conflict")
    assert reported.body["message"] == 'Apply failed with 2 conflicts: conflicts with "me":\n- .spec.note\n- .spec.size'
    cause = reported.body["details"]["causes"][0]
    assert cause == {"reason": "FieldManagerConflict", "field": ".spec.note", "message": 'conflict with "me"'}
    one = await widgets.apply(ONE, a_widget(spec={"size": 4}), "you")
    assert one.body["message"] == 'Apply failed with 1 conflict: conflict with "me": .spec.size'


async def test_update_conflict_names_the_version(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget(), agent="kubectl/v1")
    reported = await widgets.apply(ONE, a_widget(spec={"size": 4}), "me")
    assert 'conflict with "kubectl" using example.test/v1: .spec.size' in reported.body["message"]


async def test_equal_values_are_shared_and_force_takes(widgets: ApiSession) -> None:
    await widgets.apply(ONE, a_widget(spec={"size": 3, "note": "n"}), "me")
    shared = await widgets.apply(ONE, a_widget(spec={"size": 3}), "you")
    assert shared.code == 200
    taken = await widgets.apply(ONE, a_widget(spec={"size": 5}), "you", force=True)
    assert taken.body["spec"]["size"] == 5
    assert fields(taken.body, "me") == {"f:spec": {"f:note": {}}}
    assert fields(taken.body, "you") == {"f:spec": {"f:size": {}}}


async def test_unapplied_fields_are_removed_unless_owned(widgets: ApiSession) -> None:
    await widgets.apply(ONE, a_widget(spec={"size": 3, "note": "n", "color": "blue", "labels": {"a": "1"}}), "me")
    await widgets.apply(ONE, a_widget(spec={"size": 3, "note": "n"}), "you")
    reported = await widgets.apply(ONE, a_widget(spec={"size": 3}), "me")
    assert reported.body["spec"] == {"size": 3, "note": "n", "color": "red"}


async def test_list_items_have_owners(widgets: ApiSession) -> None:
    await widgets.apply(ONE, a_widget(spec={"size": 3, "ports": [{"name": "a", "port": 1}], "tags": ["x"]}), "me")
    await widgets.apply(ONE, a_widget(spec={"size": 3, "ports": [{"name": "b", "port": 2}], "tags": ["y"]}), "you")
    body = (await widgets.get(ONE)).body
    assert (body["spec"]["ports"], body["spec"]["tags"]) == (
        [{"name": "a", "port": 1}, {"name": "b", "port": 2}],
        ["x", "y"],
    )
    reported = await widgets.apply(ONE, a_widget(spec={"size": 3}), "me")
    assert (reported.body["spec"]["ports"], reported.body["spec"]["tags"]) == ([{"name": "b", "port": 2}], ["y"])


async def test_updates_take_ownership_of_what_they_change(widgets: ApiSession) -> None:
    await widgets.apply(ONE, a_widget(spec={"size": 3, "note": "n"}), "me")
    reported = await widgets.patch(ONE, {"spec": {"size": 9}}, fieldManager="editor")
    assert fields(reported.body, "me") == {"f:spec": {"f:note": {}}}
    assert fields(reported.body, "editor") == {"f:spec": {"f:size": {}}}
    assert (await widgets.apply(ONE, a_widget(spec={"size": 3, "note": "n"}), "me")).code == 409


async def test_status_and_main_own_apart(widgets: ApiSession) -> None:
    await widgets.apply(ONE, a_widget(status={"size": 9}), "me")
    reported = await widgets.apply(f"{ONE}/status", a_widget(spec={"size": 80}, status={"size": 3}), "me")
    assert (reported.body["spec"]["size"], reported.body["status"]) == (3, {"size": 3})
    assert fields(reported.body, "me", "status") == {"f:status": {"f:size": {}}}
    assert fields(reported.body, "me") == {"f:spec": {"f:size": {}}}


async def test_finalizers_are_a_set_and_metadata_granular(widgets: ApiSession) -> None:
    meta = {"finalizers": ["example.test/a"], "labels": {"l": "1"}, "annotations": {"x": "1"}}
    await widgets.apply(ONE, a_widget(metadata=meta), "me")
    await widgets.apply(ONE, a_widget(metadata={"finalizers": ["example.test/b"], "labels": {"m": "2"}}), "you")
    meta = (await widgets.get(ONE)).body["metadata"]
    assert meta["finalizers"] == ["example.test/a", "example.test/b"]
    assert meta["labels"] == {"l": "1", "m": "2"}


@pytest.mark.parametrize(
    ("body", "query", "code", "text"),
    [
        (a_widget(), {"fieldManager": ""}, 422, "fieldManager"),
        (a_widget(metadata={"managedFields": [{"manager": "x"}]}), {}, 400, "managedFields must be nil"),
        (a_widget("two"), {}, 400, "does not match the name on the URL"),
        (a_widget(spec={"size": 0}), {}, 422, "greater than or equal to 1"),
        (a_widget(spec={"size": 1, "x": 1}), {}, 500, ".spec.x: field not declared in schema"),
        (a_widget(spec={"size": "one"}), {}, 500, '.spec.size: expected numeric (int or float), got "one"'),
        (a_widget(spec={"size": 1, "tags": ["a", "a"]}), {}, 500, '.spec.tags: duplicate entries for key [="a"]'),
        ({"metadata": {"name": "one"}}, {}, 400, "invalid object type: /, Kind="),
    ],
)
async def test_refused_applies(widgets: ApiSession, body: dict, query: dict, code: int, text: str) -> None:
    reported = await widgets.apply(ONE, body, query.pop("fieldManager", "me"), **query)
    assert reported.code == code
    assert text in reported.body["message"]


async def test_force_is_for_apply_only(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget())
    assert (await widgets.patch(ONE, {}, force=True)).code == 422


async def test_apply_takes_real_yaml(widgets: ApiSession) -> None:
    text = b"apiVersion: example.test/v1\nkind: Widget\nmetadata: {name: one}\nspec:\n  size: 3\n  note: 2020-01-01\n"
    reported = await widgets.apply(ONE, text, "me")
    assert (reported.code, reported.body["spec"]["note"]) == (201, "2020-01-01")


async def test_managed_fields_can_be_rewritten_and_reset(widgets: ApiSession) -> None:
    made = (await widgets.post(WIDGETS, a_widget())).body
    entries = made["metadata"]["managedFields"]
    entries[0]["manager"] = "renamed"
    revision = made["metadata"]["resourceVersion"]
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": revision},
    ]
    reported = await widgets.patch(ONE, patch, JSON_PATCH)
    assert (reported.code, reported.body["metadata"]["managedFields"][0]["manager"]) == (200, "renamed")
    assert reported.body["metadata"]["resourceVersion"] != revision
    reset = await widgets.patch(ONE, {"metadata": {"managedFields": [{}]}})
    assert "managedFields" not in reset.body["metadata"]


async def test_old_update_entries_are_merged(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget())
    for index in range(14):
        await widgets.patch(ONE, {"metadata": {"labels": {f"l{index}": "x"}}}, fieldManager=f"m{index}")
    managers = [e["manager"] for e in (await widgets.get(ONE)).body["metadata"]["managedFields"]]
    assert len(managers) <= 11
    assert "ancient-changes" in managers


async def test_apply_on_a_builtin(session: ApiSession) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments/web"
    body: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]}]},
            },
        },
    }
    assert (await session.apply(path, body, "me")).code == 201
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2"
    reported = await session.apply(path, body, "me")
    assert reported.body["spec"]["template"]["spec"]["containers"][0]["image"] == "i:2"
    assert reported.body["metadata"]["generation"] == 2
    assert len(reported.body["spec"]["template"]["spec"]["containers"][0]["ports"]) == 1
    container = {"name": "side", "image": "s:1"}
    patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
    merged = await session.patch(path, patch, STRATEGIC)
    names = [c["name"] for c in merged.body["spec"]["template"]["spec"]["containers"]]
    assert sorted(names) == ["c", "side"]


def test_paths_and_trees_go_both_ways() -> None:
    obj = {"spec": {"size": 1, "tags": ["a"], "ports": [{"name": "x", "port": 1}], "labels": {"q": "r"}}}
    paths = applied_paths(obj, ROOT)
    assert from_fields(to_fields(paths)) == paths
    assert sorted(map(path_text, paths)) == [
        ".spec.labels.q",
        '.spec.ports[name="x"]',
        '.spec.ports[name="x"].name',
        '.spec.ports[name="x"].port',
        ".spec.size",
        '.spec.tags[="a"]',
    ]


@pytest.mark.parametrize(
    ("live", "config", "merged"),
    [
        ({"spec": {"size": 1}}, {"spec": {"note": "n"}}, {"spec": {"size": 1, "note": "n"}}),
        ({"spec": {"tags": ["a"]}}, {"spec": {"tags": ["b", "a"]}}, {"spec": {"tags": ["a", "b"]}}),
        (
            {"spec": {"ports": [{"name": "a", "port": 1}]}},
            {"spec": {"ports": [{"name": "b", "port": 2}, {"name": "a", "port": 3}]}},
            {"spec": {"ports": [{"name": "a", "port": 3}, {"name": "b", "port": 2}]}},
        ),
        ({"free": [1, 2]}, {"free": [3]}, {"free": [3]}),
    ],
)
def test_merge(live: dict, config: dict, merged: dict) -> None:
    assert merge(live, config, ROOT) == merged


POD = schema_of("core.v1.Pod")


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"a": 1}, {"a": None}, {}),
        (
            {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}},
            {"spec": {"containers": [{"name": "a", "image": "2"}]}},
            {"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]}},
        ),
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
            {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
            {"spec": {"containers": [{"name": "b"}]}},
        ),
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
            {"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}},
            {"spec": {"containers": [{"name": "c"}]}},
        ),
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
            {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}], "containers": [{"name": "c"}]}},
            {"spec": {"containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]}},
        ),
        ({"metadata": {"finalizers": ["a"]}}, {"metadata": {"finalizers": ["b"]}}, {"metadata": {"finalizers": ["b", "a"]}}),
        (
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
            {"metadata": {"finalizers": ["b"]}},
        ),
        (
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}},
            {"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}},
        ),
        ({"spec": {"nodeSelector": {"a": "b"}}}, {"spec": {"$patch": "replace", "x": 1}}, {"spec": {"x": 1}}),
        ({"spec": {"tolerations": [{"key": "a"}]}}, {"spec": {"tolerations": [{"key": "b"}]}}, {"spec": {"tolerations": [{"key": "b"}]}}),
    ],
)  # fmt: skip
def test_strategic_merge(before: dict, patch: dict, after: dict) -> None:
    assert strategic_patch(before, patch, POD) == after


async def test_unapplied_map_is_removed_with_its_content(widgets: ApiSession) -> None:
    """Defaults below go too; metadata stays, and so does what anybody else holds."""
    meta = {"labels": {"l": "1"}, "finalizers": ["example.test/a"]}
    await widgets.apply(ONE, a_widget(metadata=meta, spec={"size": 1, "ports": [{"name": "a", "port": 1}]}), "me")
    await widgets.apply(ONE, a_widget(spec={"size": 1, "tags": ["x"]}), "you")
    reported = await widgets.apply(
        ONE, {"apiVersion": "example.test/v1", "kind": "Widget", "metadata": {"name": "one"}}, "me"
    )
    assert reported.code == 200
    assert "labels" not in reported.body["metadata"]
    assert "finalizers" not in reported.body["metadata"]
    assert (reported.body["spec"].get("ports"), reported.body["spec"]["size"], reported.body["spec"]["tags"]) == (
        None,
        1,
        ["x"],
    )


async def test_client_side_applies_are_taken_over_where_nothing_changed(widgets: ApiSession) -> None:
    last = json.dumps(a_widget(spec={"size": 3, "note": "n"}))
    note = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": last}}
    made = await widgets.post(WIDGETS, a_widget(metadata=note, spec={"size": 3, "note": "n"}), fieldManager="client")
    assert made.code == 201
    reported = await widgets.apply(ONE, a_widget(spec={"size": 4, "note": "m"}), "kubectl")
    assert (reported.code, reported.body["spec"]["size"]) == (200, 4)
    assert '"size":4' in reported.body["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    await widgets.patch(ONE, {"spec": {"size": 7}}, fieldManager="hand")
    assert (await widgets.apply(ONE, a_widget(spec={"size": 5, "note": "m"}), "kubectl")).code == 409


async def test_malformed_managed_fields_change_nothing(widgets: ApiSession) -> None:
    made = await widgets.post(WIDGETS, a_widget(), fieldManager="me")
    entry = {
        "manager": "x",
        "operation": "Apply",
        "apiVersion": "example.test/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {},
    }
    for change in ({"operation": "Odd"}, {"apiVersion": ""}, {"fieldsType": "V2"}, {"fieldsV1": {"spec": {}}}):
        reported = await widgets.patch(ONE, {"metadata": {"managedFields": [entry | change]}})
        assert reported.body["metadata"]["managedFields"] == made.body["metadata"]["managedFields"]
