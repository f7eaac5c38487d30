"""Create, read, update, patch and delete: what every client relies on."""

import asyncio

import pytest

from tests.matrixcontainer.kubeapi.api_session import (
    JSON_PATCH,
    STRATEGIC,
    WIDGETS,
    ApiSession,
    a_crd,
    a_server,
    a_widget,
)

CM = "/api/v1/namespaces/default/configmaps"


async def test_create_sets_metadata_and_defaults(widgets: ApiSession) -> None:
    reported = await widgets.post(WIDGETS, a_widget(metadata={"uid": "mine", "creationTimestamp": None}))
    assert reported.code == 201
    meta = reported.body["metadata"]
    assert meta["namespace"] == "default"
    assert meta["uid"] != "mine"
    assert meta["generation"] == 1
    assert meta["creationTimestamp"].endswith("Z")
    assert reported.body["spec"]["color"] == "red"
    assert meta["managedFields"][0]["manager"] == "tests"


async def test_create_twice_is_already_exists(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget())
    reported = await widgets.post(WIDGETS, a_widget())
    assert (reported.code, reported.body["reason"]) == (409, "AlreadyExists")
    assert reported.body["message"] == 'widgets.example.test "one" already exists'
    assert reported.body["details"] == {"name": "one", "group": "example.test", "kind": "widgets"}


async def test_generate_name(widgets: ApiSession) -> None:
    body = a_widget()
    body["metadata"] = {"generateName": "w-"}
    first, second = await widgets.post(WIDGETS, body), await widgets.post(WIDGETS, body)
    assert first.body["metadata"]["name"] != second.body["metadata"]["name"]
    assert len(first.body["metadata"]["name"]) == len("w-") + 5


@pytest.mark.parametrize(
    ("change", "field", "text"),
    [
        ({"spec": {}}, "spec.size", "Required value"),
        (
            {"spec": {"size": 0}},
            "spec.size",
            "Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        ({"spec": {"size": 10**9}}, "spec.size", "should be less than or equal to 100"),
        ({"spec": {"size": "x"}}, "spec.size", 'Invalid value: "string": spec.size in body must be of type integer'),
        (
            {"spec": {"size": 1, "color": "pink"}},
            "spec.color",
            'Unsupported value: "pink": supported values: "red", "green"',
        ),
        ({"spec": {"size": 1, "tags": ["a", "a"]}}, "spec.tags[1]", 'Duplicate value: "a"'),
        (
            {"spec": {"size": 1, "ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}},
            "spec.ports[1]",
            'Duplicate value: {"name":"a"}',
        ),
        ({"spec": {"size": 1, "ports": [{"name": "a"}]}}, "spec.ports[0].port", "Required value"),
        ({"metadata": {"name": "Not_A_Name"}}, "metadata.name", "a lowercase RFC 1123 subdomain"),
        ({"metadata": {"labels": {"a b": "c"}}}, "metadata.labels", "name part must consist of"),
        ({"metadata": {"labels": {"a": "-"}}}, "metadata.labels", "a valid label must be"),
        ({"metadata": {"finalizers": ["bad/one/two"]}}, "metadata.finalizers", "Invalid value"),
        (
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}},
            "metadata.ownerReferences.uid",
            "must not be empty",
        ),
    ],
)
async def test_invalid_names_the_field(widgets: ApiSession, change: dict, field: str, text: str) -> None:
    before = widgets.api.store.revision
    reported = await widgets.post(WIDGETS, a_widget(**change))
    assert (reported.code, reported.body["reason"]) == (422, "Invalid"), reported.body
    assert text in reported.causes[field]
    assert widgets.api.store.revision == before


async def test_all_errors_are_reported_together(widgets: ApiSession) -> None:
    reported = await widgets.post(WIDGETS, a_widget(spec={"size": 0, "color": "pink"}))
    assert set(reported.causes) == {"spec.size", "spec.color"}
    assert reported.body["message"].startswith('Widget.example.test "one" is invalid: [spec.size: Invalid value: 0')


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"{", 400, "couldn't parse the body"),
        (b'{"a": 1e999}', 400, "out of range"),
        (b'{"a": NaN}', 400, "couldn't parse the body"),
        (b"[" * 5000, 400, "couldn't parse the body"),
        (b"[]", 400, "must be of type Object"),
        (b'"x"', 400, "must be of type Object"),
        (b'{"apiVersion":"example.test/v1","metadata":{"name":"x"}}', 400, "'Kind' is missing"),
        (b'{"apiVersion":"example.test/v2","kind":"Widget"}', 400, "does not match the expected API version"),
        (
            b'{"apiVersion":"example.test/v1","kind":"Widget","metadata":[]}',
            400,
            "cannot unmarshal array into Go value of type v1.ObjectMeta",
        ),
        (
            b'{"apiVersion":"example.test/v1","kind":"Widget","metadata":{"name":5}}',
            400,
            "cannot unmarshal into field metadata.name",
        ),
        (b'{"kind":"Widget","apiVersion":"example.test/v1","metadata":{"name":"a","namespace":"b"}}', 400, "namespace"),
        (b'{"kind":"Widget","apiVersion":"example.test/v1","metadata":{"name":"\\ud800"}}', 400, "couldn't parse"),
        (b" " * (3 * 2**20 + 1), 413, "limit"),
    ],
)
async def test_bad_bodies_get_a_status(widgets: ApiSession, body: bytes, code: int, text: str) -> None:
    before = widgets.api.store.revision
    reported = await widgets.ask("POST", WIDGETS, body)
    assert (reported.code, reported.body["kind"]) == (code, "Status"), reported.body
    assert text in reported.body["message"]
    assert widgets.api.store.revision == before


@pytest.mark.parametrize("depth", [300, 900, 5000])
async def test_deep_nesting_is_refused(session: ApiSession, depth: int) -> None:
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await session.define(a_crd(spec=spec))
    body = (
        b'{"apiVersion":"example.test/v1","kind":"Widget","metadata":{"name":"deep"},"spec":'
        + b'{"a":' * depth
        + b"1"
        + b"}" * (depth + 1)
    )
    reported = await session.ask("POST", WIDGETS, body)
    assert (reported.code, reported.body["reason"]) == (400, "BadRequest")
    assert (await session.get(WIDGETS)).body["items"] == []


async def test_unknown_fields_by_validation_level(widgets: ApiSession) -> None:
    body = a_widget(spec={"size": 1, "sise": 2, "ports": [{"name": "a", "port": 1, "x": 1}]}, metadata={"extra": 1})
    strict = await widgets.post(WIDGETS, body, fieldValidation="Strict")
    assert strict.code == 400
    assert 'strict decoding error: unknown field "metadata.extra"' in strict.body["message"]
    assert (
        'unknown field "metadata.extra", unknown field "spec.ports[0].x", unknown field "spec.sise"'
        in strict.body["message"]
    )
    warned = await widgets.post(WIDGETS, body)
    assert warned.code == 201
    assert '299 - "unknown field \\"spec.sise\\""' in warned.warnings
    assert "sise" not in warned.body["spec"]
    silent = await widgets.post(WIDGETS, a_widget("two", spec={"size": 1, "sise": 2}), fieldValidation="Ignore")
    assert (silent.code, silent.warnings) == (201, [])


async def test_duplicate_keys(widgets: ApiSession) -> None:
    body = b'{"apiVersion":"example.test/v1","kind":"Widget","metadata":{"name":"d"},"spec":{"size":1,"size":2}}'
    reported = await widgets.ask("POST", WIDGETS, body, fieldValidation="Strict")
    assert (reported.code, 'duplicate field "spec.size"' in reported.body["message"]) == (400, True)


async def test_update_needs_the_present_version(widgets: ApiSession) -> None:
    made = (await widgets.post(WIDGETS, a_widget())).body
    nothing = await widgets.put(f"{WIDGETS}/one", a_widget())
    assert nothing.causes == {"metadata.resourceVersion": "Invalid value: 0x0: must be specified for an update"}
    made["spec"]["size"] = 4
    fresh = await widgets.put(f"{WIDGETS}/one", made)
    assert (fresh.code, fresh.body["metadata"]["generation"]) == (200, 2)
    stale = await widgets.put(f"{WIDGETS}/one", made)
    assert (stale.code, stale.body["reason"]) == (409, "Conflict")
    assert "the object has been modified; please apply your changes to the latest version" in stale.body["message"]


async def test_parallel_updates_have_one_winner(widgets: ApiSession) -> None:
    made = (await widgets.post(WIDGETS, a_widget())).body
    bodies = [made | {"spec": {"size": size}} for size in range(10, 20)]
    reported = await asyncio.gather(*(widgets.put(f"{WIDGETS}/one", body) for body in bodies))
    assert sorted(answer.code for answer in reported) == [200] + [409] * 9


async def test_parallel_patches_all_hold(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget())
    patches = [{"metadata": {"labels": {f"l{index}": "x"}}} for index in range(12)]
    reported = await asyncio.gather(*(widgets.patch(f"{WIDGETS}/one", patch) for patch in patches))
    assert {answer.code for answer in reported} == {200}
    assert len((await widgets.get(f"{WIDGETS}/one")).body["metadata"]["labels"]) == 12


async def test_nothing_changed_keeps_the_version(widgets: ApiSession) -> None:
    made = (await widgets.post(WIDGETS, a_widget())).body
    widgets.clock.moment += 60
    again = await widgets.put(f"{WIDGETS}/one", made)
    patched = await widgets.patch(f"{WIDGETS}/one", {"spec": {"size": 3}})
    assert again.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert patched.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_status_is_an_endpoint_of_its_own(widgets: ApiSession) -> None:
    made = await widgets.post(WIDGETS, a_widget(status={"size": 9}))
    assert "status" not in made.body
    reported = await widgets.patch(
        f"{WIDGETS}/one/status", {"status": {"size": 3}, "spec": {"size": 50}, "metadata": {"labels": {"a": "b"}}}
    )
    assert reported.code == 200
    assert reported.body["status"] == {"size": 3}
    assert reported.body["spec"]["size"] == 3
    assert reported.body["metadata"]["generation"] == 1
    assert "labels" not in reported.body["metadata"]
    main = await widgets.patch(f"{WIDGETS}/one", {"status": {"size": 7}, "metadata": {"labels": {"a": "b"}}})
    assert main.body["status"] == {"size": 3}
    assert main.body["metadata"]["generation"] == 1


async def test_scale(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget())
    scale = await widgets.get(f"{WIDGETS}/one/scale")
    assert (scale.body["kind"], scale.body["spec"]) == ("Scale", {"replicas": 3})
    reported = await widgets.patch(f"{WIDGETS}/one/scale", {"spec": {"replicas": 5}})
    assert (reported.code, reported.body["spec"]) == (200, {"replicas": 5})
    one = (await widgets.get(f"{WIDGETS}/one")).body
    assert (one["spec"]["size"], one["metadata"]["generation"]) == (5, 2)
    assert (await widgets.patch(f"{WIDGETS}/one/scale", {"spec": {"replicas": -1}})).code == 422
    assert (await widgets.patch(f"{WIDGETS}/one/scale", {"spec": {"replicas": 500}})).code == 422
    stale = await widgets.put(f"{WIDGETS}/one/scale", scale.body)
    assert stale.code == 409


async def test_patches(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget(spec={"size": 3, "labels": {"a": "1", "b": "2"}}))
    path = f"{WIDGETS}/one"
    merged = await widgets.patch(path, {"spec": {"labels": {"a": None, "c": "3"}}})
    assert merged.body["spec"]["labels"] == {"b": "2", "c": "3"}
    good = [{"op": "test", "path": "/spec/size", "value": 3}, {"op": "replace", "path": "/spec/size", "value": 4}]
    assert (await widgets.patch(path, good, JSON_PATCH)).body["spec"]["size"] == 4
    assert (await widgets.patch(path, good, JSON_PATCH)).code == 422
    assert (await widgets.patch(path, [{"op": "replace", "path": "/spec/nope/x", "value": 1}], JSON_PATCH)).code == 422
    strategic = await widgets.patch(path, {"spec": {"size": 5}}, STRATEGIC)
    assert (strategic.code, strategic.body["reason"]) == (415, "UnsupportedMediaType")
    assert (await widgets.patch(f"{WIDGETS}/two", {"spec": {}})).code == 404
    assert (await widgets.patch(path, {"metadata": {"resourceVersion": "1"}, "spec": {"size": 6}})).code == 409
    assert (await widgets.patch(path, {"spec": {"size": 4}}, MERGE_BAD := "text/plain")).code == 415, MERGE_BAD


async def test_dry_run_changes_nothing(widgets: ApiSession) -> None:
    before = widgets.api.store.revision
    assert (await widgets.post(WIDGETS, a_widget(), dryRun="All")).code == 201
    assert (await widgets.post(WIDGETS, a_widget(spec={}), dryRun="All")).code == 422
    assert (await widgets.post(WIDGETS, a_widget(), dryRun="Some")).code == 422
    assert widgets.api.store.revision == before
    await widgets.post(WIDGETS, a_widget())
    before = widgets.api.store.revision
    assert (await widgets.patch(f"{WIDGETS}/one", {"spec": {"size": 9}}, dryRun="All")).body["spec"]["size"] == 9
    assert (await widgets.delete(f"{WIDGETS}/one", {"dryRun": ["All"]})).code == 200
    assert (await widgets.get(f"{WIDGETS}/one")).body["spec"]["size"] == 3
    assert widgets.api.store.revision == before


async def test_delete_answers_status_with_uid(widgets: ApiSession) -> None:
    made = (await widgets.post(WIDGETS, a_widget())).body
    reported = await widgets.delete(f"{WIDGETS}/one", {"propagationPolicy": "Background"})
    assert (reported.code, reported.body["status"], reported.body["details"]["uid"]) == (
        200,
        "Success",
        made["metadata"]["uid"],
    )
    assert (await widgets.get(f"{WIDGETS}/one")).body["message"] == 'widgets.example.test "one" not found'
    assert (await widgets.delete(f"{WIDGETS}/one")).code == 404


async def test_finalizers_hold_a_deleted_object(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget(metadata={"finalizers": ["example.test/hold", "example.test/other"]}))
    path = f"{WIDGETS}/one"
    first = await widgets.delete(path)
    assert first.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert first.body["metadata"]["generation"] == 2
    again = await widgets.delete(path)
    assert again.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
    added = await widgets.patch(path, {"metadata": {"finalizers": ["example.test/hold", "example.test/new"]}})
    assert added.causes["metadata.finalizers"] == (
        "Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.test/new"}'
    )
    assert (await widgets.patch(path, {"metadata": {"deletionTimestamp": None}})).body["metadata"]["deletionTimestamp"]
    assert (await widgets.patch(path, {"metadata": {"finalizers": ["example.test/hold"]}})).code == 200
    assert (await widgets.patch(path, {"metadata": {"finalizers": None}})).code == 200
    assert (await widgets.get(path)).code == 404


async def test_delete_preconditions(widgets: ApiSession) -> None:
    made = (await widgets.post(WIDGETS, a_widget())).body
    reported = await widgets.delete(f"{WIDGETS}/one", {"preconditions": {"uid": "other"}})
    assert (reported.code, "the UID in the precondition" in reported.body["message"]) == (409, True)
    assert (await widgets.delete(f"{WIDGETS}/one", {"preconditions": {"uid": made["metadata"]["uid"]}})).code == 200


async def test_delete_collection_by_selector(widgets: ApiSession) -> None:
    for name in ("a", "b", "c"):
        await widgets.post(WIDGETS, a_widget(name, metadata={"labels": {"x": "1" if name < "c" else "2"}}))
    reported = await widgets.delete(WIDGETS, labelSelector="x=1")
    assert [item["metadata"]["name"] for item in reported.body["items"]] == ["a", "b"]
    left = (await widgets.get(WIDGETS)).body["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]


async def test_builtin_unconditional_update_and_plain_items(session: ApiSession) -> None:
    made = await session.post(CM, {"metadata": {"name": "c"}, "data": {"a": "1"}})
    assert (made.body["kind"], made.body["apiVersion"]) == ("ConfigMap", "v1")
    assert "generation" not in made.body["metadata"]
    reported = await session.put(f"{CM}/c", {"metadata": {"name": "c"}, "data": {"a": "2"}})
    assert (reported.code, reported.body["data"]) == (200, {"a": "2"})
    listed = (await session.get(CM)).body
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert "kind" not in listed["items"][0]
    wrong = await session.post(CM, {"metadata": {"name": "d"}, "data": {"a": 1}})
    assert (wrong.code, "data" in wrong.body["message"]) == (400, True)


async def test_who_may(session: ApiSession) -> None:
    stranger = ApiSession(session.api, session.clock, "nobody-knows-this")
    assert (await stranger.get("/api/v1/pods")).code == 401
    anonymous = ApiSession(session.api, session.clock, "")
    assert (await anonymous.get("/api/v1/pods")).code == 403
    for path in ("/livez", "/readyz", "/healthz", "/version", "/version/"):
        assert (await anonymous.get(path)).code == 200


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/apis/none.test", 404),
        ("GET", "/apis/none.test/v1", 404),
        ("GET", "/apis/none.test/v1/things", 404),
        ("GET", "/api/v1/nothings", 404),
        ("POST", "/api/v1/configmaps", 405),
        ("POST", "/api", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews", 405),
        ("GET", "/api/v1/namespaces/default/configmaps/x/status", 404),
    ],
)
async def test_wrong_paths_and_methods(session: ApiSession, method: str, path: str, code: int) -> None:
    reported = await session.ask(method, path)
    page = path.startswith(("/nothing", "/apis/none.test"))  # outside of every group there is no Status
    assert (reported.code, reported.body if page else reported.body["kind"]) == (
        code,
        "404 page not found\n" if page else "Status",
    )


async def test_everything_survives_a_restart(tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/kube.db"
    async with a_server(url) as session:
        await session.define(a_crd())
        made = (await session.post(WIDGETS, a_widget())).body
        await session.post(WIDGETS, a_widget("gone"))
        await session.delete(f"{WIDGETS}/gone")
        revision = session.api.store.revision
    async with a_server(url) as session:
        assert session.api.store.revision == revision
        assert (await session.get(f"{WIDGETS}/one")).body == made
        assert (await session.get(f"{WIDGETS}/gone")).code == 404
        async with session.watch(WIDGETS, resourceVersion=made["metadata"]["resourceVersion"]) as stream:
            assert await stream.brief() == ("ADDED", "gone")
            assert await stream.brief() == ("DELETED", "gone")
        later = await session.post(WIDGETS, a_widget("two"))
        assert int(later.body["metadata"]["resourceVersion"]) == revision + 1


async def test_numbers_read_back_as_they_were_meant(session: ApiSession) -> None:
    await session.define(a_crd(spec={"type": "object", "x-kubernetes-preserve-unknown-fields": True}))
    spec = b'{"a":1.0,"b":9223372036854775807,"c":1.5,"d":-0.0,"e":1e3,"f":9223372036854775808}'
    body = b'{"apiVersion":"example.test/v1","kind":"Widget","metadata":{"name":"n"},"spec":' + spec + b"}"
    reported = await session.ask("POST", WIDGETS, body)
    assert reported.body["spec"] == {"a": 1, "b": 2**63 - 1, "c": 1.5, "d": 0, "e": 1000, "f": 2.0**63}
