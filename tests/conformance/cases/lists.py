"""Lists: order, selectors, pages over one snapshot, versions."""

from typing import Any

from tests.conformance.catalogue import case, rows
from tests.conformance.talk import Talk
from tests.conformance.things import GROUP, W, config_map, pod, secret, widget


def make_some(talk: Talk) -> None:
    """Five widgets and five config maps, with colours and tiers."""
    for i, (color, tier) in enumerate([("red", "a"), ("green", "b"), ("blue", "a"), ("red", "b"), ("green", "c")]):
        labels = {"color": color, "tier": tier, "n": str(i)} | ({"odd": ""} if i % 2 else {})
        talk.quietly("POST", W, widget(f"w{i}", spec={"color": color, "size": i}, metadata={"labels": labels}))
        talk.quietly("POST", "~configmaps", config_map(f"c{i}", labels=labels))


@case("P0")
def list_shape(talk: Talk) -> None:
    empty = talk.get(W)
    assert empty["items"] == []
    assert empty["kind"] == "WidgetList"
    make_some(talk)
    reported = talk.get(W)
    assert reported.names == ["w0", "w1", "w2", "w3", "w4"]
    assert all(item["kind"] == "Widget" for item in reported["items"])
    reported = talk.get("~configmaps", labelSelector="color")
    assert reported["kind"] == "ConfigMapList"
    assert all("kind" not in item for item in reported["items"])


@case("P0")
def list_of_all_namespaces(talk: Talk) -> None:
    make_some(talk)
    reported = talk.get(f"/apis/{GROUP}/v1/widgets", labelSelector="tier in (a,b)", note=False)
    talk.note(
        "names", [item["metadata"]["name"] for item in reported["items"] if item["metadata"]["namespace"] == talk.ns]
    )
    assert talk.get("/api/v1/namespaces/not-there/configmaps")["items"] == []


def labels(talk: Talk, path: str, selector: str, names: str) -> None:
    make_some(talk)
    reported = talk.get(path, labelSelector=selector, note=False)
    talk.note("names", [name for name in reported.names if name != "kube-root-ca.crt"])
    assert "".join(name[1] for name in reported.names if name != "kube-root-ca.crt") == names


SELECTORS = [
    ("color=red", "03"), ("color==red", "03"), ("color!=red", "124"), ("color in (red,blue)", "023"), ("color notin (red,blue)", "14"),
    ("odd", "13"), ("!odd", "024"), ("color=red,tier=a", "0"), ("color=red,!odd", "0"), ("odd=", "13"), ("n>2", "34"), ("n<2", "01"), ("none", ""),
]  # fmt: skip
rows("P0", "lists", "widgets with", [(text, W, text, names) for text, names in SELECTORS], labels)
rows("P1", "lists", "config maps with", [(text, "~configmaps", text, names) for text, names in SELECTORS[4:8]], labels)


def fields(talk: Talk, path: str, selector: str, names: str) -> None:
    make_some(talk)
    reported = talk.get(path, fieldSelector=selector, note=False)
    assert "".join(name[1] for name in reported.names if name != "kube-root-ca.crt") == names
    talk.note("names", reported.names)


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


def refused_list(talk: Talk, path: str, code: int, query: dict[str, Any]) -> None:
    reported = talk.get(path, want=code, **query)
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
def pages_show_one_snapshot(talk: Talk) -> None:
    for path in (W, "~configmaps"):
        make_some(talk)
        query: dict[str, Any] = {"limit": 2}
        if path != W:
            query["labelSelector"] = "color"
        names: list[str] = []
        versions = set()
        reported = talk.get(path, **query)
        first = reported
        talk.quietly("POST", path, widget("w9") if path == W else config_map("c9", labels={"color": "x"}))
        talk.quietly("DELETE", f"{path}/{reported.names[0][0]}4")
        while True:
            names += reported.names
            versions.add(reported.rv)
            token = reported["metadata"].get("continue")
            if not token:
                break
            reported = talk.get(path, **query | {"continue": token})
        assert len(versions) == 1
        assert [name[1] for name in names] == list("01234")
        if path == W:
            assert first["metadata"]["remainingItemCount"] == 3


@case("P1")
def page_of_all(talk: Talk) -> None:
    make_some(talk)
    reported = talk.get(W, limit=5)
    assert not reported["metadata"].get("continue")
    reported = talk.get(W, limit=500)
    assert not reported["metadata"].get("continue")
    talk.get(W, limit=0)


@case("P1")
def list_at_versions(talk: Talk) -> None:
    make_some(talk)
    before = talk.get(W, note=False).rv
    talk.quietly("DELETE", f"{W}/w0")
    assert talk.get(W, resourceVersion="0", note=False).code == 200
    assert len(talk.get(W, resourceVersion=before, resourceVersionMatch="Exact").names) == 5
    assert len(talk.get(W, resourceVersion=before, resourceVersionMatch="NotOlderThan").names) == 4


@case("P1")
def get_at_a_version(talk: Talk) -> None:
    made = talk.post("~configmaps", config_map())
    talk.until(
        "~configmaps/one", lambda reported: reported.code == 200, resourceVersion=made.rv
    )  # a slow cache says 504
    talk.get("~configmaps/one", resourceVersion="0")


@case("P1")
def fields_of_pods_and_secrets(talk: Talk) -> None:
    talk.until("~serviceaccounts/default", lambda reported: reported.code == 200, note=False)
    talk.quietly("POST", "~pods", pod("a"))
    talk.quietly("POST", "~pods", pod("b", nodeName="conformance-x", restartPolicy="Never"))
    talk.quietly("POST", "~secrets", secret("a", type="conformance.test/x"))
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
        ("/api/v1/namespaces", f"metadata.name={talk.ns},status.phase=Active"),
        ("/api/v1/nodes", "spec.unschedulable=true,metadata.name=conformance-none"),
    ):
        talk.note(selector, talk.get(path, fieldSelector=selector, note=False).names)
    talk.get("~pods", fieldSelector="spec.hostname=x", want=400)
