"""Which hard rules of a pod's spec the scheduler of NPU pods accepts: those that hold wherever it is placed."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcommon.model.errors import InvalidField
from matrixcontainer.client.client import NODE
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.scheduler.pod_rules import validate_rules
from tests.matrixcontainer.test_gangs import pod
from tests.matrixcontainer.test_pod_scheduler import Kubernetes, Resource, a_scheduler

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NODES = [
    NodeInfo(f"n{index}", labels={"kubernetes.io/os": "linux", "cloudmatrix.io/cabinet": f"c{index}"})
    for index in range(3)
]


def of_pods(kind: str, key: str = "cloudmatrix.io/cabinet") -> dict[str, Any]:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": {}}]}}}


def of_nodes(key: str, *values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def spread(when: str) -> dict[str, Any]:
    return {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when}]}


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({}, ""),
        ({"nodeSelector": {"kubernetes.io/os": "linux"}}, ""),
        ({"nodeSelector": {"cloudmatrix.io/cabinet": "c1"}}, "spec.nodeSelector admits 1 of 3 nodes"),
        ({"nodeSelector": {"host-arch": "huawei-x86"}}, "spec.nodeSelector admits 0 of 3 nodes"),
        ({"nodeSelector": {"host-arch": "huawei-x86"}, "nodeName": "n1"}, ""),
        (of_nodes("kubernetes.io/os", "linux"), ""),
        (of_nodes("cloudmatrix.io/cabinet", "c0", "c2"), "spec.affinity.nodeAffinity admits 2 of 3 nodes"),
        (of_pods("podAffinity"), "spec.affinity.podAffinity with topologyKey cloudmatrix.io/cabinet"),
        (of_pods("podAntiAffinity"), "spec.affinity.podAntiAffinity with topologyKey cloudmatrix.io/cabinet"),
        (of_pods("podAntiAffinity", "kubernetes.io/hostname"), "spec.affinity.podAntiAffinity"),
        ({"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1}]}}}, ""),
        (spread("DoNotSchedule"), "spec.topologySpreadConstraints with topologyKey zone says DoNotSchedule"),
        (spread("ScheduleAnyway"), ""),
    ],
)
def test_a_rule_that_might_not_hold_is_refused_by_its_field(spec: dict[str, Any], refused: str) -> None:
    body = pod("a")
    body["spec"] |= spec
    if not refused:
        return validate_rules([body], NODES, whole_nodes=False)
    with pytest.raises(InvalidField, match=f"pod a: {refused}.*podset-required-topology"):
        validate_rules([body], NODES, whole_nodes=False)
    return None


def test_pods_of_whole_nodes_may_ask_not_to_share_one() -> None:
    body = pod("a")
    body["spec"] |= of_pods("podAntiAffinity", "kubernetes.io/hostname")
    validate_rules([body], NODES, whole_nodes=True)


class OneCabinet(Kubernetes):
    """Two nodes, and what is reported on pods."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.messages: dict[str, str] = {}

    async def list(self, kind: Any, namespace: str | None = None, labels: str = "") -> tuple[list[Any], str]:
        nodes = [{"metadata": {"name": name, "labels": {"cabinet": name}}} for name in ("n1", "n2")]
        return (nodes if kind == NODE else self.pods), ""

    async def merge(self, *change: Any) -> None:
        self.messages[change[1]] = change[2]["status"]["conditions"][0]["message"]


async def test_a_pod_that_selects_some_nodes_waits_and_others_are_placed() -> None:
    kube, resource = OneCabinet("picky", "plain"), Resource()
    kube.pods[0]["spec"]["nodeSelector"] = {"cabinet": "n1"}
    await a_scheduler(kube, resource).reconcile()
    assert kube.bound == ["plain"]
    assert len(resource.allocated) == 1
    assert "spec.nodeSelector admits 1 of 2 nodes" in kube.messages["picky"]


async def test_rules_are_judged_before_nodes_are_allocated_and_not_again() -> None:
    kube, resource = OneCabinet("a"), Resource()
    await a_scheduler(kube, resource).reconcile()
    kube.pods[0]["spec"] |= {"nodeName": None, "nodeSelector": {"cabinet": "n1"}}
    await a_scheduler(kube, resource).reconcile()
    assert kube.bound == ["a", "a"]
    assert not kube.messages
