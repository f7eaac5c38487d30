"""CustomResourceDefinitions: their life, what is refused, schemas and rules at work."""

from copy import deepcopy
from typing import Any

from tests.conformance.api_session import MERGE, ApiSession
from tests.conformance.catalogue import case, rows, slug
from tests.conformance.things import CRDS, GROUP, W, crd, of_spec, version, widget

STRING = {"type": "string"}


def unique(session: ApiSession) -> str:
    """A group of the case's own."""
    return f"{slug(session.case).replace('--', '-')[:50]}.test"


def define(session: ApiSession, body: dict[str, Any]) -> str:
    """Creates the definition, waits until it is served in every version; the path of its objects in the case's namespace."""
    session.post(CRDS, body, note=False)
    spec = body["spec"]
    for one in spec["versions"]:
        if one["served"]:
            session.until(
                f"/apis/{spec['group']}/{one['name']}/{spec['names']['plural']}",
                lambda reported: reported.code == 200,
                note=False,
            )
    name = f"{spec['names']['plural']}.{spec['group']}"
    session.until(f"{CRDS}/{name}", lambda reported: conditions(reported).get("Established") == "True", note=False)
    first = next(one["name"] for one in spec["versions"] if one["served"])
    return f"~{spec['group']}/{first}/{spec['names']['plural']}"


def conditions(reported: Any) -> dict[str, str]:
    return {one["type"]: one["status"] for one in ((reported.body.get("status") or {}).get("conditions") or [])}


@case("P0", "CustomResourceDefinition resources creating/deleting custom resource definition objects works")
def definition_life(session: ApiSession) -> None:
    group = unique(session)
    body = crd("things", [version(schema=of_spec({"type": "object"}))], group=group, shortNames=["th"])
    made = session.post(CRDS, body)
    assert made["spec"]["names"]["listKind"] == "ThingList"
    assert made["spec"]["names"]["singular"] == "thing"
    assert made["spec"]["conversion"] == {"strategy": "None"}
    path = f"{CRDS}/things.{group}"
    reported = session.until(path, lambda reported: conditions(reported).get("Established") == "True", note=False)
    session.note("status", {key: value for key, value in reported["status"].items() if key != "conditions"})
    session.note(
        "conditions",
        sorted([one["type"], one["status"], one["reason"], one["message"]] for one in reported["status"]["conditions"]),
    )
    things = f"~{group}/v1/things"
    session.until(things, lambda reported: reported.code == 200)
    session.post(things, {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {}})
    gone = session.delete(path, note=False)
    session.note("deleting", [gone["kind"], gone.body.get("metadata", {}).get("finalizers")])
    session.until_gone(path)
    session.until_gone(things)
    session.post(CRDS, body, note=False)
    session.until(things, lambda reported: reported.code == 200)


def changed_crd(change: Any, session: ApiSession) -> dict[str, Any]:
    body = crd(
        "things",
        [version(schema=of_spec({"type": "object", "properties": {"a": deepcopy(STRING)}}))],
        group=unique(session),
    )
    change(body)
    return body


def refused_definition(session: ApiSession, change: Any) -> None:
    reported = session.post(CRDS, changed_crd(change, session), want=422)
    assert reported.reason == "Invalid"


def root(body: dict[str, Any]) -> dict[str, Any]:
    return body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def spec_is(**schema: Any) -> Any:
    """Replaces properties of spec."""
    return lambda body: root(body)["properties"]["spec"].update(schema)


def field_is(schema: dict[str, Any]) -> Any:
    return lambda body: root(body)["properties"]["spec"]["properties"].update(a=schema)


def rule_is(rule: str, **more: Any) -> Any:
    return lambda body: root(body)["properties"]["spec"].update({"x-kubernetes-validations": [{"rule": rule} | more]})


def spec_path(**changes: Any) -> Any:
    return lambda body: body["spec"].update(changes)


def version_is(**changes: Any) -> Any:
    return lambda body: body["spec"]["versions"][0].update(changes)


rows(
    "P0",
    "definitions",
    "definition refused",
    [
        ("name", lambda body: body["metadata"].update(name="other.example.test")),
        ("no schema", version_is(schema=None)),
        ("no versions", spec_path(versions=[])),
        ("no storage version", version_is(storage=False)),
        ("two storage versions", lambda body: body["spec"]["versions"].append(dict(body["spec"]["versions"][0], name="v2"))),
        ("the same version twice", lambda body: body["spec"]["versions"].append(dict(body["spec"]["versions"][0], storage=False))),
        ("bad version name", version_is(name="V_1")),
        ("no group", spec_path(group="")),
        ("bad scope", spec_path(scope="Everywhere")),
        ("no kind", lambda body: body["spec"]["names"].update(kind="")),
        ("bad plural", lambda body: body["spec"]["names"].update(plural="Things")),
        ("a field without a type", field_is({"description": "x"})),
        ("a type inside anyOf", field_is({"type": "string", "anyOf": [{"type": "string"}]})),
        ("an array without items", field_is({"type": "array"})),
        ("items that are a list", field_is({"type": "array", "items": [{"type": "string"}]})),
        ("properties and additionalProperties", field_is({"type": "object", "properties": {"x": STRING}, "additionalProperties": STRING})),
        ("an unknown type", field_is({"type": "text"})),
        ("uniqueItems", field_is({"type": "array", "uniqueItems": True, "items": STRING})),
        ("a bad pattern", field_is({"type": "string", "pattern": "["})),
        ("a default of another type", field_is({"type": "string", "default": 5})),
        ("a default outside the enum", field_is({"type": "string", "enum": ["a"], "default": "b"})),
        ("a default with unknown fields", field_is({"type": "object", "properties": {"x": STRING}, "default": {"y": "z"}})),
        ("an unknown list type", field_is({"type": "array", "items": STRING, "x-kubernetes-list-type": "bag"})),
        ("a map list without keys", field_is({"type": "array", "items": {"type": "object", "properties": {"k": STRING}}, "x-kubernetes-list-type": "map"})),
        ("a map list with an optional key", field_is({"type": "array", "items": {"type": "object", "properties": {"k": STRING}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})),
        ("a set of objects", field_is({"type": "array", "items": {"type": "object", "properties": {"k": STRING}}, "x-kubernetes-list-type": "set"})),
        ("a list type on a map", field_is({"type": "object", "x-kubernetes-list-type": "atomic"})),
        ("metadata with a schema", lambda body: root(body)["properties"].update(metadata={"type": "object", "properties": {"labels": {"type": "object"}}})),
        ("a root that is no object", lambda body: root(body).update(type="string", properties=None)),
        ("a root that preserves", spec_path(preserveUnknownFields=True)),
        ("a scale without paths", version_is(subresources={"scale": {"specReplicasPath": "", "statusReplicasPath": ""}})),
        ("a scale outside spec", version_is(subresources={"scale": {"specReplicasPath": ".status.a", "statusReplicasPath": ".status.b"}})),
        ("a printer column without path", version_is(additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ""}])),
        ("a printer column of an odd type", version_is(additionalPrinterColumns=[{"name": "A", "type": "colour", "jsonPath": ".spec.a"}])),
        ("a selectable field that is none", version_is(selectableFields=[{"jsonPath": ".spec.none"}])),
        ("a selectable field of a list", version_is(selectableFields=[{"jsonPath": ".metadata.labels"}])),
        ("a rule that does not parse", rule_is("self.a ==")),
        ("a rule on an unknown field", rule_is("self.zzz == 'x'")),
        ("a rule that is no boolean", rule_is("self.a")),
        ("a rule of wrong types", rule_is("self.a == 5")),
        ("an empty rule", rule_is(" ")),
        ("a message of several lines", rule_is("true", message="a\nb")),
        ("an unknown reason", rule_is("true", reason="Why")),
        ("a field path that is none", rule_is("true", fieldPath=".zzz")),
        ("a message expression that is no string", rule_is("true", messageExpression="1")),
        ("oldSelf where nothing correlates", field_is({"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 3, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}})),
        ("a rule that costs too much", field_is({"type": "array", "items": STRING, "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, self.all(z, x == y || y == z)))"}]})),
        ("a webhook conversion without webhook", spec_path(conversion={"strategy": "Webhook"})),
        ("a protected group", lambda body: (body["spec"].update(group="x.k8s.io"), body["metadata"].update(name="things.x.k8s.io"))),
    ],
    refused_definition,
)  # fmt: skip

# ---- objects against a schema


def against(session: ApiSession, spec: dict[str, Any], code: int) -> None:
    reported = session.post(W, widget(spec=spec), want=code)
    if code == 422:
        assert reported.causes


INVALID: list[tuple[Any, ...]] = [
    ("too small", {"size": -1}), ("too large", {"size": 101}), ("a string for an integer", {"size": "3"}), ("a fraction for an integer", {"size": 2.5}),
    ("no value for what is required", {"size": None}), ("not in the enum", {"color": "pink"}), ("too long", {"note": "x" * 21}), ("against the pattern", {"code": "UP"}),
    ("a number for a string", {"note": 5}), ("a string for a boolean", {"on": "yes"}), ("a map for a list", {"tags": {"a": "b"}}), ("a list for a map", {"labels": ["a"]}),
    ("too many items", {"plain": [1, 2, 3, 4]}), ("too many properties", {"labels": {"a": "1", "b": "2", "c": "3", "d": "4"}}), ("a set with repetitions", {"tags": ["a", "a"]}),
    ("keys twice", {"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}), ("an item without its key", {"ports": [{"port": 1}]}), ("deep in a list", {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 0}]}),
    ("several things at once", {"size": 1000, "color": "pink", "note": "x" * 30}), ("a boolean for int-or-string", {"share": True}), ("null for what is not nullable", {"code": None}),
    ("a bad date", {"when": "yesterday"}), ("null in a list", {"tags": [None]}), ("a wrong type beside a wrong value", {"size": "x", "color": "pink"}),
]  # fmt: skip
SOUND: list[tuple[Any, ...]] = [
    ("a whole number written as a fraction", {"ports": [{"name": "a", "port": 80.0}]}), ("null where nullable", {"note": None}), ("an integer for a number", {"ratio": 3}), ("a fraction", {"ratio": 0.25}), ("int or string", {"share": "50%"}), ("int or string, int", {"share": 5}),
    ("empty containers", {"tags": [], "labels": {}, "nested": {}, "ports": []}), ("a date", {"when": "2020-01-01T00:00:00Z"}), ("code points count, not bytes", {"note": "é" * 20}), ("free content", {"free": {"a": [1, {"b": None}], "c": 0.5}}),
    ("null for a default", {"color": None}),
]  # fmt: skip
rows(
    "P0",
    "definitions",
    "schema refuses",
    [(*one, None if one[0].startswith("null for what") else 422) for one in INVALID],
    against,
)
rows("P0", "definitions", "schema takes", [(*one, 201) for one in SOUND], against)


def keyword(session: ApiSession, schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    """A definition of its own with one field `a`; each value is tried by dry run."""
    group = unique(session)
    things = define(
        session, crd("things", [version(schema=of_spec({"type": "object", "properties": {"a": schema}}))], group=group)
    )
    for value in good + bad:
        body = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {"a": value}}
        session.post(things, body, want=201 if value in good else 422, dryRun="All")


rows(
    "P1",
    "definitions",
    "keyword",
    [
        ("exclusive bounds", {"type": "integer", "minimum": 1, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": True}, [2, 4], [1, 5]),
        ("multipleOf", {"type": "integer", "multipleOf": 3}, [3, 6], [4]),
        ("lengths", {"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "αβγ"], ["a", "abcd"]),
        ("anyOf", {"type": "object", "properties": {"x": STRING, "y": STRING}, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, [{"x": "1"}], [{}]),
        ("oneOf", {"type": "object", "properties": {"x": STRING, "y": STRING}, "oneOf": [{"required": ["x"]}, {"required": ["y"]}]}, [{"x": "1"}], [{}, {"x": "1", "y": "2"}]),
        ("allOf", {"type": "integer", "allOf": [{"minimum": 2}, {"maximum": 4}]}, [3], [1, 5]),
        ("not", {"type": "string", "not": {"enum": ["bad"]}}, ["good"], ["bad"]),
        ("formats", {"type": "string", "format": "ipv4"}, ["10.0.0.1"], ["10.0.0.256", "x"]),
        ("format email", {"type": "string", "format": "email"}, ["a@b.test"], ["nobody"]),
        ("format uuid", {"type": "string", "format": "uuid"}, ["11111111-1111-4111-8111-111111111111"], ["x"]),
        ("format uri", {"type": "string", "format": "uri"}, ["https://a.test/b"], ["::"]),
        ("format byte", {"type": "string", "format": "byte"}, ["YWJj"], ["%"]),
        ("format duration", {"type": "string", "format": "duration"}, ["1h5m"], ["soon"]),
        ("format date", {"type": "string", "format": "date"}, ["2020-02-29"], ["2021-02-29"]),
        ("format hostname", {"type": "string", "format": "hostname"}, ["a.test"], ["a..b"]),
        ("format cidr", {"type": "string", "format": "cidr"}, ["10.0.0.0/8"], ["10.0.0.0"]),
        ("format mac", {"type": "string", "format": "mac"}, ["00:11:22:33:44:55"], ["x"]),
        ("format int32", {"type": "integer", "format": "int32"}, [2147483647, 2147483648], []),
        ("format int64", {"type": "integer", "format": "int64"}, [9007199254740993], []),
        ("enum of numbers", {"type": "integer", "enum": [1, 2]}, [1], [3]),
        ("items", {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^a"}}, [["ab"]], [[], ["ba"]]),
        ("properties", {"type": "object", "minProperties": 1, "additionalProperties": {"type": "integer"}}, [{"x": 1}], [{}, {"x": "y"}]),
        ("embedded resource", {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
         [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}], [{"kind": "Pod"}, {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b c"}}}]),
    ],
    keyword,
)  # fmt: skip

# ---- rules


def rule(session: ApiSession, schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    keyword(session, schema, good, bad)


def ruled(base: dict[str, Any], *rules: Any) -> dict[str, Any]:
    found = [one if isinstance(one, dict) else {"rule": one} for one in rules]
    return base | {"x-kubernetes-validations": found}


TEXT = {"type": "string", "maxLength": 60}
NUMBER = {"type": "integer"}
TEXTS = {"type": "array", "maxItems": 8, "items": TEXT}
PAIR = {"type": "object", "properties": {"x": NUMBER, "y": NUMBER, "s": TEXT}}
rows(
    "P1",
    "definitions",
    "rule",
    [
        ("compares fields", ruled(PAIR, "self.x <= self.y"), [{"x": 1, "y": 2}], [{"x": 3, "y": 2}]),
        ("says why", ruled(PAIR, {"rule": "self.x <= self.y", "message": "x must not be above y"}), [], [{"x": 3, "y": 2}]),
        ("says why by expression", ruled(PAIR, {"rule": "self.x <= self.y", "messageExpression": "'x is ' + (self.x > 2 ? 'big' : 'small')"}), [], [{"x": 3, "y": 2}]),
        ("gives a reason and a path", ruled(PAIR, {"rule": "self.x <= self.y", "reason": "FieldValueForbidden", "fieldPath": ".x"}), [], [{"x": 3, "y": 2}]),
        ("has", ruled(PAIR, "!has(self.s) || self.x > 0"), [{"x": 0}, {"x": 1, "s": "a"}], [{"x": 0, "s": "a"}]),
        ("fails on an absent field", ruled(PAIR, "self.s == 'a'"), [{"s": "a"}], [{"x": 1}]),
        ("two of them", ruled(PAIR, "self.x > 0", "self.y > 0"), [{"x": 1, "y": 1}], [{"x": 0, "y": 0}]),
        ("all and exists", ruled(TEXTS, "self.all(t, t.startsWith('a'))", "self.exists(t, t == 'ab')"), [["ab", "ac"]], [["ac"], ["b"]]),
        ("exists_one filter map", ruled(TEXTS, "self.exists_one(t, t == 'a')", "self.filter(t, t != 'a').map(t, t + 'x').all(t, t.endsWith('x'))"), [["a", "b"]], [["a", "a"]]),
        ("size in ternary", ruled(TEXTS, "size(self) > 1 ? 'a' in self : true"), [["b"], ["a", "b"]], [["b", "c"]]),
        ("matches", ruled(TEXT, "self.matches('^[a-c]+$')"), ["abc"], ["abd"]),
        ("lists", ruled(TEXTS, "self.isSorted()", "self.indexOf('a') == 0"), [["a", "b"]], [["b", "a"], ["c"]]),
        ("sum min max", ruled({"type": "array", "maxItems": 5, "items": NUMBER}, "self.sum() < 10", "self.min() >= 0", "self.max() < 9"), [[1, 2]], [[5, 6], [-1]]),
        ("strings", ruled(TEXT, "self.lowerAscii() == self", "self.split('-').size() == 2", "self.trim() == self", "self.replace('a', 'b').substring(1) != ''"), ["ab-c"], ["AB-C", "abc"]),
        ("find", ruled(TEXT, "self.find('[0-9]+') == '12'", "self.findAll('[a-z]').size() == 2"), ["a12b"], ["a3b"]),
        ("url", ruled(TEXT, "isURL(self) && url(self).getHostname() == 'a.test'"), ["https://a.test/x"], ["https://b.test/x", "x"]),
        ("quantity", ruled(TEXT, "isQuantity(self) && quantity(self).isLessThan(quantity('2Gi'))"), ["1Gi", "5"], ["3Gi", "x"]),
        ("ip and cidr", ruled(TEXT, "isIP(self) && cidr('10.0.0.0/8').containsIP(self)"), ["10.1.1.1"], ["11.1.1.1", "x"]),
        ("duration and timestamp", ruled(TEXT, "duration(self) < duration('1h')"), ["5m"], ["2h"]),
        ("join and format", ruled(TEXTS, "self.join(',').size() < 6", "'%s'.format([self[0]]) == self[0]"), [["a", "b"]], [["abcd", "efgh"]]),
        ("optional", ruled(PAIR, "self.?s.orValue('d') == 'd'"), [{"x": 1}], [{"s": "e"}]),
        ("sets", ruled(TEXTS, "sets.contains(['a', 'b'], self)"), [["a"]], [["c"]]),
        ("maps", ruled({"type": "object", "maxProperties": 5, "additionalProperties": TEXT}, "self.all(k, k.startsWith('a'))", "self['a'] == 'x'"), [{"a": "x"}], [{"a": "y"}, {"a": "x", "b": "z"}]),
        ("int or string", ruled({"x-kubernetes-int-or-string": True}, "type(self) == int ? self < 5 : self == '50%'"), [4, "50%"], [6, "60%"]),
        ("of a number", ruled({"type": "number"}, "self * 2.0 < 3.0"), [1.25], [1.5]),
        ("that divides by zero", ruled(PAIR, "self.x / self.y > 1"), [{"x": 4, "y": 2}], [{"x": 4, "y": 0}]),
        ("named formats", ruled(TEXT, "!format.dns1123Label().validate(self).hasValue()"), ["abc"], ["A_"]),
    ],
    rule,
)  # fmt: skip


@case("P1", "CustomResourceValidationRules transition rule")
def transition_rules(session: ApiSession) -> None:
    group = unique(session)
    spec = ruled({"type": "object", "properties": {"fixed": TEXT, "up": NUMBER, "opt": TEXT, "list": {
        "type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": ruled({"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": NUMBER}}, "self.v >= oldSelf.v")}}},
        {"rule": "self.fixed == oldSelf.fixed", "message": "fixed is immutable"}, {"rule": "self.up >= oldSelf.up", "fieldPath": ".up"},
        {"rule": "!oldSelf.hasValue() || !has(oldSelf.value().opt) || has(self.opt)", "optionalOldSelf": True})  # fmt: skip
    things = define(session, crd("things", [version(schema=of_spec(spec))], group=group))
    body = {
        "apiVersion": f"{group}/v1",
        "kind": "Thing",
        "metadata": {"name": "one"},
        "spec": {"fixed": "a", "up": 1, "opt": "x", "list": [{"k": "a", "v": 1}]},
    }
    session.post(things, body)
    for change, code in (({"fixed": "b"}, 422), ({"up": 0}, 422), ({"up": 2}, 200), ({"opt": None}, 422), ({"list": [{"k": "b", "v": 0}, {"k": "a", "v": 0}]}, 422), ({"list": [{"k": "b", "v": 0}, {"k": "a", "v": 1}]}, 200)):  # fmt: skip
        session.patch(f"{things}/one", {"spec": change}, want=code, kind=MERGE)


@case("P1", "CRD validation ratcheting")
def ratcheting(session: ApiSession) -> None:
    """What was invalid already and is not touched blocks no update."""
    group = unique(session)
    schema = of_spec(
        {
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"type": "string"},
                "l": {"type": "array", "items": {"type": "string"}},
            },
        }
    )
    body = crd("things", [version(schema=schema)], group=group)
    things = define(session, body)
    session.post(
        things,
        {
            "apiVersion": f"{group}/v1",
            "kind": "Thing",
            "metadata": {"name": "one"},
            "spec": {"a": "long value", "b": "x", "l": ["long value"]},
        },
    )
    fields = schema["properties"]["spec"]["properties"]
    fields["a"]["maxLength"] = 3
    fields["l"]["items"]["maxLength"] = 3
    fields["b"]["x-kubernetes-validations"] = [{"rule": "self != 'bad'"}]
    session.patch(f"{CRDS}/things.{group}", {"spec": {"versions": body["spec"]["versions"]}}, note=False)
    probe = {
        "apiVersion": f"{group}/v1",
        "kind": "Thing",
        "metadata": {"generateName": "p-"},
        "spec": {"a": "long value"},
    }
    wait_until_refused(session, things, probe)
    session.patch(f"{things}/one", {"spec": {"b": "y"}})
    session.patch(f"{things}/one", {"metadata": {"labels": {"a": "b"}}})
    session.patch(f"{things}/one", {"spec": {"a": "long other"}}, want=422)
    session.patch(f"{things}/one", {"spec": {"b": "bad"}}, want=422)
    session.patch(f"{things}/one", {"spec": {"a": "ok"}})


def wait_until_refused(session: ApiSession, path: str, body: dict[str, Any]) -> None:
    """A changed schema is in force once it refuses this."""
    from time import monotonic, sleep

    deadline = monotonic() + 20
    while session.quietly("POST", path, body, dryRun="All").code != 422:
        assert monotonic() < deadline, "the new schema never came into force"
        sleep(0.05)


@case("P0", "CustomResourceDefinition custom resource defaulting for requests and from storage works")
def defaults_from_storage(session: ApiSession) -> None:
    group = unique(session)
    schema = of_spec({"type": "object", "properties": {"a": {"type": "string"}}})
    body = crd("things", [version(schema=schema)], group=group)
    things = define(session, body)
    made = session.post(things, {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "one"}, "spec": {}})
    schema["properties"]["spec"]["properties"]["b"] = {"type": "string", "default": "new"}
    session.patch(f"{CRDS}/things.{group}", {"spec": {"versions": body["spec"]["versions"]}}, note=False)
    reported = session.until(f"{things}/one", lambda reported: reported["spec"].get("b") == "new")
    assert reported.rv == made.rv
    assert session.get(things)["items"][0]["spec"]["b"] == "new"


@case("P1", "CustomResourcePublishOpenAPI works for multiple CRDs of same group but different versions")
def versions_without_conversion(session: ApiSession) -> None:
    group = unique(session)
    body = crd(
        "things", [version("v1alpha1", storage=False), version("v1"), version("v2beta1", storage=False)], group=group
    )
    things = define(session, body)
    reported = session.get(f"/apis/{group}")
    assert [one["version"] for one in reported["versions"]] == ["v1", "v2beta1", "v1alpha1"]
    session.post(things, {"apiVersion": f"{group}/v1alpha1", "kind": "Thing", "metadata": {"name": "one"}, "a": 1})
    for served in ("v1", "v2beta1", "v1alpha1"):
        assert session.get(f"~{group}/{served}/things/one")["apiVersion"] == f"{group}/{served}"
        session.get(f"~{group}/{served}/things")
    for one in body["spec"]["versions"]:
        one["storage"] = one["name"] == "v2beta1"
    reported = session.patch(f"{CRDS}/things.{group}", {"spec": {"versions": body["spec"]["versions"]}}, note=False)
    reported = session.until(
        f"{CRDS}/things.{group}", lambda reported: len(reported["status"]["storedVersions"]) == 2, note=False
    )
    session.note("stored", reported["status"]["storedVersions"])
    assert session.get(f"{things}/one")["a"] == 1


@case("P1")
def deprecated_versions_warn(session: ApiSession) -> None:
    reported = session.get(f"/apis/{GROUP}/v1beta1/gadgets")
    assert reported.warnings


@case("P1")
def names_that_clash(session: ApiSession) -> None:
    group = unique(session)
    define(session, crd("things", [version()], group=group, shortNames=["th"]))
    second = crd("stuffs", [version()], group=group, kind="Thing", shortNames=["th"])
    session.post(CRDS, second, note=False)
    reported = session.until(
        f"{CRDS}/stuffs.{group}", lambda reported: "NamesAccepted" in conditions(reported), note=False
    )
    session.note(
        "conditions",
        sorted([one["type"], one["status"], one["reason"], one["message"]] for one in reported["status"]["conditions"]),
    )
    session.get(f"/apis/{group}/v1/stuffs", want=404)
    session.delete(f"{CRDS}/things.{group}", note=False)
    session.until(f"/apis/{group}/v1/stuffs", lambda reported: reported.code == 200)


def changed_definition(session: ApiSession, change: dict[str, Any], code: int) -> None:
    group = unique(session)
    body = crd("things", [version(schema=of_spec({"type": "object"}))], group=group)
    define(session, body)
    reported = session.patch(f"{CRDS}/things.{group}", change, want=code, note=False)
    session.note("said", [reported.message, reported.causes])


rows(
    "P1",
    "definitions",
    "change of a definition",
    [
        ("scope", {"spec": {"scope": "Cluster"}}, 422),
        ("group", {"spec": {"group": "other.test"}}, 422),
        ("plural", {"spec": {"names": {"plural": "others"}}}, 422),
        ("kind", {"spec": {"names": {"kind": "Other", "listKind": "OtherList"}}}, 422),
        ("dropping a stored version", {"spec": {"versions": [version("v9")]}}, 422),
        ("short names", {"spec": {"names": {"shortNames": ["tg"]}}}, 200),
    ],
    changed_definition,
)


@case("P0", "CustomResourceDefinition getting/updating/patching status sub-resource works")
def status_of_a_definition(session: ApiSession) -> None:
    group = unique(session)
    define(session, crd("things", [version()], group=group))
    path = f"{CRDS}/things.{group}"
    condition = {
        "type": "Odd",
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    while True:
        reported = session.until(
            f"{path}/status", lambda reported: conditions(reported).get("Established") == "True", note=False
        )
        reported.body["status"]["conditions"].append(condition)
        reported = session.put(f"{path}/status", reported.body, want=None, note=False)
        if reported.code != 409:
            break
    session.note("types", sorted(one["type"] for one in reported["status"]["conditions"]))


@case("P1")
def deleting_a_definition_ends_its_watches(session: ApiSession) -> None:
    group = unique(session)
    things = define(session, crd("things", [version()], group=group))
    session.post(things, {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "one"}}, note=False)
    with session.watch(things) as stream:
        session.delete(f"{CRDS}/things.{group}", note=False)
        assert [event["type"] for event in stream.rest()] == ["ADDED", "DELETED"]


@case("P0")
def pruning(session: ApiSession) -> None:
    """Unknown fields go, except where they are preserved."""
    group = unique(session)
    schema = of_spec({"type": "object", "properties": {
        "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": {"type": "object", "properties": {"a": STRING}}}},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"x": STRING}}}})  # fmt: skip
    things = define(session, crd("things", [version(schema=schema)], group=group))
    body = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "one", "odd": 1}, "odd": 1, "spec": {
        "odd": 1, "kept": {"any": 1, "known": {"a": "b", "odd": 1}}, "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "odd": 1}, "x": "y", "odd": 1}}}  # fmt: skip
    session.post(things, body)


# ---- scale


@case("P1", "CustomResourceDefinition scale subresource")
def scale_of_a_custom_resource(session: ApiSession) -> None:
    session.post(W, widget(spec={"size": 3}), note=False)
    session.patch(f"{W}/one/status", {"status": {"size": 2, "selector": "a=b"}}, note=False)
    reported = session.get(f"{W}/one/scale")
    assert reported["spec"]["replicas"] == 3
    assert reported["status"] == {"replicas": 2, "selector": "a=b"}
    reported = session.put(f"{W}/one/scale", reported.body | {"spec": {"replicas": 7}})
    session.patch(f"{W}/one/scale", {"spec": {"replicas": 8}})
    assert session.get(f"{W}/one")["metadata"]["generation"] == 3
    session.patch(f"{W}/one/scale", {"spec": {"replicas": -1}}, want=422)
    session.patch(f"{W}/one/scale", {"spec": {"replicas": 1000}}, want=422)
    session.put(f"{W}/one/scale", reported.body | {"spec": {"replicas": 9}}, want=409)
    session.get(f"{W}/none/scale", want=404)


@case("P1")
def scale_of_a_deployment(session: ApiSession) -> None:
    from tests.conformance.things import deployment

    session.post("~apps/v1/deployments", deployment(paused=True), note=False)
    session.patch("~apps/v1/deployments/one/scale", {"spec": {"replicas": 1}}, note=False)
    reported = session.get("~apps/v1/deployments/one/scale", note=False)
    session.note(
        "scale",
        {key: reported[key] for key in ("kind", "apiVersion", "spec")}
        | {"selector": reported["status"].get("selector")},
    )
    assert session.get("~apps/v1/deployments/one", note=False)["spec"]["replicas"] == 1
    session.patch("~apps/v1/deployments/one/scale", {"spec": {"replicas": -1}}, want=422)
