"""Users of an instance are told of faults with which its nodes keep working: no repair would tell them."""

from __future__ import annotations

import pytest

from matrixcompute.model.member_health import describe_sub_healthy, health_events
from matrixresource.contract.allocations import MemberView
from tests.matrixcompute.test_decisions import member

SLOW = "node 110001010 (SubHealth)"
NIC = "npu2-die0 81078603 (PreSeparate)"
A, B = "sn0-c00-n0", "sn0-c01-n0"


def sub_healthy(node: str, fault: str = SLOW, role: str = "member") -> MemberView:
    return member(node, role, health="SubHealthy").model_copy(update={"fault": fault})


@pytest.mark.parametrize(
    ("case", "before", "now", "reasons"),
    [
        ("all is well", [member(A)], [member(A)], []),
        ("a fault appears", [member(A)], [sub_healthy(A)], ["MemberSubHealthy"]),
        ("it stays", [sub_healthy(A)], [sub_healthy(A)], []),
        ("another joins it", [sub_healthy(A)], [sub_healthy(A, f"{SLOW}; {NIC}")], ["MemberSubHealthy"]),
        ("it ends", [sub_healthy(A)], [member(A)], ["MemberHealthy"]),
        ("its repair tells of the rest", [sub_healthy(A)], [member(A, health="Unhealthy")], []),
        ("a repair ended", [member(A, health="Unhealthy")], [member(A)], []),
        ("its node was replaced", [sub_healthy(A)], [member(B)], []),
        ("it joins with a fault", [member(A)], [member(A), sub_healthy(B)], ["MemberSubHealthy"]),
    ],
)
def test_events_of_members_that_work_with_a_fault(case, before, now, reasons):
    assert [each.reason for each in health_events([each.wire() for each in before], now)] == reasons, case


def test_the_event_names_role_node_fault_and_what_becomes_of_it():
    slow, ends = (
        health_events([member(A).wire()], [sub_healthy(A)])[0],
        sub_healthy(B, NIC, "spare"),
    )
    assert (slow.type, slow.message) == ("Warning", f"member {A} is SubHealthy: {SLOW}; it keeps working")
    assert health_events([], [ends])[0].message == (
        f"spare {B} is SubHealthy: {NIC}; it keeps working until it is released"
    )


def test_a_condition_names_a_cabinets_worth_of_members():
    nodes = [sub_healthy(f"sn0-c0{cabinet}-n0") for cabinet in range(6)]
    described = describe_sub_healthy(nodes) or ""
    assert ("sn0-c03-n0" in described, "sn0-c04-n0" in described) == (True, False)
    assert described.endswith("; and 2 more")
    assert describe_sub_healthy([member(A)]) is None
