"""Lists: order, selectors, pages over one snapshot, versions."""

from typing import Any

from tests.conformance.api_session import ApiSession
from tests.conformance.catalogue import case, rows
from tests.conformance.things import GROUP, W, config_map, pod, secret, widget


def make_some(session: ApiSession) -> None:
    """Five widgets and five config maps, with colours and tiers."""
    for i, (color, tier) in enumerate([("red", "a"), ("green", "b"), ("blue", "a"), ("red", "b"), ("green", "c")]):
        labels = {"color": color, "tier": tier, "n": str(i)} | ({"odd": ""} if i % 2 else {})
        session.quietly("POST", W, widget(f"w{i}", spec={"color": color, "size": i}, metadata={"labels": labels}))
        session.quietly("POST", "~configmaps", config_map(f"c{i}", labels=labels))


@case("P0")
def list_shape(session: ApiSession) -> None:
    empty = session.get(W)
    assert empty["items"] == []
    assert empty["kind"] == "WidgetList"
    make_some(session)
    reported = session.get(W)
    assert reported.names == ["w0", "w1", "w2", "w3", "w4"]
    assert all(item["kind"] == "Widget" for item in reported["items"])
    reported = session.get("~configmaps", labelSelector="color")
    assert reported["kind"] == "ConfigMapList"
    assert all("kind" not in item for item in reported["items"])


@case("P0")
def list_of_all_namespaces(session: ApiSession) -> None:
    make_some(session)
    reported = session.get(f"/apis/{GROUP}/v1/widgets", labelSelector="tier in (a,b)", note=False)
    session.note(
        "names", [item["metadata"]["name"] for item in reported["items"] if item["metadata"]["namespace"] == session.ns]
    )
    assert session.get("/api/v1/namespaces/not-there/configmaps")["items"] == []


def labels(session: ApiSession, path: str, selector: str, names: str) -> None:
    make_some(session)
    reported = session.get(path, labelSelector=selector, note=False)
    session.note("names", [name for name in reported.names if name != "kube-root-ca.crt"])
    assert "".join(name[1] for name in reported.names if name != "kube-root-ca.crt") == names


SELECTORS = [
    ("color=red", "03"), ("color==red", "03"), ("color!=red", "124"), ("color in (red,blue)", "023"), ("color notin (red,blue)", "14"),
    ("odd", "13"), ("!odd", "024"), ("color=red,tier=a", "0"), ("color=red,!odd", "0"), ("odd=", "13"), ("n>2", "34"), ("n<2", "01"), ("none", ""),
]  # fmt: skip
rows("P0", "lists", "widgets with", [(text, W, text, names) for text, names in SELECTORS], labels)
rows("P1", "lists", "config maps with", [(text, "~configmaps", text, names) for text, names in SELECTORS[4:8]], labels)


def fields(session: ApiSession, path: str, selector: str, names: str) -> None:
    make_some(session)
    reported = session.get(path, fieldSelector=selector, note=False)
    assert "".join(name[1] for name in reported.names if name != "kube-root-ca.crt") == names
    session.note("names", reported.names)


rows(
    "P0",
    "lists",
    "field selector",
    [
        ("name", W, "metadata.name=w1", "1"),
        ("not name", W, "metadata.name!=w1", "0234"),
        ("name twice", W, "metadata.name==w1,metadata.name=w2", ""),
        ("custom field", W, "spec.color=green", "14"),
        ("custom fields", W, "spec.color=green,spec.size=4", "4"),
        ("not custom field", W, "spec.color!=green", "023"),
        ("config map name", "~configmaps", "metadata.name=c3", "3"),
    ],
    fields,
)


def refused_list(session: ApiSession, path: str, code: int, query: dict[str, Any]) -> None:
    reported = session.get(path, want=code, **query)
    assert reported["kind"] == "Status"


rows(
    "P0",
    "lists",
    "refused",
    [
        ("bad label selector", "~configmaps", 400, {"labelSelector": "a in b"}),
        ("bad label value", "~configmaps", 400, {"labelSelector": "a=b c"}),
        ("bad label key", "~configmaps", 400, {"labelSelector": "a b"}),
        ("unclosed label set", "~configmaps", 400, {"labelSelector": "a in (b"}),
        ("bad custom label selector", W, 400, {"labelSelector": "=x"}),
        ("unknown field", "~configmaps", 400, {"fieldSelector": "data.k=v"}),
        ("unknown custom field", W, 400, {"fieldSelector": "spec.note=v"}),
        ("bad field selector", W, 400, {"fieldSelector": "metadata.name"}),
        ("bad continue", "~configmaps", 400, {"continue": "nonsense", "limit": 2}),
        ("bad custom continue", W, 400, {"continue": "nonsense"}),
        ("match without a version", "~configmaps", 422, {"resourceVersionMatch": "Exact"}),
        ("unknown match", "~configmaps", 422, {"resourceVersionMatch": "Sometimes", "resourceVersion": "1"}),
        ("exact zero", "~configmaps", 422, {"resourceVersionMatch": "Exact", "resourceVersion": "0"}),
        ("initial events", "~configmaps", 422, {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}),
        ("bad version", "~configmaps", 400, {"resourceVersion": "abc"}),
        ("bad limit", "~configmaps", 400, {"limit": "many"}),
        ("future version", "~configmaps", 504, {"resourceVersion": "99999999", "resourceVersionMatch": "NotOlderThan"}),
    ],
    refused_list,
)


@case("P0", "Servers with support for API chunking should return chunks of results for list calls")
def pages_show_one_snapshot(session: ApiSession) -> None:
    for path in (W, "~configmaps"):
        make_some(session)
        query: dict[str, Any] = {"limit": 2}
        if path != W:
            query["labelSelector"] = "color"
        names: list[str] = []
        versions = set()
        reported = session.get(path, **query)
        first = reported
        session.quietly("POST", path, widget("w9") if path == W else config_map("c9", labels={"color": "x"}))
        session.quietly("DELETE", f"{path}/{reported.names[0][0]}4")
        while True:
            names += reported.names
            versions.add(reported.rv)
            token = reported["metadata"].get("continue")
            if not token:
                break
            reported = session.get(path, **query | {"continue": token})
        assert len(versions) == 1
        assert [name[1] for name in names] == list("01234")
        if path == W:
            assert first["metadata"]["remainingItemCount"] == 3


@case("P1")
def page_of_all(session: ApiSession) -> None:
    make_some(session)
    reported = session.get(W, limit=5)
    assert not reported["metadata"].get("continue")
    reported = session.get(W, limit=500)
    assert not reported["metadata"].get("continue")
    session.get(W, limit=0)


@case("P1")
def list_at_versions(session: ApiSession) -> None:
    make_some(session)
    before = session.get(W, note=False).rv
    session.quietly("DELETE", f"{W}/w0")
    assert session.get(W, resourceVersion="0", note=False).code == 200
    assert len(session.get(W, resourceVersion=before, resourceVersionMatch="Exact").names) == 5
    assert len(session.get(W, resourceVersion=before, resourceVersionMatch="NotOlderThan").names) == 4


@case("P1")
def get_at_a_version(session: ApiSession) -> None:
    made = session.post("~configmaps", config_map())
    session.until(
        "~configmaps/one", lambda reported: reported.code == 200, resourceVersion=made.rv
    )  # a slow cache says 504
    session.get("~configmaps/one", resourceVersion="0")


@case("P1")
def fields_of_pods_and_secrets(session: ApiSession) -> None:
    session.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    session.quietly("POST", "~pods", pod("a"))
    session.quietly("POST", "~pods", pod("b", nodeName="conformance-x", restartPolicy="Never"))
    session.quietly("POST", "~secrets", secret("a", type="conformance.test/x"))
    for path, selector in (
        ("~pods", "spec.nodeName=conformance-x"),
        ("~pods", "spec.nodeName="),
        ("~pods", "status.phase=Pending"),
        ("~pods", "status.phase!=Failed,status.phase!=Succeeded"),
        ("~pods", "spec.restartPolicy=Never"),
        ("~pods", "spec.schedulerName=nobody"),
        ("~pods", "spec.serviceAccountName=default"),
        ("~pods", "status.podIP="),
        ("~pods", "status.nominatedNodeName=x"),
        ("~secrets", "type=conformance.test/x"),
        ("/api/v1/namespaces", f"metadata.name={session.ns},status.phase=Active"),
        ("/api/v1/nodes", "spec.unschedulable=true,metadata.name=conformance-none"),
    ):
        session.note(selector, session.get(path, fieldSelector=selector, note=False).names)
    session.get("~pods", fieldSelector="spec.hostname=x", want=400)
