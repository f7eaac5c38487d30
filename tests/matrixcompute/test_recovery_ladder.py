"""What is tried about a member that failed, rung by rung: the decision as a table, and what the table may say."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcommon.model.errors import InvalidField
from matrixcompute.recovery.ladder import RungTried, next_rung, read_rules, recovery_rules
from matrixcompute.recovery.policy import RecoveryPolicy, plan_recovery
from matrixcompute.recovery.spec import RecoveryPolicySpec
from matrixcompute.store.recovery_policies import policy_of, target_of
from matrixresource.contract.allocations import MemberView
from matrixresource.contract.nodes import IN_PLACE
from matrixresource.nodes.fault_levels import fault_table

NODE, OTHER = "sn0-c00-n0", "sn0-c00-n1"


def member(level: str | None = None, node: str = NODE, **more: Any) -> MemberView:
    given = {"agent": "Connected", "health": "Unhealthy" if level else "Healthy", "ready": True, "state": "Active"}
    return MemberView(
        node=node, cabinet=node[:7], rank=0, level=level, fault=f"npu1 80000000 ({level})" if level else "",
        **({"role": "member"} | given | more),
    )  # fmt: skip


def tried(*rungs: tuple[str, float], node: str = NODE) -> list[RungTried]:
    return [RungTried(node=node, rung=rung, at=at, why="it failed") for rung, at in rungs]


@pytest.mark.parametrize(
    ("sentence", "level", "before", "more", "expected"),
    [
        ("a request that hangs ends with the processes", "RestartRequest", (), {}, ("begin", "restart")),
        ("a job that hangs too", "RestartBusiness", (), {}, ("begin", "restart")),
        ("a chip is reset", "FreeRestart", (), {}, ("begin", "reset-npu")),
        ("a chip is reset", "Restart", (), {}, ("begin", "reset-npu")),
        ("what is to be separated is replaced", "Separate", (), {}, ("begin", "replace")),
        ("what failed too often too", "ManuallySeparate", (), {}, ("begin", "replace")),
        ("a level nobody knows too", "Melted", (), {}, ("begin", "replace")),
        ("under way", "Restart", (("reset-npu", 0.0),), {"ready": False}, ("wait", "reset-npu")),
        ("done, and the fault is there", "Restart", (("reset-npu", 0.0),), {}, ("begin", "reboot")),
        ("it takes too long", "Restart", (("reset-npu", -121.0),), {"ready": False}, ("begin", "reboot")),
        ("nothing in place is left", "Restart", (("reset-npu", -400.0), ("reboot", -100.0)), {}, ("begin", "replace")),
        ("a heavier ladder goes on beyond", "Restart", (("restart", -30.0),), {}, ("begin", "reset-npu")),
        ("a lighter one has no heavier rung left", "RestartRequest", (("reset-npu", -30.0),), {}, ("begin", "replace")),
        ("worse by now", "Separate", (("reset-npu", -30.0),), {}, ("begin", "replace")),
        ("lost meanwhile", "Restart", (("reset-npu", 0.0),), {"agent": "Lost", "ready": False}, ("begin", "replace")),
        ("gave a stage up", "Restart", (("reboot", 0.0),), {"state": "Quarantined"}, ("begin", "replace")),
        ("a spare is not worth a reset", "Restart", (), {"role": "spare"}, ("begin", "replace")),
    ],
)  # fmt: skip
def test_next_rung(sentence, level, before, more, expected):
    choice = next_rung(member(level, **more), "it failed", tried(*before), 0.0, recovery_rules())
    assert (choice.action, choice.rung) == expected, sentence


def test_failed_rung_is_the_reason_for_the_next():
    done = next_rung(member("Restart"), "npu1", tried(("reset-npu", 0.0)), 60.0, recovery_rules())
    late = next_rung(member("Restart", ready=False), "npu1", tried(("reset-npu", 0.0)), 121.0, recovery_rules())
    assert (done.why, late.why) == ("reset-npu did not help: npu1", "reset-npu took longer than 120 s: npu1")


def test_every_fault_level_has_a_ladder_and_every_in_place_rung_an_action():
    rules = recovery_rules()
    assert set(fault_table().levels) == set(rules.ladders) - {"NodeLost", "NodeGone"}
    for name, level in fault_table().levels.items():
        assert bool(rules.ladders[name]) == (level.health == "Unhealthy"), name
    assert [name for name, rung in rules.rungs.items() if rung.timeout_s is not None] == list(IN_PLACE)


def test_each_member_has_its_own_ladder():
    members = [member("Restart"), member("Restart", OTHER, agent="Lost"), member(None, "sn0-c01-n0")]
    plan = plan_recovery(members, [OTHER], RecoveryPolicy(), [], 0.0)
    assert (plan.action, plan.nodes, plan.affected) == ("replace", (OTHER,), (NODE, OTHER))
    assert [each[:2] for each in plan.due_rungs] == [(NODE, "reset-npu"), (OTHER, "replace")]
    before = [*tried(("reset-npu", 0.0)), *tried(("replace", 0.0), node=OTHER)]
    members[0] = member("Restart", ready=False)
    plan = plan_recovery(members, [OTHER], RecoveryPolicy(), before, 10.0)
    assert (plan.action, plan.nodes, plan.due_rungs) == ("replace", (OTHER,), ())
    plan = plan_recovery([members[0], members[2]], [], RecoveryPolicy(), before, 10.0)
    assert (plan.action, plan.nodes, plan.due_rungs) == ("repair", (), ())


def test_member_that_does_not_serve_yet_is_replaced():
    plan = plan_recovery([member("Restart")], [], RecoveryPolicy())
    assert (plan.action, plan.nodes) == ("replace", (NODE,))


@pytest.mark.parametrize(
    ("ladder", "wrong"),
    [
        (["reset-npu"], "end in replace"),
        (["reboot", "restart", "replace"], "from light to heavy"),
        (["restart", "restart", "replace"], "each at most once"),
        (["pray", "replace"], "unknown rung 'pray'"),
    ],
)
def test_invalid_ladder_is_refused_with_its_field(ladder, wrong):
    rungs = {"restart": {"timeout_s": 1, "means": ""}, "reset-npu": {"timeout_s": 1, "means": ""}}
    rungs |= {"reboot": {"timeout_s": 1, "means": ""}, "replace": {"means": ""}}
    with pytest.raises(InvalidField, match=wrong) as refused:
        read_rules({"rungs": rungs, "ladders": {"Restart": ladder}})
    assert refused.value.field == "ladders.Restart"


@pytest.mark.parametrize(("level", "seconds"), [("Restart", 0), ("Melted", 60), ("SubHealth", 60)])
def test_invalid_drain_rule_is_refused_with_its_field(level, seconds):
    ladders = {"Restart": ["replace"], "SubHealth": []}
    with pytest.raises(InvalidField, match="a drain needs a ladder") as refused:
        read_rules({"rungs": {"replace": {"means": ""}}, "ladders": ladders, "drains": {level: seconds}})
    assert refused.value.field == f"drains.{level}"


@pytest.mark.parametrize(
    ("sentence", "allowed", "broken", "before", "expected"),
    [
        ("the first that is allowed", ["reboot"], {"level": "Restart"}, (), ("begin", "reboot")),
        ("another node at once", ["replace"], {"level": "RestartRequest"}, (), ("begin", "replace")),
        ("none of its ladder", ["restart"], {"level": "Restart"}, (), ("exhausted", "")),
        ("the last did not help", ["reset-npu"], {"level": "Restart"}, (("reset-npu", -60.0),), ("exhausted", "")),
        ("it is under way", ["reset-npu"], {"level": "Restart", "ready": False}, (("reset-npu", 0.0),), ("wait", "reset-npu")),
        ("nothing at all", [], {"level": "RestartRequest"}, (), ("exhausted", "")),
        ("lost, and it is to be kept", ["restart"], {"agent": "Lost", "ready": False}, (), ("exhausted", "")),
        ("a spare does no work", [], {"level": "Restart", "role": "spare"}, (), ("begin", "replace")),
    ],
)  # fmt: skip
def test_policy_excludes_rungs(sentence, allowed, broken, before, expected):
    choice = next_rung(member(**broken), "it failed", tried(*before), 0.0, recovery_rules(), allowed)
    assert (choice.action, choice.rung) == expected, sentence


def test_exhausted_member_does_not_block_others():
    policy = RecoveryPolicy(rungs=("restart",))
    worn, hung = member("Restart"), member("RestartRequest", OTHER)
    plan = plan_recovery([worn, hung], [], policy, [], 0.0)
    assert (plan.action, plan.affected, [each[:2] for each in plan.due_rungs]) == (
        "repair",
        (OTHER,),
        [(OTHER, "restart")],
    )
    plan = plan_recovery([worn], [], policy, [], 0.0)
    assert (plan.action, plan.reason) == ("hold", "RungsExhausted")
    assert plan.message.endswith(": its recovery policy allows nothing more")
    assert plan_recovery([worn], [], policy).action == "replace", "nothing serves yet"


def test_policy_precedence_is_instance_then_project_then_default():
    default = RecoveryPolicy(drain_s=600.0)
    policies = {
        "one": RecoveryPolicySpec(instance="one", rungs=["replace"]),
        target_of(RecoveryPolicySpec()): RecoveryPolicySpec(drain_seconds=5, on_exhausted="Stop"),
        target_of(RecoveryPolicySpec(project="blue")): RecoveryPolicySpec(project="blue", drain_seconds=0),
    }
    own, shared, other = (policy_of(name, policies, default) for name in ("one", "two", "blue/one"))
    assert (own.drain_s, own.rungs, own.stop_on_exhausted) == (600.0, ("replace",), False)
    assert (shared.drain_s, shared.rungs, shared.stop_on_exhausted) == (5, tuple(recovery_rules().rungs), True)
    assert other.drain_s == 0
    assert policy_of("red/one", policies, default) is default
