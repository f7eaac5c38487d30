"""Which members drain before they are moved or repaired, and why the others do not. Pure.

A member that still serves is drained: one that moves, or one whose fault lets it work until it is repaired (`drains` of
`recovery_rules.yaml`). A member cannot finish its work if its agent is silent, if it is kept out or not deployed, or if
the fault has broken what runs there. If any member to be repaired is lost, none is drained, since the lost one would
have to wait for its replacement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matrixcompute.recovery.ladder import RecoveryRules, level_of_member
from matrixcompute.recovery.policy import SILENT, Recovery
from matrixresource.contract.allocations import MemberView


@dataclass(frozen=True)
class DrainNotice:
    """The request to the workload: drain `nodes` within `deadline_s` (s, emulated). `skipped`: the other affected
    members, and why each is not drained."""

    nodes: tuple[str, ...] = ()
    deadline_s: float = 0.0
    skipped: Mapping[str, str] = field(default_factory=dict)


def notice_of_move(members: Sequence[MemberView], drain_s: float) -> DrainNotice:
    """The notice for a move: it drains the members that have successors. `drain_s`: 0 drains none."""
    ranks = {each.rank for each in members if each.role == "successor"}
    leaving = [each for each in members if each.role == "member" and each.rank in ranks]
    return _notice({each.node: _cannot_finish(each) for each in leaving}, drain_s, drain_s)


def notice_of_repair(
    members: Sequence[MemberView], plan: Recovery, rules: RecoveryRules, drain_s: float
) -> DrainNotice:
    """The notice for a repair: it drains the members in `plan`, for as long as their fault levels allow and `drain_s`
    at most."""
    affected = [each for each in members if each.role == "member" and each.node in plan.affected]
    lost = [each.node for each in affected if _lost(each)]
    reasons = {
        each.node: _cannot_finish(each) or _broken(each, rules) or _delays_replacement(lost) for each in affected
    }
    times = [rules.drains[level_of_member(each)] for each in affected if not reasons[each.node]]
    return _notice(reasons, min(times, default=drain_s), drain_s)


def still_serves(member: MemberView, rules: RecoveryRules) -> bool:
    """Whether a failed member still serves until it is repaired."""
    return not (_cannot_finish(member) or _broken(member, rules))


def _notice(reasons: Mapping[str, str], deadline_s: float, drain_s: float) -> DrainNotice:
    if drain_s <= 0:
        reasons = {node: why or "drainSeconds is 0" for node, why in reasons.items()}
    nodes = tuple(node for node, why in reasons.items() if not why)
    skipped = {node: why for node, why in reasons.items() if why}
    return DrainNotice(nodes, min(deadline_s, drain_s) if nodes else 0.0, skipped)


def _lost(member: MemberView) -> bool:
    return member.agent in SILENT or member.gone


def _cannot_finish(member: MemberView) -> str:
    """Why the member cannot finish its work; "" if it can."""
    if member.agent in SILENT:
        return f"its agent is {member.agent}, so it cannot finish its work"
    if member.gone:
        return f"it is {member.state}"
    return "" if member.ready else f"it does not serve: it is {member.state}"


def _broken(member: MemberView, rules: RecoveryRules) -> str:
    level = level_of_member(member)
    return "" if level in rules.drains else f"a fault of level {level} has broken what runs there"


def _delays_replacement(lost: Sequence[str]) -> str:
    return f"draining would delay the replacement of {', '.join(lost)}" if lost else ""
