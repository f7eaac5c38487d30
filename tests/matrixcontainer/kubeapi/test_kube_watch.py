"""Lists and watches: one order for everybody, nothing lost, nothing claimed that was not delivered."""

import asyncio

import pytest

from matrixcontainer.kubeapi.registry.list import encode_continue_token
from matrixcontainer.kubeapi.storage import change_log as history_module
from tests.matrixcontainer.kubeapi.api_session import TABLE, WIDGETS, ApiSession, a_crd, a_widget


async def _make(widgets: ApiSession, *names: str, **labels: str) -> None:
    for name in names:
        reported = await widgets.post(WIDGETS, a_widget(name, metadata={"labels": labels} if labels else {}))
        assert reported.code == 201


async def test_list_is_sorted_and_whole(widgets: ApiSession) -> None:
    await _make(widgets, "b", "a", "c")
    body = (await widgets.get(WIDGETS)).body
    assert (body["kind"], body["apiVersion"]) == ("WidgetList", "example.test/v1")
    assert [item["metadata"]["name"] for item in body["items"]] == ["a", "b", "c"]
    assert body["items"][0]["kind"] == "Widget"
    assert body["metadata"]["resourceVersion"] == str(widgets.api.store.revision)
    empty = (await widgets.get("/apis/example.test/v1/namespaces/none/widgets")).body
    assert empty["items"] == []


async def test_pages_show_one_moment(widgets: ApiSession) -> None:
    await _make(widgets, "a", "b", "c", "d", "e")
    first = (await widgets.get(WIDGETS, limit=2)).body
    assert first["metadata"]["remainingItemCount"] == 3
    await widgets.delete(f"{WIDGETS}/c")
    await widgets.patch(f"{WIDGETS}/d", {"spec": {"size": 50}})
    await _make(widgets, "c2")
    second = (await widgets.get(WIDGETS, limit=2, **{"continue": first["metadata"]["continue"]})).body
    assert [(i["metadata"]["name"], i["spec"]["size"]) for i in second["items"]] == [("c", 3), ("d", 3)]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = (await widgets.get(WIDGETS, limit=2, **{"continue": second["metadata"]["continue"]})).body
    assert [i["metadata"]["name"] for i in last["items"]] == ["e"]
    assert not last["metadata"]["continue"]


async def test_bad_and_expired_tokens(widgets: ApiSession) -> None:
    await _make(widgets, "a", "b", "c")
    bad = await widgets.get(WIDGETS, **{"continue": "nonsense"})
    assert (bad.code, bad.body["message"]) == (400, "continue key is not valid")
    first = (await widgets.get(WIDGETS, limit=1)).body
    await widgets.patch(f"{WIDGETS}/b", {"spec": {"size": 5}})
    widgets.clock.moment += 10_000
    await widgets.api.store.compact()
    late = await widgets.get(WIDGETS, limit=1, **{"continue": first["metadata"]["continue"]})
    assert (late.code, late.body["reason"]) == (410, "Expired")
    fresh = await widgets.get(WIDGETS, limit=1, **{"continue": late.body["metadata"]["continue"]})
    assert [i["metadata"]["name"] for i in fresh.body["items"]] == ["b"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", "ab"),
        ("app==web,tier!=db", "a"),
        ("app!=web", "c"),
        ("tier in (db, cache)", "b"),
        ("tier notin (db)", "ac"),
        ("tier", "ab"),
        ("!tier", "c"),
    ],
)
async def test_label_selectors(widgets: ApiSession, selector: str, names: str) -> None:
    await _make(widgets, "a", app="web", tier="front")
    await _make(widgets, "b", app="web", tier="db")
    await _make(widgets, "c")
    body = (await widgets.get(WIDGETS, labelSelector=selector)).body
    assert "".join(item["metadata"]["name"] for item in body["items"]) == names


async def test_field_selectors(widgets: ApiSession) -> None:
    await _make(widgets, "a", "b")
    await widgets.patch(f"{WIDGETS}/b", {"spec": {"color": "blue"}})
    for selector, names in (("metadata.name=a", "a"), ("metadata.name!=a", "b"), ("spec.color=blue", "b")):
        body = (await widgets.get(WIDGETS, fieldSelector=selector)).body
        assert "".join(item["metadata"]["name"] for item in body["items"]) == names
    wrong = await widgets.get(WIDGETS, fieldSelector="spec.size=3")
    assert (wrong.code, wrong.body["message"]) == (400, "field label not supported: spec.size")
    assert (await widgets.get(WIDGETS, labelSelector="a=b=c")).code == 400


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resourceVersion": "0"}, 200),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "x"}, 400),
        ({"resourceVersion": "999999", "resourceVersionMatch": "NotOlderThan"}, 504),
        ({"sendInitialEvents": "true"}, 422),
        ({"limit": "x"}, 400),
    ],
)
async def test_list_options(widgets: ApiSession, query: dict, code: int) -> None:
    assert (await widgets.get(WIDGETS, **query)).code == code


async def test_exact_list_returns_the_past_state(widgets: ApiSession) -> None:
    await _make(widgets, "a")
    revision = widgets.api.store.revision
    await _make(widgets, "b")
    body = (await widgets.get(WIDGETS, resourceVersion=revision, resourceVersionMatch="Exact")).body
    assert [i["metadata"]["name"] for i in body["items"]] == ["a"]


async def test_paging_from_a_revision_returns_the_past_state(widgets: ApiSession) -> None:
    await _make(widgets, "a", "b")
    revision = widgets.api.store.revision
    await _make(widgets, "c")
    first = (await widgets.get(WIDGETS, resourceVersion=revision, limit=1)).body
    rest = (await widgets.get(WIDGETS, **{"continue": first["metadata"]["continue"]})).body
    assert [i["metadata"]["name"] for i in first["items"] + rest["items"]] == ["a", "b"]
    assert first["metadata"]["resourceVersion"] == rest["metadata"]["resourceVersion"] == str(revision)
    newer = (await widgets.get(WIDGETS, resourceVersion=revision, limit=9, resourceVersionMatch="NotOlderThan")).body
    assert len(newer["items"]) == len((await widgets.get(WIDGETS, resourceVersion=revision)).body["items"]) == 3


async def test_continue_token_from_before_a_restore(widgets: ApiSession) -> None:
    await _make(widgets, "a", "b")
    refused = await widgets.get(
        WIDGETS, **{"continue": encode_continue_token(widgets.api.store.revision + 5, ["default", "a"])}
    )
    assert (refused.code, refused.body["reason"]) == (410, "Expired")
    rest = (await widgets.get(WIDGETS, **{"continue": refused.body["metadata"]["continue"]})).body
    assert [i["metadata"]["name"] for i in rest["items"]] == ["b"]


async def test_watch_shows_present_then_changes(widgets: ApiSession) -> None:
    await _make(widgets, "a")
    async with widgets.watch(WIDGETS) as stream:
        assert await stream.brief() == ("ADDED", "a")
        await _make(widgets, "b")
        await widgets.patch(f"{WIDGETS}/a", {"spec": {"size": 9}})
        await widgets.delete(f"{WIDGETS}/b")
        assert await stream.brief() == ("ADDED", "b")
        assert await stream.brief() == ("MODIFIED", "a")
        last = await stream.event()
        assert last is not None
        assert last["type"] == "DELETED"
        assert int(last["object"]["metadata"]["resourceVersion"]) == widgets.api.store.revision


async def test_watch_from_a_version_replays_in_order(widgets: ApiSession) -> None:
    await _make(widgets, "a")
    revision = widgets.api.store.revision
    await _make(widgets, "b", "c")
    async with widgets.watch(WIDGETS, resourceVersion=revision) as stream:
        assert [await stream.brief(), await stream.brief()] == [("ADDED", "b"), ("ADDED", "c")]


async def test_selector_edges_are_added_and_deleted(widgets: ApiSession) -> None:
    await _make(widgets, "a", app="x")
    revision = widgets.api.store.revision
    async with widgets.watch(WIDGETS, resourceVersion=revision, labelSelector="app=x") as stream:
        await widgets.patch(f"{WIDGETS}/a", {"metadata": {"labels": {"app": "y"}}})
        left = await stream.event()
        assert left is not None
        assert (left["type"], left["object"]["metadata"]["labels"]) == ("DELETED", {"app": "x"})
        assert int(left["object"]["metadata"]["resourceVersion"]) == widgets.api.store.revision
        await widgets.patch(f"{WIDGETS}/a", {"metadata": {"labels": {"app": "x"}}})
        assert await stream.brief() == ("ADDED", "a")


async def test_finalizer_removal_ends_in_deleted_alone(widgets: ApiSession) -> None:
    await widgets.post(WIDGETS, a_widget(metadata={"finalizers": ["example.test/hold"]}))
    revision = widgets.api.store.revision
    async with widgets.watch(WIDGETS, resourceVersion=revision) as stream:
        await widgets.delete(f"{WIDGETS}/one")
        await widgets.patch(f"{WIDGETS}/one", {"metadata": {"finalizers": None}})
        assert [await stream.brief(), await stream.brief()] == [("MODIFIED", "one"), ("DELETED", "one")]


async def test_initial_events_end_with_a_bookmark(widgets: ApiSession) -> None:
    await _make(widgets, "a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with widgets.watch(WIDGETS, **query) as stream:
        assert await stream.brief() == ("ADDED", "a")
        mark = await stream.event()
        assert mark is not None
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    refused = await widgets.get(WIDGETS, watch="true", sendInitialEvents="true")
    assert refused.code == 422


async def test_too_old_is_an_error_event(widgets: ApiSession) -> None:
    await _make(widgets, "a", "b")
    widgets.clock.moment += 10_000
    await widgets.api.store.compact()
    async with widgets.watch(WIDGETS, resourceVersion="1") as stream:
        event = await stream.event()
        assert event is not None
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await stream.event() is None


async def test_a_version_that_a_restored_database_has_not_reached_is_an_error_event(widgets: ApiSession) -> None:
    await _make(widgets, "a")
    ahead = widgets.api.store.revision + 1000
    async with widgets.watch(WIDGETS, resourceVersion=str(ahead)) as stream:
        event = await stream.event()
        assert event is not None
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_watch_ends_at_its_time_with_a_bookmark_before(widgets: ApiSession) -> None:
    await _make(widgets, "a")
    revision = widgets.api.store.revision
    async with widgets.watch(WIDGETS, resourceVersion=revision, timeoutSeconds=1, allowWatchBookmarks="true") as stream:
        mark = await stream.event()
        assert mark is not None
        assert (mark["type"], mark["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", str(revision))
        assert await stream.event() is None


async def test_watch_as_table_and_partial(widgets: ApiSession) -> None:
    revision = widgets.api.store.revision
    async with (
        widgets.watch(WIDGETS, accept=TABLE, resourceVersion=revision) as table,
        widgets.watch(
            WIDGETS,
            accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            resourceVersion=revision,
        ) as partial,
    ):
        await _make(widgets, "a", "b")
        first, second = await table.event(), await table.event()
        assert first is not None
        assert second is not None
        assert [c["name"] for c in first["object"]["columnDefinitions"]] == ["Name", "Size", "Age"]
        assert second["object"]["columnDefinitions"] is None
        assert second["object"]["rows"][0]["cells"] == ["b", 3, "0s"]
        event = await partial.event()
        assert event is not None
        assert (event["object"]["kind"], "spec" in event["object"]) == ("PartialObjectMetadata", False)


async def test_all_watchers_see_one_order(widgets: ApiSession) -> None:
    revision = widgets.api.store.revision
    async with (
        widgets.watch(WIDGETS, resourceVersion=revision) as one,
        widgets.watch("/apis/example.test/v1/widgets", resourceVersion=revision) as two,
        widgets.watch("/apis/example.test/v1/watch/namespaces/default/widgets", resourceVersion=revision) as old,
    ):
        await asyncio.gather(*(_make(widgets, f"w{index}") for index in range(20)))
        seen = [[(await stream.brief())[1] for _ in range(20)] for stream in (one, two, old)]
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == 20


async def test_gone_clients_free_their_watch(widgets: ApiSession) -> None:
    async with widgets.watch(WIDGETS) as stream:
        await _make(widgets, "a")
        await stream.event()
        assert len(widgets.api.store.log("widgets.example.test").waiters) == 1
    assert not widgets.api.store.log("widgets.example.test").waiters


async def test_watch_ends_when_its_definition_is_deleted(widgets: ApiSession) -> None:
    await _make(widgets, "a")
    async with widgets.watch(WIDGETS, resourceVersion=widgets.api.store.revision) as stream:
        await widgets.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.test")
        assert await stream.brief() == ("DELETED", "a")
        assert await stream.event() is None
    assert (await widgets.get(WIDGETS)).code == 404


async def test_history_is_bounded(widgets: ApiSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "HISTORY_CHANGES_MAX", 10)
    await _make(widgets, *(f"w{index}" for index in range(30)))
    store = widgets.api.store
    assert len(store.history.changes) == 10
    assert store.compacted_revision == store.revision - 10


async def test_definition_again_after_deletion(widgets: ApiSession) -> None:
    await _make(widgets, "a")
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.test"
    await widgets.delete(path)
    await widgets.until(path, lambda reported: reported.code == 404)
    await widgets.define(a_crd())
    assert (await widgets.get(WIDGETS)).body["items"] == []
