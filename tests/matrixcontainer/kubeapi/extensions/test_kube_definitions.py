"""CustomResourceDefinitions: what is refused, what is served and when, versions, rules, going away."""

import copy

import pytest

from tests.matrixcontainer.kubeapi.api_session import SPEC, WIDGETS, ApiSession, a_crd, a_widget, condition

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ONE = f"{CRDS}/widgets.example.test"
VERSION = "spec.versions[0]"
ROOT = f"{VERSION}.schema.openAPIV3Schema"


async def test_served_before_established_is_published(session: ApiSession) -> None:
    async with session.watch(CRDS) as stream:
        await session.post(CRDS, a_crd())
        while True:
            event = await stream.event()
            assert event is not None
            if condition(event["object"], "Established") == "True":
                break
        assert (await session.get("/apis/example.test/v1")).body["resources"][0]["name"] == "widgets"
        assert event["object"]["status"]["acceptedNames"]["kind"] == "Widget"
        assert event["object"]["status"]["storedVersions"] == ["v1"]
        assert event["object"]["spec"]["conversion"] == {"strategy": "None"}
        assert event["object"]["spec"]["names"]["listKind"] == "WidgetList"


def _broken(change) -> dict:
    crd = copy.deepcopy(a_crd())
    change(crd)
    return crd


def _schema(crd: dict) -> dict:
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


CONVERSION = {
    "strategy": "Webhook",
    "webhook": {"clientConfig": {"url": "https://convert.test"}, "conversionReviewVersions": ["v1"]},
}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda c: c["metadata"].update(name="other.example.test"), "metadata.name"),
        (lambda c: c["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema"),
        (lambda c: c["spec"]["versions"][0].update(storage=False), "spec.versions"),
        (lambda c: c["spec"].update(versions=[]), "spec.versions"),
        (lambda c: c["spec"].update(scope="Galaxy"), "spec.scope"),
        (lambda c: _schema(c)["properties"]["spec"]["properties"]["size"].pop("type"), f"{ROOT}.properties[spec].properties[size].type"),
        (lambda c: _schema(c)["properties"]["spec"].update(anyOf=[{"type": "object"}]), f"{ROOT}.properties[spec].anyOf[0].type"),
        (lambda c: _schema(c)["properties"]["spec"]["properties"]["size"].update(default="x"), f"{ROOT}.properties[spec].properties[size].default"),
        (lambda c: _schema(c)["properties"]["spec"]["properties"]["labels"].update(additionalProperties={"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}), f"{ROOT}.properties[spec].properties[labels].additionalProperties.properties[a].default"),
        (lambda c: _schema(c)["properties"]["spec"]["properties"]["note"].update(pattern="("), f"{ROOT}.properties[spec].properties[note].pattern"),
        (lambda c: _schema(c)["properties"]["spec"]["properties"]["tags"].update(uniqueItems=True), f"{ROOT}.properties[spec].properties[tags].uniqueItems"),
        (lambda c: _schema(c)["properties"]["spec"]["properties"]["tags"].pop("items"), f"{ROOT}.properties[spec].properties[tags].items"),
        (lambda c: _schema(c)["properties"]["spec"]["properties"]["ports"].pop("x-kubernetes-list-map-keys"), f"{ROOT}.properties[spec].properties[ports].x-kubernetes-list-map-keys"),
        (lambda c: c["spec"]["versions"][0]["subresources"]["scale"].update(specReplicasPath=".status.x"), f"{VERSION}.subresources.scale.specReplicasPath"),
        (lambda c: c["spec"]["versions"][0]["additionalPrinterColumns"][0].update(jsonPath="nope["), f"{VERSION}.additionalPrinterColumns[0].jsonPath"),
        (lambda c: c["spec"].update(conversion={"strategy": "Webhook"}), "spec.conversion.strategy"),
        (lambda c: c["spec"].update(conversion=CONVERSION), "spec.conversion.strategy"),
        (lambda c: _schema(c)["properties"]["spec"].update(nullable=True, default={"size": 1, "odd": 2}), f"{ROOT}.properties[spec].default"),
        (lambda c: c["spec"]["versions"][0].update(selectableFields=[{"jsonPath": ".spec.tags"}]), f"{VERSION}.selectableFields[0].jsonPath"),
    ],
)  # fmt: skip
async def test_refused_definitions(session: ApiSession, change, field: str) -> None:
    reported = await session.post(CRDS, _broken(change))
    assert (reported.code, reported.body["reason"]) == (422, "Invalid"), reported.body
    assert field in reported.causes, reported.causes


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("self.z == 1", "undefined field 'z'"),
        ("self.size ==", "Syntax error"),
        ("self.ports.all(p, p.port > 0", "Syntax error"),
    ],
)
async def test_refused_rules(session: ApiSession, rule: str, text: str) -> None:
    reported = await session.post(CRDS, a_crd(rules=[{"rule": rule}]))
    assert reported.code == 422
    assert text in reported.causes[f"{ROOT}.properties[spec].x-kubernetes-validations[0].rule"]


async def test_rules_validate_objects_and_transitions(session: ApiSession) -> None:
    rules = [
        {"rule": "self.size % 2 == 0", "message": "size must be even"},
        {"rule": "self.color == oldSelf.color", "message": "color is immutable", "fieldPath": ".color"},
        {"rule": "!has(self.ports) || self.ports.all(p, p.port < 9000)", "reason": "FieldValueForbidden"},
    ]
    await session.define(a_crd(rules=rules))
    odd = await session.post(WIDGETS, a_widget())
    assert odd.causes == {"spec": 'Invalid value: "object": size must be even'}
    assert (await session.post(WIDGETS, a_widget(spec={"size": 2}))).code == 201
    reported = await session.patch(f"{WIDGETS}/one", {"spec": {"color": "blue"}})
    assert reported.causes == {"spec.color": 'Invalid value: "object": color is immutable'}
    ports = await session.patch(f"{WIDGETS}/one", {"spec": {"ports": [{"name": "a", "port": 9001}]}})
    assert ports.causes["spec"].startswith("Forbidden: failed rule: !has(self.ports)")
    assert (await session.patch(f"{WIDGETS}/one/scale", {"spec": {"replicas": 3}})).code == 422


async def test_ratcheting_skips_unchanged_values(session: ApiSession) -> None:
    await session.define(a_crd())
    await session.post(WIDGETS, a_widget(spec={"size": 50}))
    crd = (await session.get(ONE)).body
    _schema(crd)["properties"]["spec"]["properties"]["size"]["maximum"] = 10
    assert (await session.put(ONE, crd)).code == 200
    assert (await session.patch(f"{WIDGETS}/one", {"spec": {"note": "x"}})).code == 200
    assert (await session.patch(f"{WIDGETS}/one", {"spec": {"size": 51}})).code == 422
    assert (await session.post(WIDGETS, a_widget("two", spec={"size": 50}))).code == 422


async def test_new_defaults_apply_to_stored_objects(session: ApiSession) -> None:
    await session.define(a_crd())
    await session.post(WIDGETS, a_widget())
    crd = (await session.get(ONE)).body
    _schema(crd)["properties"]["spec"]["properties"]["mode"] = {"type": "string", "default": "fast"}
    await session.put(ONE, crd)
    assert (await session.get(f"{WIDGETS}/one")).body["spec"]["mode"] == "fast"
    assert (await session.get(WIDGETS)).body["items"][0]["spec"]["mode"] == "fast"


async def test_versions_with_conversion_none(session: ApiSession) -> None:
    one = a_crd()["spec"]["versions"][0]
    two = copy.deepcopy(one) | {"name": "v2beta1", "storage": False, "deprecated": True}
    await session.define(a_crd(versions=[one, two]))
    await session.post(WIDGETS, a_widget())
    other = WIDGETS.replace("/v1/", "/v2beta1/")
    reported = await session.get(f"{other}/one")
    assert (reported.body["apiVersion"], reported.body["spec"]["size"]) == ("example.test/v2beta1", 3)
    assert "v2beta1 Widget is deprecated" in reported.warnings[0]
    patched = await session.patch(f"{other}/one", {"spec": {"size": 4}})
    assert patched.body["apiVersion"] == "example.test/v2beta1"
    assert (await session.get(f"{WIDGETS}/one")).body["spec"]["size"] == 4
    groups = (await session.get("/apis/example.test")).body
    assert [v["version"] for v in groups["versions"]] == ["v1", "v2beta1"]
    crd = (await session.get(ONE)).body
    crd["spec"]["versions"][1]["served"] = False
    await session.put(ONE, crd)
    assert (await session.get(f"{other}/one")).code == 404
    crd = (await session.get(ONE)).body
    crd["spec"]["versions"][0]["storage"], crd["spec"]["versions"][1]["storage"] = False, True
    assert (await session.put(ONE, crd)).body["status"]["storedVersions"] == ["v1", "v2beta1"]
    assert (await session.get(f"{WIDGETS}/one")).body["apiVersion"] == "example.test/v1"


async def test_taken_names_are_not_accepted(widgets: ApiSession) -> None:
    crd = a_crd(names={"plural": "gadgets", "singular": "gadget", "kind": "Widget"})
    crd["metadata"]["name"] = "gadgets.example.test"
    await widgets.post(CRDS, crd)
    path = f"{CRDS}/gadgets.example.test"
    reported = await widgets.until(path, lambda s: condition(s.body, "Established") == "False")
    reasons = {c["type"]: c["reason"] for c in reported.body["status"]["conditions"]}
    assert reasons == {"NamesAccepted": "ListKindConflict", "Established": "NotAccepted"}
    assert reported.body["status"]["acceptedNames"] == {"plural": "gadgets", "singular": "gadget", "kind": ""}
    assert (await widgets.get("/apis/example.test/v1/gadgets")).code == 404


async def test_deletion_waits_for_finalizers_of_objects(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget(metadata={"finalizers": ["example.test/hold"]}))
    reported = await widgets.delete(ONE)
    assert reported.body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await widgets.until(ONE, lambda s: condition(s.body, "Terminating") == "True")
    await widgets.until(f"{WIDGETS}/one", lambda s: "deletionTimestamp" in s.body["metadata"])
    assert (await widgets.post(WIDGETS, a_widget("two"))).code == 405
    await widgets.patch(f"{WIDGETS}/one", {"metadata": {"finalizers": None}})
    await widgets.until(ONE, lambda s: s.code == 404)
    assert (await widgets.get("/apis/example.test/v1")).code == 404


async def test_preserved_unknown_fields_and_embedded_objects(session: ApiSession) -> None:
    spec = copy.deepcopy(SPEC)
    spec["properties"]["free"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec["properties"]["amount"] = {"x-kubernetes-int-or-string": True}
    spec["properties"]["inner"] = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "properties": {"data": {"type": "string"}},
    }
    await session.define(a_crd(spec=spec))
    inner = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "data": "d", "more": 1}
    reported = await session.post(
        WIDGETS, a_widget(spec={"size": 1, "free": {"a": {"b": 1}}, "amount": "10%", "inner": inner})
    )
    assert reported.body["spec"]["free"] == {"a": {"b": 1}}
    assert "more" not in reported.body["spec"]["inner"]
    wrong = await session.post(WIDGETS, a_widget("two", spec={"size": 1, "amount": True, "inner": {}}))
    assert {"spec.amount", "spec.inner.kind", "spec.inner.apiVersion"} <= set(wrong.causes)


async def test_nulls(widgets: ApiSession) -> None:
    reported = await widgets.post(WIDGETS, a_widget(spec={"size": 1, "color": None, "note": None}))
    assert reported.body["spec"] == {"size": 1, "color": "red", "note": None}
    assert (await widgets.post(WIDGETS, a_widget("two", spec={"size": None}))).code == 422


async def test_freed_names_are_accepted(widgets: ApiSession) -> None:
    crd = a_crd(names={"plural": "gadgets", "singular": "gadget", "kind": "Widget", "shortNames": []})
    crd["metadata"]["name"] = "gadgets.example.test"
    await widgets.post(CRDS, crd)
    path = f"{CRDS}/gadgets.example.test"
    await widgets.until(path, lambda s: condition(s.body, "Established") == "False")
    await widgets.delete(ONE)
    await widgets.until(path, lambda s: condition(s.body, "Established") == "True")
    assert (await widgets.get("/apis/example.test/v1/gadgets")).code == 200
