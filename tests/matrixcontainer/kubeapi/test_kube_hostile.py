"""Whatever is thrown at it, the server answers with a Status, keeps its state and never trips."""

import base64
import copy
import random
from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.api_session import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    WIDGETS,
    ApiSession,
    a_crd,
    a_widget,
)

JUNK: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**63, 10**400, "", "x", "\u0000", "é" * 300, "a" * 3000, [], {}, [None], [[]], [{}],
    [{"name": None}], {"": ""}, {"a": None}, {"$patch": "replace"}, {"$patch": "boil"}, ["a", "a"], {"matchLabels": 5},
    {"type": "object"}, {"name": "x", "port": "y"}, {"f:x": {"k:{": {}}},
]  # fmt: skip

NS = "/api/v1/namespaces/default"
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "restartPolicy": "Always",
        "containers": [
            {
                "name": "c",
                "image": "i",
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
        "volumes": [{"name": "v", "configMap": {"name": "c"}}],
        "tolerations": [{"key": "k"}],
    },
}
META = {
    "name": "one",
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "finalizers": ["example.test/a"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
    "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:spec": {}}}],
}
VICTIMS: dict[str, tuple[str, dict[str, Any]]] = {
    "widget": (WIDGETS, a_widget(metadata=META, spec={"size": 3, "ports": [{"name": "a", "port": 1}], "tags": ["t"]})),
    "definition": ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_crd(rules=[{"rule": "self.size > 0"}])),
    "pod": (f"{NS}/pods", {"metadata": META, "spec": TEMPLATE["spec"]}),
    "deployment": (
        "/apis/apps/v1/namespaces/default/deployments",
        {
            "metadata": META,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
                "template": TEMPLATE,
            },
        },
    ),
    "job": ("/apis/batch/v1/namespaces/default/jobs", {"metadata": META, "spec": {"template": {"spec": TEMPLATE["spec"] | {"restartPolicy": "Never"}}}}),
    "service": (f"{NS}/services", {"metadata": META, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
    "secret": (f"{NS}/secrets", {"metadata": META, "data": {"a": "Yg=="}, "stringData": {"c": "d"}, "type": "Opaque"}),
    "node": ("/api/v1/nodes", {"metadata": META, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "1"}}}),
    "namespace": ("/api/v1/namespaces", {"metadata": META, "spec": {"finalizers": ["kubernetes"]}}),
    "event": (f"{NS}/events", {"metadata": META, "involvedObject": {"kind": "Pod", "namespace": "default"}, "count": 1, "source": {"component": "x"}}),
    "lease": ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {"metadata": META, "spec": {"leaseDurationSeconds": 5}}),
    "budget": ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"metadata": META, "spec": {"selector": {"matchLabels": {"a": "b"}}}}),
}  # fmt: skip


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(node, dict):
        for key, value in node.items():
            found += places(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            found += places(value, (*path, index))
    return found


def corrupt(body: dict[str, Any], rng: random.Random) -> Any:
    """The body with one or two of its parts replaced, removed or joined by junk."""
    body = copy.deepcopy(body)
    for _ in range(rng.randint(1, 2)):
        path = rng.choice(places(body)[1:])
        node: Any = body
        for step in path[:-1]:
            node = node[step]
        act = rng.random()
        if act < 0.2:
            del node[path[-1]]
        elif act < 0.3 and isinstance(node, dict):
            node[rng.choice(["extra", "$patch", "$retainKeys", "x-y"])] = copy.deepcopy(rng.choice(JUNK))
        else:
            node[path[-1]] = copy.deepcopy(rng.choice(JUNK))
        if not isinstance(body, dict) or len(places(body)) < 2:
            break
    return body


@pytest.mark.parametrize("kind", VICTIMS)
async def test_corrupted_objects(session: ApiSession, kind: str) -> None:
    if kind == "widget":
        await session.define(a_crd())
    path, body = VICTIMS[kind]
    chance = random.Random(kind)
    name = body["metadata"]["name"]
    one = f"{path}/{name}"
    counts: dict[int, int] = {}
    for _ in range(20):
        created = await session.post(path, corrupt(body, chance))
        current = (await session.get(one)).code == 200
        if not current:
            await session.post(path, body)
        reported = [created]
        patch_kind = chance.choice([MERGE, STRATEGIC, APPLY])
        query = {"fieldManager": "m"} if patch_kind == APPLY else {}
        reported.append(await session.patch(one, corrupt(body, chance), patch_kind, **query))
        operation = {"op": chance.choice(["add", "replace", "remove", "test"]), "value": chance.choice(JUNK)}
        operation["path"] = "".join(f"/{step}" for step in chance.choice(places(body)[1:]))
        reported.append(await session.patch(one, [operation], JSON_PATCH))
        reported.append(await session.put(one, corrupt(body, chance)))
        reported.append(await session.patch(f"{one}/status", {"status": chance.choice(JUNK)}))
        for answer in reported:
            counts[answer.code] = counts.get(answer.code, 0) + 1
            assert answer.code < 500 or "reason" not in answer.body, answer.body  # only a crash names a reason
            assert isinstance(answer.body, dict)
        await session.patch(one, {"metadata": {"finalizers": None}})
        await session.delete(one, {"propagationPolicy": "Background", "gracePeriodSeconds": 0})
    listed = await session.get(path)
    assert listed.code == 200
    assert (await session.ask("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")).code == 200
    assert (await session.get("/openapi/v3")).code == 200
    assert counts.get(201, 0) + counts.get(200, 0) > 0


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "((("},
        {"fieldSelector": "=,"},
        {"limit": "-5"},
        {"continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"},
        {"resourceVersion": "-1"},
        {"resourceVersion": "9" * 40, "resourceVersionMatch": "Exact"},
        {"timeoutSeconds": "soon", "watch": "true"},
        {"resourceVersion": "x", "watch": "true"},
        {"fieldManager": "m" * 200, "dryRun": "No"},
        {"resourceVersion": "9" * 5000},
        {"continue": base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":1e400,"start":["a","b"]}').decode()},
    ],
)
async def test_odd_queries(session: ApiSession, query: dict[str, str]) -> None:
    reported = await session.get(f"{NS}/configmaps", **query)
    known = reported.body.get("reason") == "Timeout" or "invalid syntax" in reported.body.get(
        "message", ""
    )  # as upstream answers it
    assert reported.code < 500 or known


@pytest.mark.parametrize("path", ["//api/v1", "/api/v1/", "/apis//v1/x", "/api/v1/namespaces//pods", "/api/v1/%ff%fe", "/api/v1/pods/../x", "/apis/a/b/c/d/e/f/g/h/i", "/openapi/v3/apis", "/openapi"])  # fmt: skip
async def test_odd_paths(session: ApiSession, path: str) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"):
        reported = await session.ask(method, path, {} if method != "GET" else None)
        assert reported.code < 500


NESTED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "eviction": (
        "POST",
        f"{NS}/pods/one/eviction",
        {
            "metadata": {"name": "one"},
            "deleteOptions": {"gracePeriodSeconds": 1, "dryRun": ["All"], "preconditions": {"uid": "u"}},
        },
    ),
    "binding": ("POST", f"{NS}/pods/one/binding", {"metadata": {"name": "one", "uid": "u"}, "target": {"name": "n"}}),
    "token": (
        "POST",
        f"{NS}/serviceaccounts/default/token",
        {"metadata": {"name": "default"}, "spec": {"expirationSeconds": 600, "audiences": ["a"]}},
    ),
    "scale": (
        "PUT",
        "/apis/apps/v1/namespaces/default/deployments/one/scale",
        {"metadata": {"name": "one", "namespace": "default"}, "spec": {"replicas": 1}},
    ),
    "finalize": ("PUT", "/api/v1/namespaces/one/finalize", {"metadata": {"name": "one"}, "spec": {"finalizers": []}}),
    "deletion": (
        "DELETE",
        f"{NS}/configmaps/one",
        {"gracePeriodSeconds": 1, "dryRun": ["All"], "preconditions": {"uid": "u"}, "propagationPolicy": "Orphan"},
    ),
}


@pytest.mark.parametrize("kind", sorted(NESTED))
async def test_junk_below_an_object_is_refused_by_the_name_of_its_field(session: ApiSession, kind: str) -> None:
    """What is no resource of its own has a type all the same."""
    for victim in ("pod", "deployment", "namespace"):
        await session.post(*VICTIMS[victim])
    await session.post(f"{NS}/configmaps", {"metadata": {"name": "one"}})
    method, path, body = NESTED[kind]
    for place in places(body):
        for junk in JUNK:
            reported = await session.ask(method, path, put_at(body, place, copy.deepcopy(junk)))
            crashed = reported.code == 500 and reported.body.get("reason")
            assert not crashed, (place, junk, reported.body)
    for junk in ([{}], "x", 5):
        for media in (MERGE, STRATEGIC, JSON_PATCH):
            reported = await session.patch(NESTED["scale"][1], junk, media)
            assert 400 <= reported.code < 500, (junk, media, reported.body)


def put_at(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    node = copy.copy(node)
    node[path[0]] = put_at(node[path[0]], path[1:], value)
    return node
