"""Watches: what arrives, in which order, from where, and how they end."""

from typing import Any

from tests.conformance.api_session import APPLY, TABLE, ApiSession, brief
from tests.conformance.catalogue import case, rows
from tests.conformance.things import GROUP, W, config_map, widget


@case("P0", "Watchers should observe add, update, and delete watch notifications on configmaps")
def watch_sees_everything(session: ApiSession) -> None:
    for path, body, change in (
        ("~configmaps", config_map(labels={"w": "1"}), {"data": {"k": "w"}}),
        (W, widget(metadata={"labels": {"w": "1"}}), {"spec": {"size": 4}}),
    ):
        session.ns  # noqa: B018
        with session.watch(path, labelSelector="w=1") as stream:
            session.post(path, body)
            session.patch(f"{path}/one", change)
            gone = session.get(f"{path}/one").rv
            session.delete(f"{path}/one")
            events = stream.take(3)
        assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert int(events[2]["object"]["metadata"]["resourceVersion"]) > int(gone)
        assert all(event["object"]["kind"] for event in events)


@case("P0", "Watchers should be able to start watching from a specific resource version")
def watch_from_a_version(session: ApiSession) -> None:
    session.post(W, widget())
    since = session.patch(f"{W}/one", {"spec": {"size": 4}}).rv
    session.patch(f"{W}/one", {"spec": {"size": 5}})
    session.delete(f"{W}/one")
    with session.watch(W, resourceVersion=since) as stream:
        events = stream.take(2)
    assert brief(events) == [("MODIFIED", "one"), ("DELETED", "one")]


@case("P0", "Watchers should be able to restart watching from the last resource version observed by the previous watch")
def watch_resumes(session: ApiSession) -> None:
    since = session.get(W).rv
    session.post(W, widget())
    with session.watch(W, resourceVersion=since) as stream:
        last = stream.take(1)[0]["object"]["metadata"]["resourceVersion"]
    session.patch(f"{W}/one", {"spec": {"size": 5}})
    session.post(W, widget("two"))
    with session.watch(W, resourceVersion=last) as stream:
        assert brief(stream.take(2)) == [("MODIFIED", "one"), ("ADDED", "two")]


@case("P0")
def watch_begins_with_what_is_there(session: ApiSession) -> None:
    for name in ("b", "a", "c"):
        session.post(W, widget(name), note=False)
    for query in ({}, {"resourceVersion": "0"}):
        with session.watch(W, **query) as stream:
            found = [stream.event() for _ in range(3)]
            session.note("names", sorted(brief(found)))  # type: ignore[arg-type]
            session.patch(f"{W}/a", {"metadata": {"labels": {"x": str(len(query))}}}, note=False)
            assert brief(stream.take(1)) == [("MODIFIED", "a")]


@case("P0", "Watchers should observe an object deletion if it stops meeting the requirements of the selector")
def watch_selector_edges(session: ApiSession) -> None:
    session.ns  # noqa: B018
    with session.watch(W, labelSelector="in=yes") as stream, session.watch(W, fieldSelector="spec.color=blue") as blues:
        session.post(W, widget(metadata={"labels": {"in": "yes"}}))
        session.patch(f"{W}/one", {"metadata": {"labels": {"in": "no"}}})
        session.patch(f"{W}/one", {"spec": {"color": "blue"}})
        session.patch(f"{W}/one", {"metadata": {"labels": {"in": "yes"}}})
        session.patch(f"{W}/one", {"spec": {"color": "red"}})
        session.delete(f"{W}/one")
        assert [event["type"] for event in stream.take(5)] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
        assert [event["type"] for event in blues.take(3)] == ["ADDED", "MODIFIED", "DELETED"]


@case("P0")
def watch_of_one_name(session: ApiSession) -> None:
    session.post(W, widget("two"))
    with session.watch(W, fieldSelector="metadata.name=one") as stream:
        session.post(W, widget())
        session.patch(f"{W}/two", {"spec": {"size": 9}})
        session.delete(f"{W}/one")
        assert brief(stream.take(2)) == [("ADDED", "one"), ("DELETED", "one")]


@case("P1")
def watch_by_the_old_paths(session: ApiSession) -> None:
    session.post("~configmaps", config_map(labels={"w": "1"}))
    with session.watch(f"/api/v1/watch/namespaces/{session.ns}/configmaps", labelSelector="w=1") as stream:
        assert brief(stream.take(1)) == [("ADDED", "one")]
    with session.watch(f"/api/v1/watch/namespaces/{session.ns}/configmaps/one") as stream:
        assert brief(stream.take(1)) == [("ADDED", "one")]


@case("P0", "Watchers should receive events on concurrent watches in same order")
def watchers_agree_on_the_order(session: ApiSession) -> None:
    since = session.get(W, note=False).rv
    for i in range(6):
        session.post(W, widget(f"w{i}"), note=False)
        session.patch(f"{W}/w{i // 2}", {"metadata": {"labels": {"at": str(i)}}}, note=False)
    orders = []
    for _ in range(3):
        with session.watch(W, resourceVersion=since) as stream:
            orders.append(
                [
                    (e["type"], e["object"]["metadata"]["name"], e["object"]["metadata"]["resourceVersion"])
                    for e in (stream.event() for _ in range(12))
                    if e
                ]
            )
    assert orders[0] == orders[1] == orders[2]
    assert [int(rv) for *_, rv in orders[0]] == sorted(int(rv) for *_, rv in orders[0])
    session.note("order", [one[:2] for one in orders[0]])


@case("P0")
def watch_ends_in_time(session: ApiSession) -> None:
    session.post(W, widget())
    with session.watch(W, timeoutSeconds=1) as stream:
        assert brief(stream.rest()) == [("ADDED", "one")]


@case("P0")
def watch_bookmarks(session: ApiSession) -> None:
    made = session.post(W, widget())
    with session.watch(W, resourceVersion=made.rv, allowWatchBookmarks=True, timeoutSeconds=3) as stream:
        session.quietly("PATCH", f"{W}/one", {"spec": {"size": 8}}, kind="application/merge-patch+json")
        events = []
        while (event := stream.event()) is not None:
            events.append(event)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "MODIFIED"
    assert kinds[-1] == "BOOKMARK"
    mark = events[-1]["object"]
    assert int(mark["metadata"]["resourceVersion"]) >= int(events[0]["object"]["metadata"]["resourceVersion"])
    session.note("bookmark", mark)


@case("P1", "API Streaming (WatchList) should be requested by informers")
def watch_with_initial_events(session: ApiSession) -> None:
    for name in ("a", "b"):
        session.post(W, widget(name), note=False)
    query = {
        "sendInitialEvents": True,
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": True,
        "timeoutSeconds": 5,
    }
    with session.watch(W, **query) as stream:
        if stream.code != 200:  # the real server has this behind a gate that is off in 1.33
            session.note("refused", None)
            return
        found = stream.take(3, bookmarks=True)
    assert found[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def refused_watch(session: ApiSession, path: str, code: int, query: dict[str, Any]) -> None:
    session.get(path, want=code, watch=True, **query)


rows(
    "P0",
    "watches",
    "refused",
    [
        ("match without initial events", W, 422, {"resourceVersionMatch": "NotOlderThan"}),
        ("bad labels", W, 400, {"labelSelector": "a in b"}),
        ("unknown field", W, 400, {"fieldSelector": "spec.note=a"}),
        ("bad timeout", W, 400, {"timeoutSeconds": "soon"}),
        ("unknown resource", "~nothings", 404, {}),
    ],
    refused_watch,
)


rows(
    "P2",
    "watches",
    "refused",
    [
        ("bad version", W, 500, {"resourceVersion": "abc"}),
        ("bad built-in version", "~configmaps", 500, {"resourceVersion": "abc"}),
    ],
    refused_watch,
)


@case("P0", "Watchers too old a version")
def watch_too_old(session: ApiSession) -> None:
    """Either the stream says it in an ERROR event, or the answer is 410; the Status is the same."""
    session.post("~configmaps", config_map(), note=False)
    with session.watch("~configmaps", resourceVersion="1") as stream:
        event = stream.event() or {}
    if event.get("type") == "ADDED":  # a history that goes back to the beginning is no fault
        return
    status = event["object"] if stream.code == 200 else event
    assert status["code"] == 410
    assert status["reason"] == "Expired"
    assert status["message"].startswith("too old resource version: 1 (")


@case("P1")
def watch_in_a_table(session: ApiSession) -> None:
    session.ns  # noqa: B018
    with session.watch(W, accept=TABLE) as stream:
        session.post(W, widget(), note=False)
        session.patch(f"{W}/one", {"spec": {"size": 4}}, note=False)
        events = stream.take(2)
    assert events[0]["object"]["columnDefinitions"]
    assert not events[1]["object"].get("columnDefinitions")


@case("P1")
def watch_in_partial_form(session: ApiSession) -> None:
    session.ns  # noqa: B018
    with session.watch(
        W, accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
    ) as stream:
        session.post(W, widget(), note=False)
        events = stream.take(1)
    assert "spec" not in events[0]["object"]


@case("P1", "CustomResourceDefinition Watch: watch on custom resource definition objects")
def watch_of_all_namespaces(session: ApiSession) -> None:
    session.ns  # noqa: B018
    with session.watch(f"/apis/{GROUP}/v1/widgets", fieldSelector=f"metadata.namespace={session.ns}") as stream:
        session.post(W, widget("b"), note=False)
        session.post(W, widget("a"), note=False)
        assert brief(stream.take(2)) == [("ADDED", "b"), ("ADDED", "a")]


@case("P1")
def watch_sees_no_event_of_nothing(session: ApiSession) -> None:
    """Writes that change nothing are silent; applies by another manager are not."""
    made = session.post(W, widget())
    with session.watch(W, resourceVersion=made.rv) as stream:
        session.put(f"{W}/one", made.body, note=False)
        session.patch(f"{W}/one", {}, note=False)
        session.patch(f"{W}/one", {"spec": {"size": 3}}, kind=APPLY, fieldManager="x", want=400)
        session.apply(f"{W}/one", widget(), "shares", note=False)
        session.delete(f"{W}/one", dryRun="All", note=False)
        session.delete(f"{W}/one", note=False)
        assert brief(stream.take(2)) == [("MODIFIED", "one"), ("DELETED", "one")]


@case("P1")
def watch_of_a_finalized_deletion(session: ApiSession) -> None:
    made = session.post(W, widget(metadata={"finalizers": ["conformance.test/a", "conformance.test/b"]}))
    with session.watch(W, resourceVersion=made.rv) as stream:
        session.delete(f"{W}/one")
        session.patch(f"{W}/one", {"metadata": {"finalizers": ["conformance.test/a"]}})
        session.patch(f"{W}/one", {"metadata": {"finalizers": None}})
        assert [event["type"] for event in stream.take(3)] == ["MODIFIED", "MODIFIED", "DELETED"]
