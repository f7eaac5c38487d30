"""The scheduler of NPU pods, over a Kubernetes API and a MatrixResource that refuse what a test says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from matrixcommon.model.errors import Conflict, InternalError, Unavailable
from matrixcontainer.client.client import Kind, KubeClient
from matrixcontainer.scheduler.gangs import Gang
from matrixcontainer.scheduler.scheduler import GANG_LABEL, PodScheduler
from matrixresource.client import ResourceClient
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.contract.requested_capacity import PlacementPolicy
from tests.matrixcontainer.test_gangs import pod


class Kubernetes:
    """Pods, and those of them whose binding is denied."""

    def __init__(self, *names: str) -> None:
        self.pods = [pod(name) for name in names]
        for each in self.pods:
            each["metadata"]["resourceVersion"] = "1"
        self.denied: set[str] = set()
        self.bound: list[str] = []
        self.away = False

    async def list(self, kind: Kind, namespace: str | None = None, labels: str = "") -> tuple[list[Any], str]:
        return self.pods, ""

    async def bind(self, name: str, namespace: str, body: dict[str, Any]) -> None:
        if name in self.denied:
            raise InternalError(f"admission denied the binding of {name}")
        self.bound.append(name)

    async def delete(
        self, kind: Kind, name: str, namespace: str, grace_s: int | None = None, uid: str | None = None
    ) -> bool:
        if self.away:
            raise Unavailable("the API is away")
        if uid not in (None, *(each["metadata"]["uid"] for each in self.pods if each["metadata"]["name"] == name)):
            raise Conflict("the uid is another's")
        self.pods = [each for each in self.pods if each["metadata"]["name"] != name]
        return True

    async def merge(self, *_: Any) -> None: ...

    async def create(self, *_: Any) -> None: ...


class Resource:
    """Every gang gets a node; some allocations cannot be released."""

    def __init__(self) -> None:
        self.allocated: dict[str, Any] = {}
        self.stuck: set[str] = set()

    def hold(self, name: str) -> Any:
        member = SimpleNamespace(node="sn0-c03-n2", role="member", ready=True, agent="Connected", health="Healthy")
        counts = {"nodes": 1, "spares": 0, "priority": 0, "npus_per_node": None}
        more = {
            "state": "Bound",
            "bound": True,
            "members": [member],
            "labels": {GANG_LABEL: name},
            "placement": PlacementPolicy(),
        }
        return self.allocated.setdefault(name, SimpleNamespace(key=name, **counts, **more))

    async def allocations(self) -> list[Any]:
        return list(self.allocated.values())

    async def supernodes(self) -> list[Any]:
        return []

    async def reserve(self, name: str, request: AllocationRequest) -> Any:
        return self.hold(name)

    async def replace(self, name: str, node: str, reason: str, validate_only: bool = False) -> None:
        if not validate_only:
            (member,) = self.allocated[name].members
            member.node, member.agent = "sn0-c03-n3", "Connected"

    async def release(self, name: str) -> None:
        if name in self.stuck:
            raise Unavailable(f"{name} cannot be released now")
        del self.allocated[name]


def a_scheduler(kube: Kubernetes, resource: Resource) -> PodScheduler:
    return PodScheduler(cast(KubeClient, kube), cast(ResourceClient, resource), lambda: 1_790_000_000.0)


async def test_an_error_in_one_gang_does_not_hold_up_placement_or_release_of_others() -> None:
    kube, resource = Kubernetes("first", "second"), Resource()
    kube.denied.add("first")
    for name in ("gone-1", "gone-2", "gone-3"):
        resource.hold(name)
    resource.stuck = {"gone-1"}
    with pytest.raises(InternalError, match="first"):
        await a_scheduler(kube, resource).reconcile()
    assert kube.bound == ["second"]
    assert set(resource.allocated) == {Gang("ns", "first").allocation, Gang("ns", "second").allocation, "gone-1"}


async def test_reports_of_deleted_pods_are_forgotten() -> None:
    kube = Kubernetes("waits")
    kube.pods[0]["metadata"]["labels"]["huawei.com/schedule_minAvailable"] = "2"
    scheduler = a_scheduler(kube, Resource())
    await scheduler.reconcile()
    assert scheduler._reported
    kube.pods.clear()
    await scheduler.reconcile()
    assert not scheduler._reported


async def test_pod_of_a_lost_node_is_evicted_once_a_replacement_is_possible() -> None:
    kube, resource = Kubernetes("one"), Resource()
    (member,) = resource.hold(Gang("ns", "one").allocation).members
    kube.pods[0]["spec"]["nodeName"], member.agent, kube.away = member.node, "Lost", True
    with pytest.raises(Unavailable):
        await a_scheduler(kube, resource).reconcile()
    kube.away = False
    await a_scheduler(kube, resource).reconcile()
    assert (kube.pods, member.node) == ([], "sn0-c03-n3")


async def test_recreated_pod_is_not_evicted_for_its_predecessor() -> None:
    kube, resource = Kubernetes("one"), Resource()
    resource.hold(Gang("ns", "one").allocation).state = "Releasing"
    resource.allocated[Gang("ns", "one").allocation].conditions = []
    seen, kube.pods = [pod("one", node="sn0-c03-n2")], [pod("one")]
    kube.pods[0]["metadata"]["uid"] = "another"
    scheduler = a_scheduler(kube, resource)
    await scheduler._place(Gang("ns", "one", seen), resource.allocated[Gang("ns", "one").allocation])
    assert [each["metadata"]["uid"] for each in kube.pods] == ["another"]
