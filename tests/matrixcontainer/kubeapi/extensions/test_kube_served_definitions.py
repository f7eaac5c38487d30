"""Definitions as they are served: their scale, the names they were granted, and their end."""

import pytest

from tests.matrixcontainer.kubeapi.talk import WIDGETS, Talk, a_crd, a_widget

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "one"}, "spec": {"replicas": 4}}


@pytest.mark.parametrize("path", [".spec.x[0", ".spec.", ".spec.a[*]", ".spec.a[0]", ".spec..x"])
async def test_a_scale_that_cannot_be_followed_is_refused(talk: Talk, path: str) -> None:
    crd = a_crd()
    crd["spec"]["versions"][0]["subresources"]["scale"]["specReplicasPath"] = path
    reported = await talk.post(CRDS, crd)
    assert (reported.code, list(reported.causes)) == (422, ["spec.versions[0].subresources.scale.specReplicasPath"])


async def test_a_scale_below_what_is_no_object_is_told_so(talk: Talk) -> None:
    await talk.define(a_crd(spec={"type": "object", "nullable": True, "properties": {"size": {"type": "integer"}}}))
    await talk.post(WIDGETS, a_widget(spec=None))
    reported = await talk.put(f"{WIDGETS}/one/scale", SCALE)
    assert (reported.code, reported.body["message"]) == (
        500,
        "value cannot be set because .spec.size: spec is not an object",
    )
