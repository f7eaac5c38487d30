"""Which members are asked to drain before they are moved or repaired, for how long, and why others are not: as tables."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcompute.recovery.ladder import recovery_rules
from matrixcompute.recovery.notice import DrainNotice, notice_of_move, notice_of_repair
from matrixcompute.recovery.policy import RecoveryPolicy, plan_recovery
from matrixresource.contract.allocations import MemberView

A, B, C = "sn0-c00-n0", "sn0-c00-n1", "sn0-c05-n0"


def member(node: str, level: str | None = None, rank: int | None = 0, **more: Any) -> MemberView:
    given = {"agent": "Connected", "health": "Unhealthy" if level else "Healthy", "ready": True, "state": "Active"}
    fault = f"npu1 80000000 ({level})" if level else ""
    return MemberView(
        node=node, cabinet=node[:7], rank=rank, level=level, fault=fault, **({"role": "member"} | given | more)
    )


def repair_of(*members: MemberView, drain_s: float = 600.0) -> DrainNotice:
    lost = [each.node for each in members if each.agent == "Lost"]
    plan = plan_recovery(members, lost, RecoveryPolicy(), [], 0.0)
    return notice_of_repair(members, plan, recovery_rules(), drain_s)


@pytest.mark.parametrize(
    ("sentence", "broken", "drain_s", "deadline_s", "why"),
    [
        ("a request that hangs: the rest is given a minute", {"level": "RestartRequest"}, 600, 60, ""),
        ("a chip to be reset once it is idle", {"level": "FreeRestart"}, 600, 600, ""),
        ("what failed too often works at present", {"level": "ManuallySeparate"}, 600, 600, ""),
        ("the policy allows less", {"level": "FreeRestart"}, 30, 30, ""),
        ("the policy allows nothing", {"level": "FreeRestart"}, 0, 0, "drainSeconds is 0"),
        ("the job is broken", {"level": "RestartBusiness"}, 600, 0, "level RestartBusiness has broken what runs there"),
        ("the chip is", {"level": "Restart"}, 600, 0, "level Restart has broken what runs there"),
        ("to be isolated at once", {"level": "Separate"}, 600, 0, "level Separate has broken what runs there"),
        ("not heard any more", {"agent": "Lost"}, 600, 0, "its agent is Lost, so it cannot finish"),
        ("kept out", {"level": "FreeRestart", "state": "Quarantined"}, 600, 0, "it is Quarantined"),
        ("a rung is under way", {"level": "FreeRestart", "ready": False}, 600, 0, "it does not serve"),
    ],
)
def test_drain_notice_of_a_repair(sentence, broken, drain_s, deadline_s, why):
    found = repair_of(member(A, **broken), member(C, rank=1), drain_s=drain_s)
    assert found.nodes == (() if why else (A,)), sentence
    assert found.deadline_s == deadline_s
    assert found.skipped.keys() == ({A} if why else set())
    assert why in found.skipped.get(A, "")


def test_shortest_drain_deadline_applies():
    found = repair_of(member(A, "FreeRestart"), member(C, "RestartRequest", rank=1))
    assert (found.nodes, found.deadline_s) == ((A, C), 60.0)


def test_lost_member_is_not_delayed_by_drains():
    found = repair_of(member(A, "FreeRestart"), member(C, agent="Lost", ready=False, rank=1))
    assert found.nodes == ()
    assert found.skipped[A] == f"draining would delay the replacement of {C}"


def test_spares_and_healthy_members_do_not_drain():
    found = repair_of(member(A, "SubHealth", health="SubHealthy"), member(B, "Restart", rank=None, role="spare"))
    assert found == DrainNotice()


@pytest.mark.parametrize(
    ("sentence", "leaving", "drain_s", "nodes", "why"),
    [
        ("whose successor is there drains", {}, 600, (A,), ""),
        ("a fault that leaves it at work does not matter", {"level": "PreSeparate", "health": "SubHealthy"}, 600, (A,), ""),
        ("the policy drains nobody", {}, 0, (), "drainSeconds is 0"),
        ("not heard at present", {"agent": "Stale"}, 600, (), "its agent is Stale"),
        ("in a check", {"ready": False, "state": "Deploying"}, 600, (), "it does not serve: it is Deploying"),
    ],
)  # fmt: skip
def test_drain_notice_of_a_move(sentence, leaving, drain_s, nodes, why):
    members = [member(A, **leaving), member(B, rank=1), member(C, role="successor")]
    found = notice_of_move(members, drain_s)
    assert found.nodes == nodes, sentence
    assert found.deadline_s == (drain_s if nodes else 0)
    assert why in found.skipped.get(A, "")
    assert B not in found.skipped


def test_nothing_drains_without_a_move():
    assert notice_of_move([member(A), member(B, rank=1)], 600.0) == DrainNotice()
