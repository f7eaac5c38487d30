"""Patches that are none, or say odd things: what is refused, in which words, and what is left alone."""

from typing import Any

import pytest

from matrixcontainer.kubeapi.meta.errors import ApiError
from matrixcontainer.kubeapi.patch.patches import strategic_patch
from matrixcontainer.kubeapi.schema.types import schema_of
from tests.matrixcontainer.kubeapi.api_session import WIDGETS, ApiSession, a_widget

META = schema_of("meta.v1.ObjectMeta")
FINALIZERS = "finalizers"


@pytest.mark.parametrize(
    ("patch", "after"),
    [
        ({f"$deleteFromPrimitiveList/{FINALIZERS}": ["a"]}, {FINALIZERS: ["b"]}),
        ({f"$deleteFromPrimitiveList/{FINALIZERS}": None}, {}),
        ({f"$deleteFromPrimitiveList/{FINALIZERS}": 5}, {FINALIZERS: ["a", "b"]}),
        ({f"$deleteFromPrimitiveList/{FINALIZERS}": "a"}, {FINALIZERS: ["a", "b"]}),
        ({"$deleteFromPrimitiveList/labels": ["a"]}, {FINALIZERS: ["a", "b"]}),
        ({"annotations": {"$patch": "replace", "a": "b"}}, {FINALIZERS: ["a", "b"]}),
    ],
)
def test_directives_with_odd_values(patch: dict[str, Any], after: dict[str, Any]) -> None:
    assert strategic_patch({FINALIZERS: ["a", "b"]}, patch, META) == after


@pytest.mark.parametrize(
    "patch",
    [
        {f"$setElementOrder/{FINALIZERS}": None},
        {f"$setElementOrder/{FINALIZERS}": None, FINALIZERS: ["c"]},
        {f"$setElementOrder/{FINALIZERS}": {"a": "b"}},
    ],
)
def test_an_order_is_a_list(patch: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="expected a list"):
        strategic_patch({FINALIZERS: ["a"]}, patch, META)


@pytest.mark.parametrize("meta", ["x", ["x"], 5])
async def test_metadata_that_is_not_an_object_is_a_client_error(widgets: ApiSession, meta: Any) -> None:
    await widgets.post(WIDGETS, a_widget())
    applied = await widgets.apply(f"{WIDGETS}/one", a_widget() | {"metadata": meta}, "me")
    assert ".metadata: expected map, got" in applied.body["message"]
    patched = await widgets.patch(f"{WIDGETS}/one", {"metadata": meta, "apiVersion": "example.test/v9"})
    assert (patched.code, list(patched.causes)) == (422, ["apiVersion"])
