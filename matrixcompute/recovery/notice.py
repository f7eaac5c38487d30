"""Which members drain before they are taken or repaired, and which do not, each with the reason. Pure.

Drained is a member that still serves: one that moves, or one whose fault leaves it at work until somebody acts on it
(`drains` of `recovery_rules.yaml`). Nothing can be finished on one that is not heard, kept out, not deployed, or whose
fault has broken what runs there. Where one of the members to repair is lost, nobody is drained: it would wait to be
replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matrixcompute.recovery.ladder import RecoveryRules, level_of_member
from matrixcompute.recovery.policy import SILENT, Recovery
from matrixresource.contract.allocations import MemberView


@dataclass(frozen=True)
class DrainNotice:
    """What the workload is asked: to drain `nodes` within `deadline_s` (s, emulated); `skipped`: other members that are
    about to be touched, and why they are not drained."""

    nodes: tuple[str, ...] = ()
    deadline_s: float = 0.0
    skipped: Mapping[str, str] = field(default_factory=dict)


def notice_of_move(members: Sequence[MemberView], drain_s: float) -> DrainNotice:
    """Of a move: the members beside which successors are deployed. `drain_s`: 0 drains nobody."""
    ranks = {each.rank for each in members if each.role == "successor"}
    leaving = [each for each in members if each.role == "member" and each.rank in ranks]
    return _notice({each.node: _cannot_finish(each) for each in leaving}, drain_s, drain_s)


def notice_of_repair(
    members: Sequence[MemberView], plan: Recovery, rules: RecoveryRules, drain_s: float
) -> DrainNotice:
    """Of a repair: the members that `plan` is about, each as long as its level gives it and `drain_s` at most."""
    concerned = [each for each in members if each.role == "member" and each.node in plan.concerned]
    lost = [each.node for each in concerned if _lost(each)]
    reasons = {each.node: _cannot_finish(each) or _broken(each, rules) or _waited_for(lost) for each in concerned}
    times = [rules.drains[level_of_member(each)] for each in concerned if not reasons[each.node]]
    return _notice(reasons, min(times, default=drain_s), drain_s)


def still_serves(member: MemberView, rules: RecoveryRules) -> bool:
    """Whether a member that failed is at work until something is done about it."""
    return not (_cannot_finish(member) or _broken(member, rules))


def _notice(reasons: Mapping[str, str], deadline_s: float, drain_s: float) -> DrainNotice:
    if drain_s <= 0:
        reasons = {node: why or "its recovery policy drains nobody" for node, why in reasons.items()}
    nodes = tuple(node for node, why in reasons.items() if not why)
    skipped = {node: why for node, why in reasons.items() if why}
    return DrainNotice(nodes, min(deadline_s, drain_s) if nodes else 0.0, skipped)


def _lost(member: MemberView) -> bool:
    return member.agent in SILENT or member.gone


def _cannot_finish(member: MemberView) -> str:
    """Why nothing can be finished there; "" where it can."""
    if member.agent in SILENT:
        return f"its agent is {member.agent}: nobody is there to finish anything"
    if member.gone:
        return f"it is {member.state}"
    return "" if member.ready else f"it does not serve: it is {member.state}"


def _broken(member: MemberView, rules: RecoveryRules) -> str:
    level = level_of_member(member)
    return "" if level in rules.drains else f"a fault of level {level} has broken what runs there"


def _waited_for(lost: Sequence[str]) -> str:
    return f"{', '.join(lost)} must not wait for it to be replaced" if lost else ""
