"""Definitions as they are served: their scale, the names they were granted, and their end."""

from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.talk import WIDGETS, Talk, a_crd, a_widget, condition

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GADGET_CRD = f"{CRDS}/gadgets.example.test"
GADGETS = "/apis/example.test/v1/namespaces/default/gadgets"
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "one"}, "spec": {"replicas": 4}}


@pytest.mark.parametrize("path", [".spec.x[0", ".spec.", ".spec.a[*]", ".spec.a[0]", ".spec..x"])
async def test_invalid_scale_paths_are_refused(talk: Talk, path: str) -> None:
    crd = a_crd()
    crd["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] = path
    reported = await talk.post(CRDS, crd)
    assert (reported.code, list(reported.causes)) == (422, ["spec.versions[0].subresources.scale.specReplicasPath"])


async def test_scale_path_through_a_non_object_is_an_error(talk: Talk) -> None:
    await talk.define(a_crd(spec={"type": "object", "nullable": True, "properties": {"size": {"type": "integer"}}}))
    await talk.post(WIDGETS, a_widget(spec=None))
    reported = await talk.put(f"{WIDGETS}/one/scale", SCALE)
    assert (reported.code, reported.body["message"]) == (
        500,
        "value cannot be set because .spec.size: spec is not an object",
    )


def a_gadget_crd(**names: Any) -> dict[str, Any]:
    crd = a_crd(names={"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "shortNames": []} | names)
    crd["metadata"]["name"] = "gadgets.example.test"
    return crd


async def short_names(talk: Talk) -> dict[str, list[str]]:
    listed = (await talk.get("/apis/example.test/v1")).body["resources"]
    return {each["name"]: each.get("shortNames", []) for each in listed if "/" not in each["name"]}


async def test_only_accepted_names_are_served(talk: Talk) -> None:
    await talk.define(a_crd())
    await talk.define(a_gadget_crd(shortNames=["gd"]))
    await talk.patch(GADGET_CRD, {"spec": {"names": {"shortNames": ["wd"]}}})
    await talk.until(GADGET_CRD, lambda s: condition(s.body, "NamesAccepted") == "False")
    assert await short_names(talk) == {"widgets": ["wd"], "gadgets": ["gd"]}
    await talk.delete(f"{CRDS}/widgets.example.test")
    await talk.until(GADGET_CRD, lambda s: condition(s.body, "NamesAccepted") == "True")
    assert await short_names(talk) == {"gadgets": ["wd"]}


async def test_unserved_definition_can_be_deleted(talk: Talk) -> None:
    await talk.define(a_gadget_crd())
    assert (await talk.post(GADGETS, a_widget() | {"kind": "Gadget"})).code == 201
    crd = (await talk.get(GADGET_CRD)).body
    crd["spec"]["versions"][0]["served"] = False
    assert (await talk.put(GADGET_CRD, crd)).code == 200
    assert (await talk.get(GADGETS)).code == 404
    await talk.delete(GADGET_CRD)
    await talk.until(GADGET_CRD, lambda s: s.code == 404)
    assert talk.api.store.count("gadgets.example.test") == 0


ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def a_crd_of_cluster_roles() -> dict[str, Any]:
    crd = a_crd(scope="Cluster", names={"plural": "clusterroles", "singular": "clusterrole", "kind": "ClusterRole"})
    approval = {"api-approved.kubernetes.io": "unapproved, a test"}
    crd["metadata"] = {"name": "clusterroles.rbac.authorization.k8s.io", "annotations": approval}
    crd["spec"]["group"] = "rbac.authorization.k8s.io"
    return crd


async def test_definition_cannot_replace_a_built_in_kind(talk: Talk) -> None:
    roles = (await talk.get(ROLES)).body["items"]
    crd = f"{CRDS}/clusterroles.rbac.authorization.k8s.io"
    await talk.post(CRDS, a_crd_of_cluster_roles())
    await talk.until(crd, lambda s: condition(s.body, "Established") == "False")
    assert (await talk.get(ROLES)).body["items"] == roles
    await talk.delete(crd)
    await talk.until(crd, lambda s: s.code == 404)
    assert (await talk.get(ROLES)).body["items"] == roles


async def test_existing_definition_of_a_built_in_kind_has_no_effect(talk: Talk) -> None:
    roles = (await talk.get(ROLES)).body["items"]
    crd = f"{CRDS}/clusterroles.rbac.authorization.k8s.io"
    await talk.post(CRDS, a_crd_of_cluster_roles())
    known = (await talk.until(crd, lambda s: condition(s.body, "Established") == "False")).body
    now = known["metadata"]["creationTimestamp"]
    established = {"type": "Established", "status": "True", "reason": "R", "message": "", "lastTransitionTime": now}
    patched = await talk.patch(f"{crd}/status", {"status": {"conditions": [established]}})
    assert patched.code == 200
    talk.api.manager.custom_resources.load()
    assert (await talk.get(ROLES)).body["items"] == roles
    await talk.delete(crd)
    await talk.until(crd, lambda s: s.code == 404)
    assert (await talk.get(ROLES)).body["items"] == roles
