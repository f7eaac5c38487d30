"""Gangs read off pods in the vocabularies people use, as tables."""

from __future__ import annotations

import pytest

from matrixcommon.model.errors import InvalidField, MatrixError
from matrixcommon.model.hardware_names import NodeName
from matrixcontainer.scheduler.gangs import Gang, assign_pods, group_into_gangs, npus_of
from matrixcontainer.scheduler.pod_groups import PodGroup, read_group
from matrixresource.contract.allocations import AllocationView
from matrixresource.contract.requested_capacity import PlacementPolicy
from tests.matrixcompute.test_decisions import member


def pod(name, labels=None, annotations=None, npus="8", node=None, scheduler="matrix-scheduler", phase="Pending"):
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "c", "resources": {"limits": {"huawei.com/Ascend910": npus}}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("sentence", "labels", "annotations", "name", "size"),
    [
        ("alone", {}, {}, "a", 1),
        ("Volcano", {}, {"scheduling.k8s.io/group-name": "job"}, "job", 1),
        ("coscheduling", {"scheduling.x-k8s.io/pod-group": "job"}, {}, "job", 1),
        ("Kueue", {"kueue.x-k8s.io/pod-group-name": "job"}, {"kueue.x-k8s.io/pod-group-total-count": "4"}, "job", 4),
        ("MindCluster", {"huawei.com/schedule_minAvailable": "2"}, {"scheduling.k8s.io/group-name": "job"}, "job", 2),
        ("nonsense counts as one", {}, {"kueue.x-k8s.io/pod-group-total-count": "many"}, "a", 1),
    ],
)
def test_a_gang_is_named_and_sized(sentence, labels, annotations, name, size):
    (gang,) = group_into_gangs([pod("a", labels, annotations)])
    assert (gang.name, gang.size) == (name, size), sentence


@pytest.mark.parametrize(
    ("sentence", "body", "size", "placement", "spares"),
    [
        ("nothing reported", {}, 1, PlacementPolicy(), 0),
        ("coscheduling, Volcano", {"spec": {"minMember": 3}}, 3, PlacementPolicy(), 0),
        (
            "a tier that must be kept", {"spec": {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}},
            1, PlacementPolicy(level="supernode", required=True), 0,
        ),
        ("one that is liked", {"spec": {"networkTopology": {"mode": "soft"}}}, 1, PlacementPolicy(level="supernode"), 0),
        ("spares", {"metadata": {"annotations": {"reserve-nodes": "2"}}}, 1, PlacementPolicy(), 2),
    ],
)  # fmt: skip
def test_pod_group_sets_size_and_placement(sentence, body, size, placement, spares):
    group = read_group({"metadata": {}, **body})
    named = {"scheduling.k8s.io/group-name": "job"}
    (gang,) = group_into_gangs([pod("a", annotations=named)], {("ns", "job"): group, ("other", "job"): PodGroup(9)})
    assert (gang.size, gang.placement(), gang.spares) == (size, placement, spares), sentence


def test_pod_with_another_group_name_is_not_in_the_group():
    (gang,) = group_into_gangs([pod("job")], {("ns", "job"): PodGroup(9)})
    assert gang.size == 1


def test_gated_pod_is_not_counted():
    gated = pod("b", {"kueue.x-k8s.io/pod-group-name": "job"})
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    (gang,) = group_into_gangs([pod("a", {"kueue.x-k8s.io/pod-group-name": "job"}), gated])
    assert [each["metadata"]["name"] for each in gang.active_pods()] == ["a"]


@pytest.mark.parametrize(
    ("npus", "annotations", "refused"),
    [
        ("8", {}, None),
        ("16", {"sp-block": "16"}, None),
        ("16", {}, "a node has 8: use a gang"),
        ("3", {}, None),
        ("0", {}, "requests no"),
    ],
)
def test_a_pod_takes_up_to_a_whole_node(npus, annotations, refused):
    (gang,) = group_into_gangs([pod("a", annotations=annotations, npus=npus)])
    if refused is None:
        gang.validate()
    else:
        with pytest.raises(MatrixError, match=refused):
            gang.validate()


def test_pods_of_other_schedulers_are_ignored():
    assert group_into_gangs([pod("a", scheduler="default-scheduler")]) == []


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, ("pack", "cabinet", False)),
        ({"kueue.x-k8s.io/podset-required-topology": "cloudmatrix.io/cabinet"}, ("pack", "cabinet", True)),
        ({"kueue.x-k8s.io/podset-preferred-topology": "topology.kubernetes.io/zone"}, ("pack", "cabinet", False)),
        ({"kueue.x-k8s.io/podset-required-topology": "volcano.sh/hypernode"}, ("pack", "supernode", True)),
    ],
)
def test_placement_from_annotations(annotations, expected):
    (gang,) = group_into_gangs([pod("a", annotations=annotations)])
    placement = gang.placement()
    assert (placement.policy, placement.level, placement.required) == expected


def test_unknown_topology_level_is_refused_with_the_known_ones():
    (gang,) = group_into_gangs([pod("a", annotations={"kueue.x-k8s.io/podset-required-topology": "rack"})])
    with pytest.raises(InvalidField, match=r"cloudmatrix\.io/cabinet"):
        gang.placement()


@pytest.mark.parametrize(
    ("block", "size", "fits"),
    [("16", 4, True), ("32", 4, True), ("48", 4, False), ("8", 4, False), ("x", 4, False), ("64", 4, True)],
)
def test_sp_block_counts_dies_and_must_divide_the_gang(block, size, fits):
    gang = Gang("ns", "g", [pod(f"p{i}", annotations={"sp-block": block}) for i in range(size)], size)
    if fits:
        gang.validate()
    else:
        with pytest.raises(InvalidField, match="sp-block"):
            gang.validate()


@pytest.mark.parametrize(
    ("pods", "npus", "nodes", "per"),
    [(1, 2, 1, 2), (4, 2, 1, 8), (6, 2, 2, 6), (5, 3, 5, 3), (3, 8, 3, None), (7, 1, 1, 7), (9, 1, 3, 3)],
)
def test_pods_of_less_than_a_node_share_nodes_evenly(pods, npus, nodes, per):
    gang = Gang("ns", "g", [pod(f"p{i}", npus=str(npus)) for i in range(pods)], pods)
    gang.validate()
    request = gang.request(None)
    assert (request.nodes, request.npus_per_node) == (nodes, None if per == 8 else per)


def test_priority_blocks_and_parts_reach_the_request():
    notes = {"sp-block": "8"}
    pods = [pod(f"p{i}", npus="2", annotations=notes) for i in range(6)]
    for each in pods:
        each["spec"] |= {"priority": 1000, "preemptionPolicy": "PreemptLowerPriority"}
    with pytest.raises(InvalidField, match="sp-block"):
        Gang("ns", "g", pods, 6).validate()  # three pods of two NPUs on a node: twelve dies
    for each in pods:
        each["metadata"]["annotations"]["sp-block"] = "24"
    request = Gang("ns", "g", pods, 6).request(None)
    assert (request.priority, request.preemption) == (1000, "LowerPriority")
    assert [(block.nodes, block.level) for block in request.placement.blocks] == [(2, "supernode")]
    pods[0]["spec"]["preemptionPolicy"] = "Never"
    assert Gang("ns", "g", pods, 6).request(None).preemption == "Never"


def test_pods_of_a_gang_have_equal_requests():
    with pytest.raises(InvalidField, match="another pod of its gang"):
        Gang("ns", "g", [pod("p", npus="2"), pod("q", npus="3")], 2).validate()


def test_pods_that_share_a_node_are_bound_to_it_up_to_its_share():
    nodes = [NodeName(f"sn0-c00-n{index}") for index in range(2)]
    pods = [pod("a", npus="2"), pod("b", npus="2", node=nodes[0]), pod("c", npus="2"), pod("d", npus="2")]
    assert assign_pods(pods, nodes, nodes, 2) == {"a": nodes[0], "c": nodes[1], "d": nodes[1]}


def test_npus_of_all_containers_count():
    assert npus_of(pod("a")) == 8


def test_pods_go_to_ready_nodes_in_rank_order_and_never_two_to_one():
    nodes = [NodeName(f"sn0-c00-n{index}") for index in range(3)]
    index = "batch.kubernetes.io/job-completion-index"
    pods = [
        pod("z", annotations={index: "0"}),
        pod("a", annotations={index: "1"}),
        pod("m", annotations={index: "2"}, node=nodes[1]),
    ]
    gang = Gang("ns", "g", pods, 3)
    assert assign_pods(gang.active_pods(), nodes, nodes) == {"z": nodes[0], "a": nodes[2]}
    assert assign_pods(gang.active_pods(), nodes, nodes[:2]) == {"z": nodes[0]}
    assert assign_pods(gang.active_pods(), nodes, nodes[2:]) == {"a": nodes[2]}, (
        "who is ready first is not rank 0 by that"
    )


def test_finished_and_terminating_pods_are_not_placed():
    dying = pod("b")
    dying["metadata"]["deletionTimestamp"] = "t"
    assert Gang("ns", "g", [pod("a", phase="Succeeded"), dying]).active_pods() == []


def test_the_allocation_is_named_after_the_gang_and_is_a_legal_name():
    from matrixcommon.model.hardware_names import validate_resource_name

    for name in ("a", "a.b.c", "x" * 200, "ends-"):
        assert validate_resource_name(Gang("ns", name).allocation)
    assert Gang("one", "a").allocation != Gang("two", "a").allocation


def allocated(nodes: int, npus_per_node: float | None = None) -> AllocationView:
    return AllocationView(
        name="g", nodes=nodes, npus=8.0 * nodes, spares=0, placement=PlacementPolicy(), topology_version="v",
        bound=True, npus_per_node=npus_per_node, members=[member(f"sn0-c00-n{at}") for at in range(nodes)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "pods", "allocation", "nodes", "leaving"),
    [
        ("the first is over", [("a", 0, "Succeeded"), ("b", 1, "Running")], allocated(2), 1, [0]),
        ("the last is over", [("a", 0, "Running"), ("b", 1, "Succeeded")], allocated(2), 1, [1]),
        ("one in the middle has failed", [("a", 0, "Running"), ("b", 1, "Failed"), ("c", 2, "Running")], allocated(3), 2, [1]),
        ("one waits for its node, in its order", [("a", 1, "Running"), ("b", None, "Pending")], allocated(3), 2, [2]),
        ("nobody goes", [("a", 0, "Running"), ("b", None, "Pending")], allocated(2), 2, []),
        ("of two on each node one is over", [("a", 0, "Succeeded"), ("b", 0, "Running"), ("c", 1, "Succeeded"), ("d", 1, "Running")], allocated(2), 2, []),
    ],
)  # fmt: skip
def test_shrinking_gang_releases_idle_nodes_first(sentence, pods, allocation, nodes, leaving):
    npus = "4" if "two on each" in sentence else "8"
    named = {"scheduling.k8s.io/group-name": "g"}
    at = [(name, None if number is None else f"sn0-c00-n{number}", phase) for name, number, phase in pods]
    (gang,) = group_into_gangs([pod(name, None, named, npus, node, phase=phase) for name, node, phase in at])
    request = gang.request(allocation)
    assert (request.nodes, request.exclude_nodes) == (nodes, [f"sn0-c00-n{number}" for number in leaving]), sentence
