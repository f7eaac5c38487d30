"""Garbage collection, namespaces, events: what a cluster does by itself."""

from collections.abc import Callable
from typing import Any

import pytest

from matrixcontainer.kubeapi.meta import errors
from matrixcontainer.kubeapi.registry.options import Options
from matrixcontainer.kubeapi.registry.resource import Resource
from tests.matrixcontainer.kubeapi.api_session import WIDGETS, ApiSession, a_widget

CM = "/api/v1/namespaces/default/configmaps"
NS = "/api/v1/namespaces"


def owned(name: str, *owners: dict[str, Any], block: bool = True, **meta: Any) -> dict[str, Any]:
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    return {"metadata": {"name": name, "ownerReferences": references} | meta}


async def _owner(session: ApiSession, name: str = "owner", **meta: Any) -> dict[str, Any]:
    return (await session.post(CM, {"metadata": {"name": name} | meta})).body


def is_deleted(reported: Any) -> bool:
    return reported.code == 404


def _refuse(session: ApiSession, refused: str, *names: str) -> Callable[[], None]:
    """Admission keeps what is so named as it is; call what is returned to have it give in."""

    async def refuse(resource: Resource, verb: str, new: Any, old: Any, options: Options) -> None:
        if verb == refused and old["metadata"]["name"] in names:
            raise errors.forbidden(resource.plural, resource.group, old["metadata"]["name"], "it is precious")

    session.api.core.verbs.writer.validating.append(refuse)
    return lambda: session.api.core.verbs.writer.validating.remove(refuse)


async def test_background_deletion_deletes_dependents(session: ApiSession) -> None:
    owner = await _owner(session)
    child = (await session.post(CM, owned("child", owner))).body
    await session.post(CM, owned("grandchild", child))
    assert (await session.delete(f"{CM}/owner", {"propagationPolicy": "Background"})).body["status"] == "Success"
    await session.until(f"{CM}/child", is_deleted)
    await session.until(f"{CM}/grandchild", is_deleted)


async def test_foreground_waits_for_blocking_dependents(session: ApiSession) -> None:
    owner = await _owner(session)
    await session.post(CM, owned("held", owner, finalizers=["example.test/hold"]))
    await session.post(CM, owned("loose", owner, block=False))
    reported = await session.delete(f"{CM}/owner", {"propagationPolicy": "Foreground"})
    assert reported.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    await session.until(f"{CM}/loose", is_deleted)
    await session.until(f"{CM}/held", lambda s: "deletionTimestamp" in s.body["metadata"])
    assert (await session.get(f"{CM}/owner")).code == 200
    await session.patch(f"{CM}/held", {"metadata": {"finalizers": None}})
    await session.until(f"{CM}/owner", is_deleted)


async def test_orphans_lose_the_reference_and_live(session: ApiSession) -> None:
    owner = await _owner(session)
    await session.post(CM, owned("child", owner))
    await session.delete(f"{CM}/owner", {"propagationPolicy": "Orphan"})
    await session.until(f"{CM}/owner", is_deleted)
    assert "ownerReferences" not in (await session.get(f"{CM}/child")).body["metadata"]


async def test_an_error_in_one_dependent_does_not_hold_up_orphaning(session: ApiSession) -> None:
    owner = await _owner(session)
    for name in ("a", "kept", "z"):
        await session.post(CM, owned(name, owner))
    give_in = _refuse(session, "UPDATE", "kept")
    await session.delete(f"{CM}/owner", {"propagationPolicy": "Orphan"})
    for name in ("a", "z"):
        await session.until(f"{CM}/{name}", lambda s: "ownerReferences" not in s.body["metadata"])
    assert (await session.get(f"{CM}/owner")).body["metadata"]["finalizers"] == ["orphan"]
    give_in()
    await session.patch(f"{CM}/kept", {"metadata": {"labels": {"look": "again"}}})
    await session.until(f"{CM}/owner", is_deleted)
    assert "ownerReferences" not in (await session.get(f"{CM}/kept")).body["metadata"]


async def test_a_second_living_owner_keeps_the_dependent(session: ApiSession) -> None:
    one, two = await _owner(session, "one"), await _owner(session, "two")
    await session.post(CM, owned("child", one, two))
    await session.delete(f"{CM}/one", {"propagationPolicy": "Background"})
    reported = await session.until(f"{CM}/child", lambda s: len(s.body["metadata"]["ownerReferences"]) == 1)
    assert reported.body["metadata"]["ownerReferences"][0]["name"] == "two"


async def test_an_owner_cycle_is_collected(session: ApiSession) -> None:
    one = await _owner(session, "one")
    two = (await session.post(CM, owned("two", one))).body
    await session.patch(f"{CM}/one", {"metadata": owned("one", two)["metadata"]})
    await session.delete(f"{CM}/one", {"propagationPolicy": "Foreground"})
    await session.until(f"{CM}/one", is_deleted)
    await session.until(f"{CM}/two", is_deleted)


async def test_an_owner_elsewhere_counts_as_absent(session: ApiSession) -> None:
    owner = await _owner(session)
    await session.post(NS, {"metadata": {"name": "team"}})
    path = "/api/v1/namespaces/team/configmaps"
    await session.post(path, owned("child", owner))
    await session.until(f"{path}/child", is_deleted)


async def test_custom_owners(widgets: ApiSession) -> None:
    owner = (await widgets.post(WIDGETS, a_widget())).body
    await widgets.post(CM, owned("child", owner))
    await widgets.delete(f"{WIDGETS}/one", {"propagationPolicy": "Background"})
    await widgets.until(f"{CM}/child", is_deleted)


# ---- namespaces


async def test_system_namespaces_exist(session: ApiSession) -> None:
    names = [item["metadata"]["name"] for item in (await session.get(NS)).body["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    for name in ("default", "kube-system", "kube-public"):
        reported = await session.delete(f"{NS}/{name}")
        assert (reported.code, reported.body["reason"]) == (403, "Forbidden")


async def test_namespace_creation(session: ApiSession) -> None:
    reported = await session.post(NS, {"metadata": {"name": "team"}})
    assert reported.body["status"] == {"phase": "Active"}
    assert reported.body["spec"] == {"finalizers": ["kubernetes"]}
    assert reported.body["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    await session.until(f"{NS}/team/serviceaccounts/default", lambda s: s.code == 200)
    missing = await session.post(f"{NS}/none/configmaps", {"metadata": {"name": "x"}})
    assert (missing.code, missing.body["message"]) == (404, 'namespaces "none" not found')


async def test_a_deleted_namespace_is_emptied(widgets: ApiSession) -> None:
    await widgets.post(NS, {"metadata": {"name": "team"}})
    team = WIDGETS.replace("default", "team")
    await widgets.post(team, a_widget("held", metadata={"finalizers": ["example.test/hold"]}))
    await widgets.post(f"{NS}/team/secrets", {"metadata": {"name": "s"}})
    reported = await widgets.delete(f"{NS}/team")
    assert reported.body["status"]["phase"] == "Terminating"
    refused = await widgets.post(f"{NS}/team/secrets", {"metadata": {"name": "t"}})
    assert refused.code == 403
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    await widgets.until(f"{NS}/team/secrets/s", is_deleted)

    def described(reported: Any) -> bool:
        return any(c["type"] == "NamespaceFinalizersRemaining" for c in reported.body["status"].get("conditions", []))

    reported = await widgets.until(f"{NS}/team", described)
    text = next(c["message"] for c in reported.body["status"]["conditions"] if c["type"] == "NamespaceContentRemaining")
    assert "widgets.example.test has 1 resource instances" in text
    await widgets.patch(f"{team}/held", {"metadata": {"finalizers": None}})
    await widgets.until(f"{NS}/team", is_deleted)


async def test_undeletable_object_does_not_hold_up_namespace_deletion(session: ApiSession) -> None:
    await session.post(NS, {"metadata": {"name": "team"}})
    for plural in ("configmaps", "secrets", "services"):
        for name in ("a", "kept", "z") if plural == "configmaps" else ("a",):
            spec = {"spec": {"ports": [{"port": 80}]}} if plural == "services" else {}
            assert (await session.post(f"{NS}/team/{plural}", {"metadata": {"name": name}} | spec)).code == 201
    give_in = _refuse(session, "DELETE", "kept")
    await session.delete(f"{NS}/team")
    for path in ("configmaps/a", "configmaps/z", "secrets/a", "services/a"):
        await session.until(f"{NS}/team/{path}", is_deleted)
    wanted = "NamespaceDeletionContentFailure"

    def failure(reported: Any) -> Any:
        found = reported.body["status"].get("conditions", [])
        return next((c for c in found if c["type"] == wanted and c["status"] == "True"), None)

    reported = failure(await session.until(f"{NS}/team", failure))
    assert reported["reason"] == "ContentDeletionFailed"
    text = 'Failed to delete all resource types, 1 remaining: configmaps "kept" is forbidden: it is precious'
    assert reported["message"] == text
    give_in()
    await session.delete(f"{NS}/team/configmaps/kept")
    await session.until(f"{NS}/team", is_deleted)


async def test_undeletable_object_does_not_hold_up_crd_deletion(widgets: ApiSession) -> None:
    for name in ("a", "kept", "z"):
        assert (await widgets.post(WIDGETS, a_widget(name))).code == 201
    give_in = _refuse(widgets, "DELETE", "kept")
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.test"
    await widgets.delete(definition)

    def failed(reported: Any) -> Any:
        found = {c["type"]: c for c in reported.body["status"]["conditions"]}
        return found["Terminating"]["reason"] == "InstanceDeletionFailed"

    await widgets.until(f"{WIDGETS}/z", is_deleted)
    await widgets.until(definition, failed)
    give_in()
    await widgets.delete(f"{WIDGETS}/kept")
    await widgets.until(definition, is_deleted)


async def test_a_namespace_with_a_bound_pod_waits_for_its_kubelet(session: ApiSession) -> None:
    await session.post(NS, {"metadata": {"name": "team"}})
    pods = f"{NS}/team/pods"
    await session.post(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    await session.post(f"{pods}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}})
    await session.delete(f"{NS}/team")
    reported = await session.until(f"{pods}/p", lambda s: "deletionTimestamp" in s.body["metadata"])
    assert reported.body["metadata"]["deletionGracePeriodSeconds"] == 30
    await session.delete(f"{pods}/p", {"gracePeriodSeconds": 0})
    await session.until(f"{NS}/team", is_deleted)


async def test_events_expire_after_an_hour(session: ApiSession) -> None:
    path = f"{NS}/default/events"
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    assert (await session.post(path, event)).code == 201
    assert await session.api.manager.compaction.delete_expired_events() == 0
    session.clock.moment += 3700
    assert await session.api.manager.compaction.delete_expired_events() == 1
    assert (await session.get(f"{path}/e")).code == 404


async def test_event_expiry_counts_from_its_last_write(session: ApiSession) -> None:
    _refuse(session, "DELETE", "once", "held")
    path = f"{NS}/default/events"
    event = {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    for name, more in (("once", {"lastTimestamp": "2999-01-01T00:00:00Z"}), ("series", {}), ("held", {})):
        finalizers = ["example.test/hold"] if name == "held" else []
        made = await session.post(path, event | more | {"metadata": {"name": name, "finalizers": finalizers}})
        assert made.code == 201
    session.clock.moment += 3000
    written = {"series": {"count": 2, "lastObservedTime": "2026-09-21T15:00:00.000000Z"}}
    assert (await session.patch(f"{path}/series", written)).code == 200
    session.clock.moment += 700
    assert await session.api.manager.compaction.delete_expired_events() == 2
    assert [item["metadata"]["name"] for item in (await session.get(path)).body["items"]] == ["series"]


@pytest.mark.parametrize("policy", ["Sideways", "background"])
async def test_unknown_propagation(session: ApiSession, policy: str) -> None:
    await _owner(session)
    assert (await session.delete(f"{CM}/owner", {"propagationPolicy": policy})).code == 422
