"""Corners of definitions, custom objects and server-side apply: many small requests to a case, every answer noted."""

import json
from typing import Any

from tests.conformance.api_session import APPLY, JSON_PATCH, MERGE, STRATEGIC, ApiSession
from tests.conformance.catalogue import case, slug
from tests.conformance.things import CRDS, GROUP, W, config_map, crd, deployment, of_spec, version, widget

STRING: dict[str, Any] = {"type": "string"}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def define_fields(session: ApiSession, schemas: list[dict[str, Any]]) -> None:
    """A definition for each schema of one field; what comes of each is noted."""
    for index, schema in enumerate(schemas):
        spec = {"type": "object", "properties": {"a": schema}}
        group = f"{slug(session.case)[:40]}{index}.test"
        session.post(CRDS, crd("things", [version(schema=of_spec(spec))], group=group), want=None)


def map_list(items: dict[str, Any] | None, *keys: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [*keys]}
    return found | ({"items": items} if items is not None else {})


@case("P2")
def lists_and_maps_of_definitions(session: ApiSession) -> None:
    keyed = {"type": "object", "properties": {"a": STRING}, "required": ["a"]}
    nullable = {"type": "string", "nullable": True}
    define_fields(session, [
        {"type": "object", "x-kubernetes-map-type": "strange"}, {"type": "array", "items": STRING, "x-kubernetes-map-type": "atomic"},
        {"x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-map-type": "atomic"}, {"x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-list-type": "atomic"},
        map_list(None, "a"), map_list(STRING, "a"), map_list({"type": "object", "properties": {"b": STRING}}, "a"), map_list(keyed, "a", "a"),
        map_list(keyed | {"properties": {"a": {"type": "object"}}}, "a"), map_list(keyed | {"properties": {"a": nullable}}, "a"), map_list(keyed | {"nullable": True}, "a"),
        {"type": "array", "items": STRING, "x-kubernetes-list-map-keys": ["a"]}, {"type": "array", "items": STRING, "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["a"]},
        {"type": "array", "items": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}, "x-kubernetes-list-type": "set"},
        {"type": "array", "items": {"type": "object", "x-kubernetes-map-type": "atomic"}, "x-kubernetes-list-type": "set"}, {"type": "array", "items": nullable, "x-kubernetes-list-type": "set"},
    ])  # fmt: skip


@case("P2")
def structure_of_definitions(session: ApiSession) -> None:
    everything = {
        "description": "d", "title": "t", "default": {}, "nullable": True, "additionalProperties": STRING, "properties": {"x": STRING, "metadata": {}},
        "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-embedded-resource": True, "x-kubernetes-int-or-string": True,
        "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["a"], "x-kubernetes-map-type": "atomic",
    }  # fmt: skip
    either = [{"type": "integer"}, {"type": "string"}]
    embedded = {"x-kubernetes-embedded-resource": True}
    define_fields(session, [
        {"x-kubernetes-int-or-string": True, "anyOf": either}, {"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": either}, {"minimum": 1}]},
        {"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}, {"x-kubernetes-int-or-string": True} | embedded,
        embedded, {"type": "string"} | embedded, {"type": "object"} | embedded, {"type": "object", "additionalProperties": STRING} | embedded,
        {"type": "object", "properties": {"metadata": STRING, "kind": {"type": "integer"}, "apiVersion": {"type": "object"}}} | embedded,
        *({"type": "object", "properties": {"x": STRING}, word: [everything]} for word in ("anyOf", "allOf", "oneOf")),
        {"type": "string", "not": {"type": "string", "pattern": "["}}, {"type": "string", "anyOf": [{"x-kubernetes-validations": [{"rule": "true"}]}]},
        *({"type": "object", key: value} for key, value in (("id", "x"), ("$ref", "#/x"), ("definitions", {"a": STRING}), ("dependencies", {"a": ["b"]}), ("patternProperties", {"a": STRING}), ("additionalItems", True))),
        {"type": "null"}, {"type": "foo", "pattern": "["}, {"type": "object", "x-kubernetes-preserve-unknown-fields": False}, {"type": "object", "odd": 1}, {"type": "integer", "minimum": "x"},
    ])  # fmt: skip


@case("P2")
def defaults_of_definitions(session: ApiSession) -> None:
    define_fields(session, [
        {"type": "string", "nullable": True, "default": None}, {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
        {"type": "object", "required": ["x"], "properties": {"x": STRING}, "default": {}}, {"type": "string", "maxLength": 1, "default": "abc"},
        {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "integer"}}}, "default": {"x": ["a", 1]}},
        {"type": "string", "maxLength": 9, "default": "abc", "x-kubernetes-validations": [{"rule": "self != 'abc'"}]},
        {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True, "default": {"apiVersion": "v1"}},
        {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string", "default": 5}}}},
    ])  # fmt: skip


@case("P2")
def roots_names_and_versions_of_definitions(session: ApiSession) -> None:
    client = {"url": "http://u:p@x/?a=b#b"}
    roots: list[dict[str, Any]] = [
        {"nullable": True}, {"type": None}, {"properties": {"metadata": {"type": "object", "default": {}}}}, {"properties": {"metadata": {"type": "string"}}},
        {"properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}}}}, {"properties": {"kind": {"type": "string", "default": "x"}}},
        {"anyOf": [{"properties": {"q": {"minLength": 1}}}]},
    ]  # fmt: skip
    specs: list[dict[str, Any]] = [
        {"names": {"plural": "things", "singular": "Th ing", "kind": "th_ing", "listKind": "x y", "shortNames": ["A", "b"], "categories": ["C_"]}}, {"names": {"plural": "things", "kind": "Thing", "listKind": "Thing"}},
        {"names": {}}, {"scope": ""}, {"group": "UPPER.test"}, {"group": "single"}, {"conversion": {"strategy": "Odd"}}, {"conversion": {}},
        {"conversion": {"strategy": "None", "webhook": {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]}}}, {"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1", "v1", "V9"]}}},
        {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v9"]}}}, {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "", "namespace": ""}}, "conversionReviewVersions": ["v1"]}}},
    ]  # fmt: skip
    versions: list[dict[str, Any]] = [
        {"deprecationWarning": "x"}, {"deprecated": True, "deprecationWarning": "x" * 300}, {"deprecated": True, "deprecationWarning": "a\nb"}, {"served": False},
        {"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.b", "labelSelectorPath": ".metadata.x"}}},
        {"additionalPrinterColumns": [{"name": "", "type": "", "jsonPath": "x"}, {"name": "a", "type": "string", "format": "odd", "jsonPath": ".a"}]},
        *({"selectableFields": [{"jsonPath": path}]} for path in (".spec.s", ".spec.o", ".spec.m.x", ".spec.l", ".spec.l[0]", ".spec.", "spec.s", "", ".spec.s.x")),
    ]  # fmt: skip
    fields = {"s": STRING, "o": {"type": "object"}, "m": {"type": "object", "additionalProperties": STRING}}
    fields |= {"l": {"type": "array", "items": STRING}}
    for index, (root, spec, of_version) in enumerate(
        [(one, {}, {}) for one in roots] + [({}, one, {}) for one in specs] + [({}, {}, one) for one in versions]
    ):
        schema = of_spec({"type": "object", "properties": dict(fields)})
        schema |= root | ({"properties": schema["properties"] | root["properties"]} if "properties" in root else {})
        body = crd("things", [version(schema=schema) | of_version], group=f"roots{index}.test")
        body["spec"] |= spec
        session.post(CRDS, body, want=None)


@case("P1")
def odd_metadata_and_bodies(session: ApiSession) -> None:
    for part in (
        {"name": "A_b"}, {"name": "a" * 260}, {"name": ""}, {"labels": {"a b": "c", "x": "-y", "": "z"}}, {"labels": {"a": 1}}, {"labels": ["a"]}, {"annotations": {"A b": "c"}},
        {"finalizers": ["a", "b/c", "", "a/b/c"]}, {"ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "u"}]}, {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "", "name": "", "uid": ""}]},
        {"uid": "x"}, {"creationTimestamp": "2001-01-01T00:00:00Z"}, {"creationTimestamp": "x"}, {"odd": 1, "labels": {"a": "b"}},
    ):  # fmt: skip
        for path, body in ((W, widget()), ("~configmaps", config_map())):
            session.post(path, body | {"metadata": {"name": "one"} | part}, want=None, dryRun="All")
    for spec in (
        {"color": ["red"]}, {"color": {"a": 1}}, {"note": "x" * 25, "code": "UP"}, {"tags": ["a", "a", "a", "b", "b"]}, {"plain": [1.5, "x"]}, {"labels": {"a": 1, "b": None}},
        {"ports": [{"name": "a", "port": 0, "odd": 1}, {"name": "a"}, {"port": "x"}, "x", None]}, {"share": 1.5}, {"nested": []}, {"free": [1]}, {"when": 5}, {"when": "2020-01-01"}, {"whole": {"a": 1}}, {"zz": {"a": 1}},
    ):  # fmt: skip
        session.post(W, widget(spec=spec), want=None, dryRun="All")
    for more in ({"spec": "x"}, {"spec": [1]}, {"spec": None}, {"status": {"size": "x"}}, {"extra": 1}):
        session.post(W, widget() | more, want=None, dryRun="All")


@case("P1")
def patches_of_what_is_fixed(session: ApiSession) -> None:
    session.post(W, widget(spec={"tags": ["a"], "labels": {"x": "y"}}))
    for patch in (
        [{"op": "test", "path": "/spec/note", "value": None}], [{"op": "add", "path": "/spec/tags/-1", "value": "q"}], [{"op": "add", "path": "/spec/note", "value": "r", "odd": 1}], [{"op": "add", "value": 1}],
        [{"op": "move", "from": "/spec/labels", "path": "/spec/labels/x"}], [{"op": "copy", "from": "/spec/none", "path": "/spec/note"}], [1], [{"op": "add", "path": 1}], [{"op": "replace", "path": "/metadata/name", "value": "x"}],
        [{"op": "replace", "path": "/apiVersion", "value": "x/v1"}], [{"op": "remove", "path": "/metadata"}], [{"op": "remove", "path": "/spec"}], [],
    ):  # fmt: skip
        session.patch(f"{W}/one", patch, kind=JSON_PATCH, want=None)
    for merge in (
        {}, {"spec": None}, {"apiVersion": f"{GROUP}/v2"}, {"apiVersion": None}, {"metadata": None}, {"metadata": {"labels": None}}, {"metadata": {"labels": {"a b": "c"}}}, {"metadata": {"resourceVersion": "0"}},
        {"metadata": {"resourceVersion": "x"}}, {"metadata": {"resourceVersion": ""}}, {"metadata": {"namespace": "x"}}, {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}, {"metadata": {"generateName": "z-"}},
    ):  # fmt: skip
        session.patch(f"{W}/one", merge, kind=MERGE, want=None, note="generateName" not in str(merge))
    for status in ({"size": "x"}, {"size": -1}, "x", None):
        session.patch(f"{W}/one/status", {"status": status}, want=None, note=status is not None)


def apply(session: ApiSession, body: dict[str, Any], manager: str, path: str = f"{W}/one", **query: Any) -> None:
    session.patch(path, body, kind=APPLY, want=None, fieldManager=manager, **query)


@case("P1")
def managers_that_come_and_go(session: ApiSession) -> None:
    """Several appliers, a patch by hand, and what each leaves behind."""
    ports = [{"name": "p", "port": 1}, {"name": "q", "port": 2}]
    apply(session, widget(spec={"size": 1, "tags": ["a", "b"], "labels": {"x": "1", "y": "2"}, "ports": ports, "nested": {"a": "z"}, "free": {"x": [1]}, "note": None}), "one")  # fmt: skip
    apply(
        session,
        widget(spec={"size": 1, "tags": ["c"], "labels": {"z": "3"}, "ports": [{"name": "r", "port": 3}]}),
        "two",
    )
    apply(session, widget(spec={"size": 1, "tags": ["b"], "labels": {"x": "1"}, "ports": ports[:1]}), "one")
    apply(session, widget(spec={"size": 1}), "two")
    change = widget(spec={"size": 5, "plain": [9], "labels": {"x": "9"}, "ports": [{"name": "p", "port": 9}]})
    apply(session, change, "two")
    apply(session, change, "two", force=True)
    apply(session, widget(spec={"size": 5}), "one")
    apply(session, {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "one"}, "spec": {}}, "one")
    session.patch(f"{W}/one", {"spec": {"labels": {"x": None, "man": "ual"}, "tags": ["b", "m"]}}, fieldManager="hand")
    meta = {"labels": {"a": "1"}, "finalizers": ["x.test/a"]}
    apply(session, widget(spec={"size": 5}, metadata=meta), "m")
    apply(session, widget(spec={"size": 5}), "m")
    for odd in ({"uid": "x"}, {"resourceVersion": "1"}, {"generation": 5}):
        apply(session, widget(spec={"size": 5}, metadata=odd), "m")
    status = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "one", "labels": {"q": "r"}}}
    apply(session, status | {"status": {"phase": "A", "list": [1]}}, "s1", f"{W}/one/status")
    apply(session, status | {"status": {"phase": "B"}}, "s2", f"{W}/one/status")
    apply(session, widget("new", metadata={"uid": "x"}), "m", f"{W}/new")
    session.get(f"{W}/one")


@case("P1")
def managed_fields_that_are_none(session: ApiSession) -> None:
    """Entries of a wrong form are not taken; an empty list resets what is decoded into types, and nothing else."""
    session.post(W, widget(), fieldManager="a")
    sound = {"manager": "new", "operation": "Apply", "apiVersion": f"{GROUP}/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:size": {}}}}  # fmt: skip
    for entries in ([], [sound], [sound | {"operation": "Odd"}], [sound | {"fieldsType": "X"}], [sound | {"apiVersion": ""}], [sound | {"fieldsV1": {"spec": {}}}]):  # fmt: skip
        session.patch(f"{W}/one", {"metadata": {"managedFields": entries}}, want=None)
    session.patch(f"{W}/one", {"spec": {"size": 9}})
    apply(session, widget(spec={"size": 9}), "ap")
    last = json.dumps(widget("csa", spec={"note": "n"}))
    session.post(W, widget("csa", metadata={"annotations": {LAST_APPLIED: last}}, spec={"note": "n"}), fieldManager="kubectl-client-side-apply")  # fmt: skip
    apply(session, widget("csa", spec={"size": 4, "note": "m"}), "kubectl", f"{W}/csa")
    session.patch(f"{W}/csa", {"spec": {"size": 7}}, fieldManager="hand")
    apply(session, widget("csa", spec={"size": 5, "note": "o"}), "kubectl", f"{W}/csa")


@case("P2")
def directives_of_strategic_patches(session: ApiSession) -> None:
    env = [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]
    containers = [{"name": "a", "image": "i:1", "env": env}, {"name": "b", "image": "i:2"}]
    template = {"metadata": {"labels": {"app": "a"}, "annotations": {"n": "m"}}, "spec": {"containers": containers}}
    of_env = [
        {"env": [{"name": "X", "$patch": "delete"}]}, {"env": [{"$patch": "replace"}, {"name": "Z", "value": "3"}]}, {"env": None}, {"$patch": "merge"}, {"ports": [{"name": "new"}]},
        {"env": [{"name": "Z", "value": "3"}], "$setElementOrder/env": [{"name": "Z"}, {"name": "Y"}, {"name": "X"}]}, {"env": [{"name": "Q", "value": "3"}], "$setElementOrder/env": [{"name": "Y"}]},
    ]  # fmt: skip
    patches: list[dict[str, Any]] = [{"spec": {"template": {"spec": {"containers": [{"name": "a"} | one]}}}} for one in of_env]  # fmt: skip
    patches += [{"spec": {"template": {"spec": one}}} for one in (
        {"$setElementOrder/nothing": [{"name": "x"}]}, {"$setElementOrder/containers": "x"}, {"containers": [{"$patch": "delete"}]}, {"containers": ["a"]},
    )]  # fmt: skip
    patches += [
        {"spec": {"strategy": one}}
        for one in (
            {"$patch": "odd"},
            {"$patch": "replace", "type": "Recreate"},
            {"$retainKeys": ["type"], "type": "Recreate"},
            {"$retainKeys": "x"},
        )
    ]
    patches += [{"spec": {"template": {"metadata": {"annotations": {"$patch": "delete"}}}}}, {"$patch": "delete"}]
    patches += [{"kind": "X", "apiVersion": "apps/v2"}, {"metadata": {"ownerReferences": [{"apiVersion": "v1"}]}}]
    for index, patch in enumerate(patches):
        session.post("~apps/v1/deployments", deployment(f"d{index}", paused=True, template=template), note=False)
        reported = session.patch(f"~apps/v1/deployments/d{index}", patch, kind=STRATEGIC, want=None, note=False)
        session.note(str(patch), reported["spec"] if reported.code == 200 else [reported.code, reported.message])
