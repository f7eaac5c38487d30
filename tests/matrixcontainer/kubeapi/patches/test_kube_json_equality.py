"""true is not 1, wherever the server asks whether something has changed."""

from typing import Any

import pytest

from matrixcontainer.kubeapi.cel import environment
from matrixcontainer.kubeapi.patch.field_set import compare
from matrixcontainer.kubeapi.schema.structural import Schema, same_json
from matrixcontainer.kubeapi.schema.validation import validate
from tests.matrixcontainer.kubeapi.api_session import WIDGETS, ApiSession, a_crd, a_widget

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.test"
INNER = {"type": "object", "properties": {"on": {"type": "boolean"}}}
SPEC = {
    "type": "object",
    "properties": {"size": {"type": "integer"}, "inner": INNER},
    "x-kubernetes-preserve-unknown-fields": True,
}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, True, False),
        ({"a": [0]}, {"a": [False]}, False),
        ({"a": 1, "b": [{}]}, {"b": [{}], "a": 1}, True),
        ([1], [1.0], True),
        ([1, 2], [1], False),
        ("1", 1, False),
        (None, None, True),
    ],
)
def test_equal_json_values(one: Any, other: Any, same: bool) -> None:
    assert same_json(one, other) is same
    deep_one, deep_other = one, other
    for _ in range(400):
        deep_one, deep_other = [deep_one], [deep_other]
    assert same_json(deep_one, deep_other) is same


def test_value_of_changed_type_is_validated_and_owned_again() -> None:
    schema = Schema(SPEC)
    old, new = {"inner": {"on": True}}, {"inner": {"on": 1}}
    assert [cause.field for cause in validate(new, schema, old=old)] == ["inner.on"]
    assert compare(old, new, schema)[1] == {("f:inner", "f:on")}
    ruled = Schema(SPEC | {"x-kubernetes-validations": [{"rule": "!has(self.x)"}]})
    assert environment.check(ruled, {"x": 1}, {"x": True})


async def test_a_change_of_type_alone_is_a_change(session: ApiSession) -> None:
    await session.define(a_crd(spec=SPEC))
    await session.post(WIDGETS, a_widget(spec={"size": 3, "inner": {"on": True}, "free": 1}))
    kept = await session.patch(f"{WIDGETS}/one", {"spec": {"free": True}})
    assert (kept.body["spec"]["free"], kept.body["metadata"]["generation"]) == (True, 2)
    refused = await session.patch(f"{WIDGETS}/one", {"spec": {"size": 4, "inner": {"on": 1}}})
    assert (refused.code, list(refused.causes)) == (422, ["spec.inner.on"])


async def test_default_of_changed_type_is_validated(session: ApiSession) -> None:
    spec = SPEC | {"properties": {"on": {"type": "boolean", "default": True}}}
    await session.define(a_crd(spec=spec))
    crd = (await session.get(CRD)).body
    node = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    node["properties"]["on"]["default"] = 1
    assert (await session.put(CRD, crd)).code == 422
