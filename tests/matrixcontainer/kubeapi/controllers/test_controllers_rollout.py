"""The decisions of workload controllers as tables: sizes in a rollout, who is deleted first, placing, commands."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcontainer.kubeapi.controllers.runtime.node_fit import filter_reason, select_node
from matrixcontainer.kubeapi.controllers.workloads.job_decision import format_indexes, parse_indexes
from matrixcontainer.kubeapi.controllers.workloads.replica_sets import deletion_order
from matrixcontainer.kubeapi.controllers.workloads.rollout import (
    DESIRED,
    MAXIMUM,
    RolloutSets,
    new_set_size,
    old_set_sizes,
    proportional_sizes,
    spec_changed,
    surge_and_unavailable,
    template_hash,
)
from matrixcontainer.kubeapi.kubelet.container_script import ScriptAction, parse_command
from matrixcontainer.kubeapi.kubelet.node_info import NodeInfo
from matrixcontainer.kubeapi.kubelet.pod_info import PodInfo, requests_of
from matrixcontainer.kubeapi.meta.quantities import format_milli, milli


def deployment(replicas: int, surge: Any = "25%", unavailable: Any = "25%") -> dict[str, Any]:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    spec = {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}


def a_set(name: str, size: int, available: int | None = None, notes: dict[str, str] | None = None) -> dict[str, Any]:
    meta = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{name[-1]}Z", "annotations": notes or {}}
    return {
        "metadata": meta,
        "spec": {"replicas": size},
        "status": {"availableReplicas": size if available is None else available},
    }


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "found"),
    [
        (4, "25%", "25%", (1, 1)),
        (10, "25%", "25%", (3, 2)),  # up for the surge, down for what may miss
        (3, 0, 0, (0, 1)),  # never both zero
        (1, "0%", "25%", (0, 1)),
        (2, 5, 9, (5, 2)),
        (0, "25%", "25%", (0, 0)),
    ],
)
def test_bounds(replicas: int, surge: Any, unavailable: Any, found: tuple[int, int]) -> None:
    assert surge_and_unavailable(deployment(replicas, surge, unavailable)) == found


@pytest.mark.parametrize(
    ("replicas", "surge", "new", "old", "size"),
    [
        (4, 1, 0, 4, 1),
        (4, 1, 1, 4, 1),  # no room left
        (4, 1, 1, 3, 2),
        (4, "100%", 0, 4, 4),
        (4, 1, 6, 0, 4),  # too large shrinks to the desired number
    ],
)
def test_the_new_set_grows_while_the_surge_allows(replicas: int, surge: Any, new: int, old: int, size: int) -> None:
    assert new_set_size(deployment(replicas, surge, 0), RolloutSets(a_set("n2", new), [a_set("o1", old)])) == size


@pytest.mark.parametrize(
    ("unavailable", "new", "olds", "sizes"),
    [
        (0, ("n3", 1, 0), [("o1", 4, 4)], {}),  # the new pod does not serve yet
        (0, ("n3", 1, 1), [("o1", 4, 4)], {"o1": 3}),
        (1, ("n3", 1, 0), [("o1", 4, 4)], {"o1": 3}),
        (1, ("n3", 1, 0), [("o1", 4, 2)], {"o1": 3}),  # the unhealthy first, no further than the bound
        (0, ("n3", 1, 1), [("o1", 2, 0), ("o2", 3, 3)], {"o1": 0}),
        (0, ("n3", 4, 4), [("o1", 1, 1), ("o2", 1, 1)], {"o1": 0, "o2": 0}),
    ],
)
def test_old_sets_shrink_while_enough_serve(unavailable: int, new: Any, olds: list[Any], sizes: dict[str, int]) -> None:
    assert (
        old_set_sizes(deployment(4, 1, unavailable), RolloutSets(a_set(*new), [a_set(*old) for old in olds])) == sizes
    )


def test_sets_are_scaled_proportionally() -> None:
    notes = {DESIRED: "10", MAXIMUM: "12"}
    sets = RolloutSets(a_set("n2", 8, 3, notes), [a_set("o1", 4, 4, notes)])
    desired = deployment(20, 2, 0)
    assert spec_changed(desired, sets)
    sizes = proportional_sizes(desired, sets)
    assert sum(sizes.values()) == 22
    assert sizes["n2"] > sizes["o1"] > 4
    assert proportional_sizes(deployment(0, 2, 0), sets) == {"n2": 0, "o1": 0}
    assert proportional_sizes(deployment(5), RolloutSets(None, [a_set("o1", 3)])) == {"o1": 5}


def test_the_hash_names_the_template_and_nothing_else() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    labelled = {"metadata": {"labels": {"a": "b", "pod-template-hash": "x"}}, "spec": template["spec"]}
    assert template_hash(template, 0) == template_hash(labelled, 0) != template_hash(template, 1)


def test_pod_deletion_order() -> None:
    def pod(name: str, **facts: Any) -> PodInfo:
        return PodInfo(("d", name), node="n1", phase="Running", ready_since=100.0, created=50.0, **facts)

    pods = [
        pod("old"),
        PodInfo(("d", "unbound")),
        PodInfo(("d", "pending"), node="n1"),
        PodInfo(("d", "unready"), node="n1", phase="Running"),
        pod("cheap", cost=-5),
        pod("restarted", restarts=2),
    ]
    crowded = pod("crowded")
    crowded.node = "n2"
    young = pod("young")
    young.ready_since = 200.0
    found = [p.key[1] for p in deletion_order([*pods, crowded, young], {"n1": 1, "n2": 5})]
    assert found == ["unbound", "pending", "unready", "cheap", "crowded", "young", "restarted", "old"]


NODE = NodeInfo(
    "n1", ready=True, labels={"zone": "a"}, allocatable={"cpu": 4000, "pods": 3000, "huawei.com/Ascend910": 8000}
)


@pytest.mark.parametrize(
    ("spec", "asks", "why"),
    [
        ({}, {}, ""),
        ({}, {"cpu": 4000}, ""),
        ({}, {"cpu": 4001}, "Insufficient cpu"),
        ({}, {"huawei.com/Ascend910": 9000}, "Insufficient huawei.com/Ascend910"),
        ({"nodeSelector": {"zone": "b"}}, {}, "node(s) didn't match Pod's node affinity/selector"),
        ({"nodeSelector": {"zone": "a"}}, {}, ""),
    ],
)  # fmt: skip
def test_scheduling_filters(spec: dict[str, Any], asks: dict[str, int], why: str) -> None:
    assert filter_reason({"spec": spec}, asks, NODE, {}) == why


def affinity(operator: str, *values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(values)}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    }


def test_affinity_taints_and_the_emptiest_node() -> None:
    assert filter_reason({"spec": affinity("In", "a", "b")}, {}, NODE, {}) == ""
    assert filter_reason({"spec": affinity("NotIn", "a")}, {}, NODE, {}) != ""
    assert filter_reason({"spec": {}}, {}, NODE, {"pods": 3000}) == "Too many pods"
    tainted = NodeInfo(
        "n2", ready=True, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}], allocatable=NODE.allocatable
    )
    assert "untolerated taint {k: v}" in filter_reason({"spec": {}}, {}, tainted, {})
    tolerant = {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}
    assert select_node(tolerant, {}, [NODE, tainted], {"n1": {"pods": 1000}}) == ("n2", "")
    assert select_node({"spec": {}}, {}, [tainted, NodeInfo("n3")], {})[1] == (
        "0/2 nodes are available: 1 node(s) had untolerated taint {k: v}, 1 node(s) were not ready."
    )


@pytest.mark.parametrize(
    ("words", "action"),
    [
        (["sleep", "5"], ScriptAction(5.0)),
        (["sleep", "infinity"], ScriptAction(None)),
        (["/bin/sh", "-c", "echo a b; sleep 2m && exit 3"], ScriptAction(120.0, 3, ("a b",))),
        (["false"], ScriptAction(0.0, 1)),
        (["sh", "-c", "false && echo no"], ScriptAction(0.0, 1)),
        (["nginx", "-g", "daemon off;"], ScriptAction()),
        (["sh", "-c", "echo $HOME"], ScriptAction()),
        ([], ScriptAction()),
    ],
)
def test_commands(words: list[str], action: ScriptAction) -> None:
    assert parse_command(words) == action


def test_amounts_and_indexes() -> None:
    assert [milli(text) for text in ("250m", "2", "1Ki", "1e3", "0.5", "100n")] == [250, 2000, 1024000, 1000000, 500, 1]
    assert [format_milli(number) for number in (2000, 1500)] == ["2", "1500m"]
    with pytest.raises(ValueError, match="quantities must match"):
        milli("five")
    asks = {
        "containers": [
            {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}},
            {"resources": {"limits": {"x/npu": 8}}},
        ],
        "initContainers": [{"resources": {"requests": {"cpu": "2"}}}],
    }
    assert requests_of(asks) == {"cpu": 2000, "x/npu": 8000}
    assert format_indexes({0, 1, 2, 5}) == "0-2,5"
    assert parse_indexes("0-2,5") == {0, 1, 2, 5}
