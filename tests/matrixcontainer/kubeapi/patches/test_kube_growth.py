"""No sequence of small requests makes an object grow without bound, and none takes long out of all proportion."""

from typing import Any

import pytest

from matrixcontainer.kubeapi.patch.apply import ApplyOptions, apply_config, remove_paths
from matrixcontainer.kubeapi.patch.patches import PatchError, json_patch, strategic_patch
from matrixcontainer.kubeapi.schema.structural import Schema
from matrixcontainer.kubeapi.schema.types import schema_of
from tests.matrixcontainer.kubeapi.api_session import JSON_PATCH, SPEC, WIDGETS, ApiSession, a_crd, a_widget

FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def test_doubling_copies_are_refused() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{step}"} for step in range(40)]
    with pytest.raises(PatchError, match="accumulated size increase of copy"):
        json_patch({"a": {"text": "x" * 100}}, doubling)
    assert len(json_patch({"a": {"text": "x" * 100}}, doubling[:3])["a"]) == 4


async def test_a_patch_that_copies_too_much_changes_nothing(session: ApiSession) -> None:
    await session.define(a_crd(spec=FREE))
    before = (await session.post(WIDGETS, a_widget(spec={"text": "x" * 1000}))).body
    doubling = [{"op": "copy", "from": "/spec", "path": f"/spec/{step}"} for step in range(40)]
    assert (await session.patch(f"{WIDGETS}/one", doubling, JSON_PATCH)).code == 422
    assert (await session.get(f"{WIDGETS}/one")).body == before


async def test_object_size_limit(session: ApiSession) -> None:
    await session.define(a_crd(spec=FREE))
    await session.post(WIDGETS, a_widget(spec={}))
    codes = [(await session.patch(f"{WIDGETS}/one", {"spec": {f"k{step}": "x" * 600_000}})).code for step in range(3)]
    assert codes == [200, 200, 500]
    refused = await session.post(WIDGETS, a_widget("two", spec={"text": "x" * 1_600_000}))
    assert refused.body["message"] == "etcdserver: request is too large"
    shorter = await session.patch(f"{WIDGETS}/one", {"spec": {"k0": None}})
    assert (shorter.code, list(shorter.body["spec"])) == (200, ["k1"])


def test_apply_takes_time_linear_in_conflicts() -> None:
    """Quadratic, it takes longer than any test may."""
    schema = Schema({"type": "object", "properties": {"spec": SPEC}})
    count = 100_000

    def applied(live: dict[str, Any] | None, manager: str, value: str) -> dict[str, Any]:
        labels = {f"key{number}": value for number in range(count)}
        config = {"apiVersion": "example.test/v1", "kind": "Widget", "metadata": {}, "spec": {"labels": labels}}
        return apply_config(live, config, schema, ApplyOptions(manager, "", True, "2026-01-01T00:00:00Z", config))

    taken = applied(applied(None, "me", "1"), "you", "2")
    assert [entry["manager"] for entry in taken["metadata"]["managedFields"]] == ["you"]


def test_removal_takes_time_linear_in_its_size() -> None:
    count = 60_000
    ports = [{"name": f"p{number}", "port": number} for number in range(count)]
    doomed = frozenset(("f:ports", f'k:{{"name":"p{number}"}}', "f:port") for number in range(1, count))
    left = remove_paths({"ports": ports}, doomed, Schema(SPEC))
    assert left["ports"][:2] == [{"name": "p0", "port": 0}, {"name": "p1"}]
    assert len(left["ports"]) == count


def test_a_move_copies_nothing() -> None:
    inner = {f"key{number}": number for number in range(200_000)}
    there, back = ({"op": "move", "from": one, "path": other} for one, other in (("/a", "/b"), ("/b", "/a")))
    assert json_patch({"a": inner}, [there, back] * 5_000) == {"a": inner}
    with pytest.raises(PatchError):
        json_patch({"a": inner}, [{"op": "move", "from": "/a", "path": "/a/b"}])
    separate = json_patch(
        {"a": {"n": 1}},
        [
            {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "replace", "path": "/b/n", "value": 2},
        ],
    )
    assert separate == {"a": {"n": 1}, "b": {"n": 2}}


def test_a_strategic_patch_takes_time_linear_in_its_lists() -> None:
    count = 60_000
    schema = schema_of("core.v1.PodSpec")
    before = {"containers": [{"name": f"c{number}", "image": "i"} for number in range(count)]}
    deleted = [{"name": f"c{number}", "$patch": "delete"} for number in range(1, count, 2)]
    changed = [{"name": f"c{number}", "image": "j"} for number in range(0, count, 2)]
    after = strategic_patch(before, {"containers": [*deleted, *changed, {"name": "c1", "image": "k"}]}, schema)
    assert len(after["containers"]) == count // 2 + 1
    assert {item["image"] for item in after["containers"]} == {"j", "k"}
