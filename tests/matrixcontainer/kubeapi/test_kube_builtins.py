"""Built-in kinds: the rules of each, pods, events in two spellings, reviews, protobuf bodies."""

import base64
from typing import Any

import pytest

from matrixcontainer.kubeapi.builtin.kinds import KINDS, kinds_table
from tests.matrixcontainer.kubeapi.api_session import STRATEGIC, ApiSession

NS = "/api/v1/namespaces/default"
POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


async def test_secrets(session: ApiSession) -> None:
    reported = await session.post(
        f"{NS}/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "immutable": True}
    )
    assert reported.body["data"] == {"a": base64.b64encode(b"b").decode()}
    assert (reported.body["type"], "stringData" in reported.body) == ("Opaque", False)
    changed = await session.patch(f"{NS}/secrets/s", {"data": {"a": "Yw=="}})
    assert changed.causes == {"data": "Forbidden: field is immutable when `immutable` is set"}
    assert (await session.post(f"{NS}/secrets", {"metadata": {"name": "t"}, "data": {"a": "***"}})).code == 400
    assert (await session.post(f"{NS}/secrets", {"metadata": {"name": "t"}, "data": {"": ""}})).code == 422


async def test_unknown_fields_of_typed_objects(session: ApiSession) -> None:
    body = {"metadata": {"name": "c"}, "data": {"a": "b"}, "dada": 1}
    strict = await session.post(f"{NS}/configmaps", body, fieldValidation="Strict")
    assert (strict.code, 'unknown field "dada"' in strict.body["message"]) == (400, True)
    warned = await session.post(f"{NS}/configmaps", body)
    assert (warned.code, "dada" in warned.body) == (201, False)


async def test_pod_lifecycle(session: ApiSession) -> None:
    made = (await session.post(f"{NS}/pods", POD)).body
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert made["spec"]["schedulerName"] == "default-scheduler"
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert (await session.post(f"{NS}/pods/p/binding", binding)).code == 201
    assert (await session.post(f"{NS}/pods/p/binding", binding)).code == 409
    one = (await session.get(f"{NS}/pods/p")).body
    assert (one["spec"]["nodeName"], one["status"]["conditions"][0]["type"]) == ("n1", "PodScheduled")
    listed = await session.get("/api/v1/pods", fieldSelector="spec.nodeName=n1,status.phase!=Running")
    assert len(listed.body["items"]) == 1
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    reported = await session.patch(f"{NS}/pods/p/status", status, STRATEGIC)
    assert {c["type"] for c in reported.body["status"]["conditions"]} == {"PodScheduled", "Ready"}
    fixed = await session.patch(f"{NS}/pods/p", {"spec": {"restartPolicy": "Never"}})
    assert "pod updates may not change fields" in fixed.causes["spec"]
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "j"}]
    assert (await session.patch(f"{NS}/pods/p", image, "application/json-patch+json")).code == 200
    reported = await session.delete(f"{NS}/pods/p")
    assert reported.body["metadata"]["deletionGracePeriodSeconds"] == 30
    reported = await session.delete(f"{NS}/pods/p", {"gracePeriodSeconds": 5})
    assert reported.body["metadata"]["deletionGracePeriodSeconds"] == 5
    assert (await session.delete(f"{NS}/pods/p", {"gracePeriodSeconds": 0})).code == 200
    assert (await session.get(f"{NS}/pods/p")).code == 404


async def test_an_unbound_pod_goes_at_once(session: ApiSession) -> None:
    await session.post(f"{NS}/pods", POD)
    await session.delete(f"{NS}/pods/p")
    assert (await session.get(f"{NS}/pods/p")).code == 404


async def test_amounts_become_text(session: ApiSession) -> None:
    limits = {"cpu": 2, "huawei.com/Ascend910": 8, "memory": "1Gi"}
    body = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]},
    }
    reported = await session.post(f"{NS}/pods", body)
    resources = reported.body["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "2", "huawei.com/Ascend910": "8", "memory": "1Gi"}
    assert resources["requests"] == resources["limits"]
    assert reported.body["status"]["qosClass"] == "Guaranteed"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (f"{NS}/pods", {"spec": {}}, "spec.containers"),
        (f"{NS}/pods", {"spec": {"containers": [{"name": "A", "image": "i"}]}}, "spec.containers[0].name"),
        (f"{NS}/pods", {"spec": {"containers": [{"name": "a"}]}}, "spec.containers[0].image"),
        (f"{NS}/services", {"spec": {}}, "spec.ports"),
        ("/apis/apps/v1/namespaces/default/deployments", {"spec": {"selector": {"matchLabels": {"a": "b"}}}}, "spec.template.metadata.labels"),
        ("/apis/batch/v1/namespaces/default/jobs", {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "i"}]}}}}, "spec.template.spec.restartPolicy"),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {"spec": {"leaseDurationSeconds": 0}}, "spec.leaseDurationSeconds"),
        ("/api/v1/nodes", {"spec": {"taints": [{"key": "a", "effect": "Bad"}]}}, "metadata.taints[0].effect"),
        ("/apis/events.k8s.io/v1/namespaces/default/events", {"regarding": {"namespace": "default"}}, "eventTime"),
        ("/api/v1/namespaces", {"metadata": {"name": "has.dot"}}, "metadata.name"),
    ],
)  # fmt: skip
async def test_refused_builtins(session: ApiSession, path: str, body: dict, field: str) -> None:
    reported = await session.post(path, {"metadata": {"name": "x"}} | body)
    assert reported.code == 422, reported.body
    assert field in reported.causes


async def test_events_in_both_groups(session: ApiSession) -> None:
    new = "/apis/events.k8s.io/v1/namespaces/default/events"
    body = {
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000001Z",
        "reportingController": "me",
        "reportingInstance": "me-1",
        "action": "Build",
        "reason": "Built",
        "type": "Normal",
        "note": "done",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
    }
    reported = await session.post(new, body)
    assert reported.code == 201, reported.body
    old = (await session.get(f"{NS}/events", fieldSelector="involvedObject.name=p,reason=Built")).body["items"]
    assert (old[0]["message"], old[0]["involvedObject"]["name"], old[0]["reportingComponent"]) == ("done", "p", "me")
    again = await session.get(f"{new}/e")
    assert (again.body["apiVersion"], again.body["note"]) == ("events.k8s.io/v1", "done")
    async with session.watch(new) as stream:
        event = await stream.event()
        assert event is not None
        assert event["object"]["note"] == "done"


async def test_leases_may_be_made_by_put(session: ApiSession) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
    reported = await session.put(path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}})
    assert reported.code == 201
    other = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "you"}}
    assert (await session.put(path, other)).code == 422, "which version is replaced has to be stated"
    other["metadata"]["resourceVersion"] = reported.body["metadata"]["resourceVersion"]
    assert (await session.put(path, other)).code == 200


async def test_services_keep_their_address(session: ApiSession) -> None:
    reported = await session.post(f"{NS}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    address = reported.body["spec"]["clusterIP"]
    assert reported.body["spec"]["clusterIPs"] == [address]
    assert reported.body["spec"]["ports"][0] == {"port": 80, "protocol": "TCP", "targetPort": 80}
    assert (await session.patch(f"{NS}/services/s", {"spec": {"clusterIP": "10.9.9.9"}})).code == 422


async def test_access_reviews_report_what_is_enforced(session: ApiSession) -> None:
    root = "/apis/authorization.k8s.io/v1"
    reported = await session.post(f"{root}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": {"verb": "get"}}})
    assert (reported.code, reported.body["status"]["allowed"]) == (201, True)
    question = {"user": "system:anonymous", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    other = await session.post(f"{root}/subjectaccessreviews", {"spec": question})
    assert other.body["status"]["allowed"] is False
    assert (await session.post(f"{root}/subjectaccessreviews", {"spec": {"user": "a"}})).code == 422
    who = await session.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert who.body["status"]["userInfo"]["username"] == "admin"
    token = await session.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "admin"}})
    assert token.body["status"]["authenticated"] is True


async def test_service_account_tokens(session: ApiSession) -> None:
    reported = await session.post(f"{NS}/serviceaccounts/default/token", {"spec": {"expirationSeconds": 600}})
    token = reported.body["status"]["token"]
    robot = ApiSession(session.api, session.clock, token)
    who = await robot.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert who.body["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    session.clock.moment += 601
    assert (await robot.get("/api/v1/pods")).code == 401
    assert (await ApiSession(session.api, session.clock, token + "x").get("/api/v1/pods")).code == 401
    assert (await session.post(f"{NS}/serviceaccounts/default/token", {"spec": {"expirationSeconds": 1}})).code == 422


# ---- protobuf


def field(number: int, value: bytes | int | str | None) -> bytes:
    """One protobuf field: a varint for ints, else length and bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value or b""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def protobuf(api_version: str, kind: str, raw: bytes) -> bytes:
    meta = field(1, api_version) + field(2, kind)
    return b"k8s\0" + field(1, meta) + field(2, raw) + field(3, "") + field(4, "")


BODY = "application/vnd.kubernetes.protobuf"
ACCEPT = "application/vnd.kubernetes.protobuf,application/json"


async def test_protobuf_bodies(session: ApiSession) -> None:
    meta = field(1, "d") + field(2, "") + field(3, "") + field(7, 0) + field(11, field(1, "k") + field(2, "v"))
    container = field(1, "c") + field(2, "i") + field(8, b"") + field(16, 0) + field(3, "sh") + field(3, "-c")
    volume = field(1, "v") + field(2, field(6, field(1, "secret")))
    pod_spec = field(2, container) + field(1, volume) + field(21, 0) + field(10, "")
    template = field(1, field(11, field(1, "k") + field(2, "v"))) + field(2, pod_spec)
    selector = field(1, field(1, "k") + field(2, "v"))
    rolling = field(2, field(1, field(1, 1) + field(2, 0) + field(3, "30%")))
    spec = (
        field(1, 0)
        + field(2, selector)
        + field(3, template)
        + field(4, field(1, "RollingUpdate") + rolling)
        + field(5, 0)
    )
    raw = field(1, meta) + field(2, spec) + field(3, b"")
    reported = await session.ask(
        "POST",
        "/apis/apps/v1/namespaces/default/deployments",
        protobuf("apps/v1", "Deployment", raw),
        content_type=BODY,
        accept=ACCEPT,
        fieldValidation="Strict",
    )
    assert reported.code == 201, reported.body
    spec_read = reported.body["spec"]
    pod = spec_read["template"]["spec"]
    assert (spec_read["replicas"], "paused" in spec_read) == (0, False)
    assert pod["automountServiceAccountToken"] is False
    assert pod["containers"][0]["command"] == ["sh", "-c"]
    assert "stdin" not in pod["containers"][0]
    assert pod["volumes"][0]["secret"]["secretName"] == "secret"
    assert spec_read["strategy"]["rollingUpdate"] == {"maxUnavailable": "30%", "maxSurge": "25%"}


async def test_protobuf_deletes_and_nonsense(session: ApiSession) -> None:
    await session.post(f"{NS}/configmaps", {"metadata": {"name": "c"}})
    for raw in (
        b"k8s\0\xff\xff",
        b"nope",
        protobuf("v9", "Nothing", b""),
        protobuf("v1", "ConfigMap", b"\x0a\xff\x01"),
    ):
        reported = await session.ask("POST", f"{NS}/configmaps", raw, content_type=BODY)
        assert (reported.code, reported.body["reason"]) == (400, "BadRequest")
    options = protobuf("v1", "DeleteOptions", field(4, "Background") + field(5, "All"))
    assert (await session.ask("DELETE", f"{NS}/configmaps/c", options, content_type=BODY)).code == 200
    assert (await session.get(f"{NS}/configmaps/c")).code == 200
    assert (await session.ask("POST", f"{NS}/configmaps", b"x", content_type="text/html")).code == 415


async def test_every_kind_can_be_listed(session: ApiSession) -> None:
    for kind in KINDS:
        package, _ = kind.type_name.rsplit(".", 1)
        version = package.rsplit(".", 1)[1]
        root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
        if "list" in kind.verbs:
            assert (await session.get(f"{root}/{kind.plural}")).code == 200, kind
            assert (
                await session.ask("GET", f"{root}/{kind.plural}", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
            ).code == 200


def test_the_readme_lists_every_kind() -> None:
    from pathlib import Path

    import matrixcontainer.kubeapi

    readme = Path(str(matrixcontainer.kubeapi.__file__)).with_name("README.md").read_text()
    assert kinds_table() in readme, "print it with: python -m matrixcontainer.kubeapi.builtin.kinds"


async def test_priority_classes(session: ApiSession) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await session.post(classes, {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"})
    reported = await session.post(
        f"{NS}/pods", {"metadata": {"name": "p"}, "spec": POD["spec"] | {"priorityClassName": "high"}}
    )
    assert (reported.body["spec"]["priority"], reported.body["spec"]["preemptionPolicy"]) == (1000, "Never")
    unknown = POD["spec"] | {"priorityClassName": "none"}
    reported = await session.post(f"{NS}/pods", {"metadata": {"name": "q"}, "spec": unknown})
    assert (reported.code, reported.body["message"]) == (
        403,
        'pods "q" is forbidden: no PriorityClass with name none was found',
    )


async def test_cluster_wide_lists_and_namespaced_ones(session: ApiSession) -> None:
    await session.post("/api/v1/namespaces", {"metadata": {"name": "team"}})
    for namespace in ("default", "team"):
        await session.post(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "same"}})
    everywhere = (await session.get("/api/v1/configmaps", fieldSelector="metadata.name=same")).body["items"]
    assert [item["metadata"]["namespace"] for item in everywhere] == ["default", "team"]
    team = (await session.get("/api/v1/namespaces/team/configmaps", fieldSelector="metadata.namespace=team")).body[
        "items"
    ]
    assert [item["metadata"]["name"] for item in team] == ["same"]
