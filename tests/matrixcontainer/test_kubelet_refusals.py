"""The operator's kubelets before an API that refuses what a test says: every other pod and Lease has its turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from matrixcommon.model.errors import InternalError
from matrixcontainer.client.client import POD, Kind, KubeClient
from matrixcontainer.mirrors.virtual_kubelet import Kubelets
from matrixresource.client import ResourceClient

NODES = ("sn0-c00-n0", "sn0-c00-n1", "sn0-c00-n2")


class Kubernetes:
    """A pod on each node. What is of the first node is denied."""

    def __init__(self) -> None:
        self.written: list[str] = []

    async def list(self, kind: Kind, namespace: str | None = None, labels: str = "") -> tuple[list[Any], str]:
        if kind != POD:
            return [{"metadata": {"name": name, "uid": name}} for name in NODES], ""
        meta = {"namespace": "default", "resourceVersion": "1", "creationTimestamp": "2026-09-21T14:13:20Z"}
        spec = {"containers": [{"name": "c", "image": "i"}]}
        return [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta | {"name": name, "uid": f"uid-of-{name}"},
                "spec": spec | {"nodeName": name},
                "status": {"phase": "Pending"},
            }
            for name in NODES
        ], ""

    async def merge(self, kind: Kind, name: str, *_: Any) -> None:
        self._write(name)

    async def apply(self, kind: Kind, body: dict[str, Any]) -> None:
        self._write(body["metadata"]["name"])

    async def create(self, *_: Any) -> None: ...

    def _write(self, name: str) -> None:
        if name == NODES[0]:
            raise InternalError(f"admission denied {name}")
        self.written.append(name)


class Resource:
    async def nodes(self) -> list[Any]:
        return [SimpleNamespace(name=name, agent="Connected", power="On") for name in NODES]


@pytest.mark.parametrize("verb", ["reconcile", "renew_leases"])
async def test_an_error_in_one_pod_or_lease_does_not_hold_up_the_others(verb: str) -> None:
    kube = Kubernetes()
    kubelets = Kubelets(cast(KubeClient, kube), cast(ResourceClient, Resource()), lambda: 1_790_000_060.0)
    with pytest.raises(InternalError, match=NODES[0]):
        await getattr(kubelets, verb)()
    assert kube.written == list(NODES[1:])
