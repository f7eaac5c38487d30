"""Mirrors before an API that refuses what a test says: every other object has its turn, and what was refused has another
at the next look."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from matrixcommon.model.errors import Conflict, Forbidden, InternalError, MatrixError, NotFound
from matrixcontainer.client.client import NETWORK_SLICE, NODE, SUPERNODE, Kind, KubeClient
from matrixcontainer.mirrors.cordons import Cordons
from matrixcontainer.mirrors.mirrors import Mirror, Mirrors
from matrixresource.client import ResourceClient

NAMES = ("a", "b", "c")
UNWANTED = tuple(f"gone-{at}" for at in range(4))


class Kubernetes:
    """Holds what is written; refuses, verb by verb, what it is told to."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.refused: dict[tuple[str, str], MatrixError] = {}
        self._version = 0

    async def list(self, kind: Kind, namespace: str | None = None, labels: str = "") -> tuple[list[Any], str]:
        return list(self.objects.values()), ""

    async def find(self, kind: Kind, name: str) -> dict[str, Any] | None:
        return self.objects.get(name)

    async def apply(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        return self._put("apply", body["metadata"]["name"], body)

    async def merge(self, kind: Kind, name: str, body: dict[str, Any], subresource: str = "") -> dict[str, Any]:
        return self._put("status", name, self.objects[name] | {"status": body["status"]})

    async def delete(self, kind: Kind, name: str) -> None:
        self._check("delete", name)
        self.objects.pop(name, None)

    def _put(self, verb: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        self._check(verb, name)
        self._version += 1
        self.objects[name] = body | {"metadata": {"name": name, "resourceVersion": str(self._version)}}
        return self.objects[name]

    def _check(self, verb: str, name: str) -> None:
        if (refusal := self.refused.get((verb, name))) is not None:
            raise refusal


def wanted(value: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    return {name: ({"metadata": {"name": name}, "spec": {"is": value}}, {"is": value}) for name in NAMES}


@pytest.mark.parametrize("refusal", [InternalError, Forbidden, Conflict, NotFound])
@pytest.mark.parametrize("verb", ["apply", "status", "delete"])
async def test_an_error_in_one_object_does_not_hold_up_the_others(verb: str, refusal: type[MatrixError]) -> None:
    kube = Kubernetes()
    mirror = Mirror(cast(KubeClient, kube), SUPERNODE)
    kube.objects = {name: {"metadata": {"name": name, "resourceVersion": "0"}} for name in (*NAMES, *UNWANTED)}
    hit = {"delete": UNWANTED[0]}.get(verb, "a")
    kube.refused[verb, hit] = refusal("denied")
    with pytest.raises(MatrixError, match=r"denied|faster"):
        await mirror.sync(wanted("new"))
    for name in NAMES:
        as_wanted = kube.objects[name].get("spec"), kube.objects[name].get("status")
        assert (as_wanted == ({"is": "new"}, {"is": "new"})) == (name != hit)
    assert set(kube.objects) == {*NAMES} | ({UNWANTED[0]} if verb == "delete" else set())
    kube.refused.clear()
    assert await mirror.sync(wanted("new")) == 1, "what was refused, and nothing else"
    assert {name: body.get("status") for name, body in kube.objects.items()} == {name: {"is": "new"} for name in NAMES}


async def test_an_error_in_one_mirror_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Kind] = []

    async def sync(self: Mirror, wanted: Any) -> int:
        synced.append(self._kind)
        if self._kind != NETWORK_SLICE:
            raise InternalError(f"{self._kind.kind} denied")
        return 0

    monkeypatch.setattr(Mirror, "sync", sync)
    with pytest.raises(InternalError, match="Node denied"):
        await mirrors(Kubernetes()).reconcile()
    assert synced == [NODE, SUPERNODE, NETWORK_SLICE]


async def test_an_error_in_one_cordon_does_not_hold_up_cordons_or_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reconciled: list[str] = []

    async def reconcile(self: Cordons, node: Any) -> Any:
        reconciled.append(node.name)
        if node.name == NAMES[0]:
            raise Forbidden("no cordon")
        return SimpleNamespace(name=node.name, shared_by=[], followed=True)

    async def sync(self: Mirror, wanted: Any) -> int:
        followed.update({name: status for name, (_, status) in wanted.items()})
        return 0

    followed: dict[str, bool] = {}
    monkeypatch.setattr(Cordons, "_sync_cordon", reconcile)
    monkeypatch.setattr(Mirror, "sync", sync)
    monkeypatch.setattr("matrixcontainer.mirrors.mirrors.node_status", lambda node, *_: hasattr(node, "followed"))
    monkeypatch.setattr("matrixcontainer.mirrors.mirrors.node_object", lambda node, _: {})
    with pytest.raises(Forbidden, match="no cordon"):
        await mirrors(Kubernetes(), *NAMES).reconcile()
    assert reconciled == list(NAMES)
    assert followed == {"a": False, "b": True, "c": True}


def mirrors(kube: Kubernetes, *nodes: str) -> Mirrors:
    class Resource:
        async def nodes(self) -> list[Any]:
            return [SimpleNamespace(name=name, shared_by=[]) for name in nodes]

        async def supernodes(self) -> list[Any]:
            return []

    async def slices() -> list[Any]:
        return []

    return Mirrors(cast(KubeClient, kube), cast(ResourceClient, Resource()), slices, lambda: 0.0)
