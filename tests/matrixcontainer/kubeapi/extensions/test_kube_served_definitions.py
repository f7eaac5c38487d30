"""Definitions as they are served: their scale, the names they were granted, and their end."""

from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.api_session import WIDGETS, ApiSession, a_crd, a_widget, condition

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GADGET_CRD = f"{CRDS}/gadgets.example.test"
GADGETS = "/apis/example.test/v1/namespaces/default/gadgets"
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "one"}, "spec": {"replicas": 4}}


@pytest.mark.parametrize("path", [".spec.x[0", ".spec.", ".spec.a[*]", ".spec.a[0]", ".spec..x"])
async def test_invalid_scale_paths_are_refused(session: ApiSession, path: str) -> None:
    crd = a_crd()
    crd["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] = path
    reported = await session.post(CRDS, crd)
    assert (reported.code, list(reported.causes)) == (422, ["spec.versions[0].subresources.scale.specReplicasPath"])


async def test_scale_path_through_a_non_object_is_an_error(session: ApiSession) -> None:
    await session.define(a_crd(spec={"type": "object", "nullable": True, "properties": {"size": {"type": "integer"}}}))
    await session.post(WIDGETS, a_widget(spec=None))
    reported = await session.put(f"{WIDGETS}/one/scale", SCALE)
    assert (reported.code, reported.body["message"]) == (
        500,
        "value cannot be set because .spec.size: spec is not an object",
    )


def a_gadget_crd(**names: Any) -> dict[str, Any]:
    crd = a_crd(names={"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": []} | names)
    crd["metadata"]["name"] = "gadgets.example.test"
    return crd


async def short_names(session: ApiSession) -> dict[str, list[str]]:
    listed = (await session.get("/apis/example.test/v1")).body["resources"]
    return {each["name"]: each.get("shortNames", []) for each in listed if "/" not in each["name"]}


async def test_only_accepted_names_are_served(session: ApiSession) -> None:
    await session.define(a_crd())
    await session.define(a_gadget_crd(shortNames=["gd"]))
    await session.patch(GADGET_CRD, {"spec": {"names": {"shortNames": ["wd"]}}})
    await session.until(GADGET_CRD, lambda s: condition(s.body, "NamesAccepted") == "False")
    assert await short_names(session) == {"widgets": ["wd"], "gadgets": ["gd"]}
    await session.delete(f"{CRDS}/widgets.example.test")
    await session.until(GADGET_CRD, lambda s: condition(s.body, "NamesAccepted") == "True")
    assert await short_names(session) == {"gadgets": ["wd"]}


async def test_unserved_definition_can_be_deleted(session: ApiSession) -> None:
    await session.define(a_gadget_crd())
    assert (await session.post(GADGETS, a_widget() | {"kind": "Gadget"})).code == 201
    crd = (await session.get(GADGET_CRD)).body
    crd["spec"]["versions"][0]["served"] = False
    assert (await session.put(GADGET_CRD, crd)).code == 200
    assert (await session.get(GADGETS)).code == 404
    await session.delete(GADGET_CRD)
    await session.until(GADGET_CRD, lambda s: s.code == 404)
    assert session.api.store.count("gadgets.example.test") == 0


ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def a_crd_of_cluster_roles() -> dict[str, Any]:
    crd = a_crd(scope="Cluster", names={"plural": "clusterroles", "singular": "clusterrole", "kind": "ClusterRole"})
    approval = {"api-approved.kubernetes.io": "unapproved, a test"}
    crd["metadata"] = {"name": "clusterroles.rbac.authorization.k8s.io", "annotations": approval}
    crd["spec"]["group"] = "rbac.authorization.k8s.io"
    return crd


async def test_definition_cannot_replace_a_built_in_kind(session: ApiSession) -> None:
    roles = (await session.get(ROLES)).body["items"]
    crd = f"{CRDS}/clusterroles.rbac.authorization.k8s.io"
    await session.post(CRDS, a_crd_of_cluster_roles())
    await session.until(crd, lambda s: condition(s.body, "Established") == "False")
    assert (await session.get(ROLES)).body["items"] == roles
    await session.delete(crd)
    await session.until(crd, lambda s: s.code == 404)
    assert (await session.get(ROLES)).body["items"] == roles


async def test_existing_definition_of_a_built_in_kind_has_no_effect(session: ApiSession) -> None:
    roles = (await session.get(ROLES)).body["items"]
    crd = f"{CRDS}/clusterroles.rbac.authorization.k8s.io"
    await session.post(CRDS, a_crd_of_cluster_roles())
    known = (await session.until(crd, lambda s: condition(s.body, "Established") == "False")).body
    now = known["metadata"]["creationTimestamp"]
    established = {"type": "Established", "status": "True", "reason": "R", "message": "", "lastTransitionTime": now}
    patched = await session.patch(f"{crd}/status", {"status": {"conditions": [established]}})
    assert patched.code == 200
    session.api.manager.custom_resources.load()
    assert (await session.get(ROLES)).body["items"] == roles
    await session.delete(crd)
    await session.until(crd, lambda s: s.code == 404)
    assert (await session.get(ROLES)).body["items"] == roles
