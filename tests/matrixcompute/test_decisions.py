"""What MatrixCompute decides, as tables: recovery, conditions, composition."""

from __future__ import annotations

import pytest

from matrixcommon.model.planes import Plane
from matrixcompute.contract import InstanceRequest
from matrixcompute.model.composition import OWNER_LABEL, compose, slices_over
from matrixcompute.model.observation import Observed, ObservedSlice, conditions_of
from matrixcompute.recovery.policy import Recovery, RecoveryPolicy, nodes_out, plan_recovery, suspect_domains
from matrixresource.contract.allocations import AllocationView, MemberView
from matrixresource.contract.nodes import NodeView
from matrixresource.contract.requested_capacity import PlacementPolicy

POLICY = RecoveryPolicy(lost_per_cabinet_max=4, lost_per_supernode_max=8)


def member(
    node: str, role: str = "member", agent: str = "Connected", health: str = "Healthy", ready: bool = True
) -> MemberView:
    return MemberView(
        node=node, cabinet=node[:7], role=role, rank=0 if role == "member" else None,
        state="Active", agent=agent, health=health, ready=ready,
    )  # fmt: skip


def silent(count: int, cabinet: int | None = None) -> list[str]:
    return [f"sn0-c{(index // 4 if cabinet is None else cabinet):02d}-n{index % 4}" for index in range(count)]


@pytest.mark.parametrize(
    ("sentence", "members", "lost", "action", "nodes", "reason"),
    [
        ("all is well", [member("sn0-c00-n0")], [], "keep", (), ""),
        ("stale is not lost", [member("sn0-c00-n0", agent="Stale")], [], "keep", (), ""),
        ("sub-healthy continues", [member("sn0-c00-n0", health="SubHealthy")], [], "keep", (), ""),
        ("a lost member", [member("sn0-c00-n0", agent="Lost")], silent(1), "replace", ("sn0-c00-n0",), "NodeLost"),
        ("stale beside a lost one of its cabinet is", [member("sn0-c00-n0", agent="Lost"), member("sn0-c00-n1", agent="Stale")], silent(2), "replace", ("sn0-c00-n0", "sn0-c00-n1"), "DomainLost"),
        ("stale in another cabinet is not", [member("sn0-c00-n0", agent="Lost"), member("sn0-c01-n1", agent="Stale")], silent(2), "replace", ("sn0-c00-n0",), "NodeLost"),
        ("an unhealthy one", [member("sn0-c00-n0", health="Unhealthy")], [], "replace", ("sn0-c00-n0",), "NodeUnhealthy"),
        (
            "members before spares",
            [member("sn0-c00-n0", "spare", "Lost"), member("sn0-c00-n1", agent="Lost")],
            silent(2), "replace", ("sn0-c00-n1", "sn0-c00-n0"), "NodeLost",
        ),
        ("a whole cabinet is repaired", [member("sn0-c00-n0", agent="Lost")], silent(4), "replace", ("sn0-c00-n0",), "NodeLost"),
        ("two cabinets still are", [member("sn0-c00-n0", agent="Lost")], silent(8), "replace", ("sn0-c00-n0",), "NodeLost"),
        ("more at once is no node fault", [member("sn0-c00-n0", agent="Lost")], silent(9), "hold", (), "SafetyStop"),
        ("members that were silent a moment before the nodes were read still are", [member(node, agent="Lost") for node in silent(9)], [], "hold", (), "SafetyStop"),
        ("nine silent in another supernode are not its", [member("sn1-c00-n0", agent="Lost")], [*silent(9), "sn1-c00-n0"], "replace", ("sn1-c00-n0",), "NodeLost"),
        (
            "of two supernodes only the one that fell silent waits",
            [member("sn0-c00-n0", agent="Lost"), member("sn1-c00-n0", agent="Lost")],
            [*silent(9), "sn1-c00-n0"], "replace", ("sn1-c00-n0",), "NodeLost",
        ),
        ("five silent in another cabinet are not its", [member("sn0-c05-n0", agent="Lost")], [*silent(5, 0), "sn0-c05-n0"], "replace", ("sn0-c05-n0",), "NodeLost"),
        ("silence elsewhere does not matter to the whole", [member("sn0-c05-n0")], silent(9), "keep", (), ""),
    ],
)  # fmt: skip
def test_recovery(sentence, members, lost, action, nodes, reason):
    plan = plan_recovery(members, lost, POLICY)
    assert (plan.action, plan.nodes, plan.reason) == (action, nodes, reason), sentence


@pytest.mark.parametrize(
    ("nodes", "out", "domains"),
    [
        (["sn0-c00-n0"], ["sn0-c00-n0"], []),
        (["sn0-c00-n0"], ["sn0-c00-n0", "sn0-c01-n0"], []),
        (["sn0-c00-n0"], ["sn0-c00-n0", "sn0-c00-n3"], ["sn0-c00"]),
        (["sn0-c00-n0", "sn0-c02-n1"], silent(12), ["sn0-c00", "sn0-c02"]),
        (["sn0-c00-n0"], ["sn0-c00-n1", "sn0-c00-n2"], []),
        ([], silent(12), []),
    ],
)
def test_cabinet_with_several_nodes_out_is_suspect(nodes, out, domains):
    assert suspect_domains(nodes, out) == domains


@pytest.mark.parametrize(
    ("state", "agent", "counts"),
    [
        ("Available", "Connected", False),
        ("Active", "Stale", True),
        ("Active", "Lost", True),
        ("Quarantined", "Connected", True),
        ("Quarantined", "Lost", True),
        ("Enrolled", "Lost", False),
        ("Servicing", "Lost", False),
        ("Retired", "Lost", False),
        ("Draining", "Connected", False),
    ],
)
def test_safety_stop_counts_silent_and_quarantined_nodes(state, agent, counts):
    node = NodeView(
        name="sn0-c00-n0", supernode="sn0", cabinet="sn0-c00", npus=8, cpus=4, schedulable=False, power="On",
        health="Healthy", agent=agent, epoch=1, desired_role="Clean", assignment_generation=1, observed_generation=1,
        state=state,
    )  # fmt: skip
    assert nodes_out([node]) == ["sn0-c00-n0"] * counts


def test_unhealthy_member_is_described_with_its_fault():
    broken = member("sn0-c00-n0", health="Unhealthy").model_copy(update={"fault": "npu3 80CB8009 (Separate)"})
    plan = plan_recovery([broken, member("sn0-c00-n1", agent="Lost")], silent(1), POLICY)
    assert plan.message == "sn0-c00-n0: NodeUnhealthy: npu3 80CB8009 (Separate); sn0-c00-n1: NodeLost"


def allocation(members: list[MemberView], spares: int = 0, bound: bool = True) -> AllocationView:
    count = sum(m.role == "member" for m in members)
    return AllocationView(
        name="one", nodes=count, npus=8 * count, spares=spares, placement=PlacementPolicy(), topology_version="v", bound=bound,
        members=members,
    )  # fmt: skip


def slices(programmed: bool = True, floors_kept: bool = True) -> tuple[ObservedSlice, ...]:
    return tuple(
        ObservedSlice(
            name=f"one-{plane}",
            plane=plane,
            state="Active",
            generation=1,
            programmed=programmed,
            floors_kept=floors_kept,
        )
        for plane in Plane
    )


TWO = [member("sn0-c00-n0"), member("sn0-c00-n1")]


def joining(*nodes: str) -> tuple[ObservedSlice, ...]:
    return tuple(each.model_copy(update={"members": nodes}) for each in slices())


@pytest.mark.parametrize(
    ("observed", "joined"),
    [
        (Observed(allocation(TWO), joining("sn0-c00-n1", "sn0-c00-n0")), True),
        (Observed(allocation(TWO), joining("sn0-c00-n0", "sn0-c00-n2")), False),
        (Observed(allocation(TWO), joining("sn0-c00-n0")), False),
        (Observed(allocation(TWO), joining("sn0-c00-n0", "sn0-c00-n1")[:2]), False),
        (Observed(None, ()), False),
    ],
    ids=["the same", "a member was replaced", "one is left out", "a plane is missing", "nothing is there"],
)
def test_slices_match_members(observed: Observed, joined: bool) -> None:
    assert observed.slices_match is joined


def statuses(observed: Observed, state: str = "Active", recovery: Recovery | None = None) -> dict[str, str]:
    reported = conditions_of(
        [],
        observed,
        recovery or Recovery("keep"),
        state=state,
        shape=InstanceRequest(nodes=2),
        nodes=2,
        spares=0,
        generation=1,
        now=0,
    )
    return {c["type"]: c["status"] for c in reported}


@pytest.mark.parametrize(
    ("sentence", "observed", "state", "expected"),
    [
        ("nothing yet", Observed(None, ()), "Pending", {"Scheduled": "False", "NodesReady": "False", "Ready": "False"}),
        ("whole", Observed(allocation(TWO), slices()), "Active", {"NodesReady": "True", "LinksReady": "True", "QosSatisfied": "True", "Ready": "True", "Degraded": "False"}),
        ("held but not bound", Observed(allocation(TWO, bound=False), slices(False)), "Provisioning", {"Scheduled": "True", "NodesReady": "False", "LinksReady": "False", "Ready": "False"}),
        ("a plane is missing", Observed(allocation(TWO), slices()[:2]), "Provisioning", {"LinksReady": "False", "Ready": "False"}),
        ("floors are broken", Observed(allocation(TWO), slices(floors_kept=False)), "Active", {"QosSatisfied": "False", "Degraded": "True", "Ready": "True"}),
        ("a spare is missing", Observed(allocation(TWO, spares=1), slices()), "Active", {"SparesAvailable": "False", "Ready": "True"}),
        ("going away", Observed(allocation(TWO), slices()), "Deleting", {"Ready": "False"}),
    ],
)  # fmt: skip
def test_conditions_follow_the_observation(sentence, observed, state, expected):
    reported = statuses(observed, state)
    assert {type: reported[type] for type in expected} == expected, sentence


LOSSY = tuple(each.model_copy(update={"state": "Degraded"}) if each.plane == "rdma" else each for each in slices())
SPARE = member("sn0-c00-n2", "spare")


@pytest.mark.parametrize(
    ("sentence", "observed", "spares", "type", "expected"),
    [
        ("nothing is committed yet", Observed(None, ()), 2, "SparesAvailable", ("False", "Pending", "0 of 2 spares stand ready")),
        ("one of two spares was not to be had", Observed(allocation([*TWO, SPARE], spares=2), slices()), 2, "Scheduled", ("True", "Reserved", "2 nodes and 1 of 2 spares are committed")),
        ("it has all its spares", Observed(allocation([*TWO, SPARE], spares=1), slices()), 1, "Scheduled", ("True", "Reserved", "2 nodes and 1 spare are committed")),
        ("its spares are off with it", Observed(allocation([*TWO, SPARE], spares=1).model_copy(update={"power": "Off"}), slices()), 1, "SparesAvailable", ("False", "SwitchedOff", "1 of 1 spares are kept, switched off")),
        ("it has lost links, but no bandwidth", Observed(allocation(TWO), LOSSY), 0, "Degraded", ("False", "Whole", "links are lost on rdma, and traffic is routed around them: the floors are kept")),
    ],
)  # fmt: skip
def test_conditions_say_what_is_there(sentence, observed, spares, type, expected):
    found = conditions_of(
        [], observed, Recovery("keep"), state="Active", shape=InstanceRequest(nodes=2, spares=spares), nodes=2,
        spares=spares, generation=1, now=0,
    )  # fmt: skip
    shown = {each["type"]: (each["status"], each["reason"], each["message"]) for each in found}
    assert shown[type] == expected, sentence


def test_composition_is_named_after_its_owner_on_all_planes():
    shape = InstanceRequest(nodes=4, spares=1, labels={"team": "a"})
    assert compose("one", shape).labels == {"team": "a", OWNER_LABEL: "one"}
    nodes = ["sn0-c00-n0", "sn0-c00-n1"]
    specs = slices_over("one", shape, nodes)
    assert [(spec.name, list(spec.members)) for spec in specs] == [
        ("one-ub", nodes), ("one-rdma", nodes), ("one-vpc", nodes)
    ]  # fmt: skip


def test_composition_over_supernodes_has_a_ub_slice_in_each():
    nodes = ["sn7-c00-n0", "sn0-c00-n1", "sn7-c01-n0", "sn12-c00-n0"]
    specs = slices_over("one", InstanceRequest(nodes=4), nodes)
    assert [(spec.name, list(spec.members)) for spec in specs] == [
        ("one-ub", ["sn7-c00-n0", "sn7-c01-n0"]),
        ("one-ub0", ["sn0-c00-n1"]),
        ("one-ub12", ["sn12-c00-n0"]),
        ("one-rdma", nodes),
        ("one-vpc", nodes),
    ]


def test_conditions_of_an_instance_that_holds_nothing_say_so():
    before = [
        {"type": "Scheduled", "status": "True", "reason": "Reserved", "message": "2 nodes", "observedGeneration": 1}
    ]
    for state, scheduled in (
        ("Suspending", "nodes are being released"),
        ("Suspended", "it holds no nodes until it is resumed"),
        ("Deleting", "nodes are being released"),
    ):
        reported = conditions_of(
            before, Observed(None, ()), None, state=state, shape=InstanceRequest(nodes=2, spares=1), nodes=2, spares=1,
            generation=1, now=0,
        )  # fmt: skip
        messages = {each["type"]: each["message"] for each in reported}
        assert messages["Scheduled"] == scheduled
        assert messages["SparesAvailable"] == "0 of 1 spares stand ready"
