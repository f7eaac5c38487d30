"""plan_recovery: what to do about members that are lost, faulty or kept out. A pure decision on what agents reported.

What is done about a lost or unhealthy member, its ladder of rungs says (`ladder.py`): it is repaired where it stands,
or replaced by a spare or a free node. When more nodes of a cabinet or
of a supernode are silent or quarantined than the policy allows, whoever has them, nothing that stands in it is replaced
(the safety stop): that many at once is far likelier a cut management network, or an image that boots nowhere, than dead
hardware, and tearing a healthy instance down would make it worse. What stands in other cabinets and supernodes is
replaced as ever. Nodes that somebody has taken out to work on them do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from matrixcommon.model.hardware_names import NodeName
from matrixcompute.recovery.ladder import REPLACE, RungTried, next_rung, recovery_rules
from matrixresource.contract.allocations import MemberView
from matrixresource.contract.nodes import NodeView


@dataclass(frozen=True)
class RecoveryPolicy:
    """How many nodes of a domain may be out and those of it still be replaced. A cabinet has four nodes: losing a whole
    one is still repaired. `drain_s`: how long a member that still serves may drain before it is touched (emulated); 0:
    not at all. `rungs`: those that may be tried, without it all; `stops`: whether a repair that is refused waits for
    somebody to have it tried again."""

    lost_per_cabinet_max: int = 4
    lost_per_supernode_max: int = 8
    drain_s: float = 600.0
    rungs: Collection[str] | None = None
    stops: bool = False

    def following(self, drain_s: float | None, rungs: Collection[str], on_exhausted: str) -> RecoveryPolicy:
        """The same with what a policy of an instance or a project says."""
        drain_s = self.drain_s if drain_s is None else drain_s
        return replace(self, drain_s=drain_s, rungs=tuple(rungs), stops=on_exhausted == "Stop")


@dataclass(frozen=True)
class Recovery:
    """What to do: keep (nothing is wrong), replace `nodes`, repair some in place (and replace none), or hold with the
    `message` that says why. `concerned` are all that failed and are not held, `begin` the rungs that are due: node,
    rung and why."""

    action: Literal["keep", "replace", "repair", "hold"]
    nodes: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    concerned: tuple[str, ...] = ()
    begin: tuple[tuple[str, str, str], ...] = ()


EXHAUSTED = "RungsExhausted"
"""The reason of a hold that no waiting ends: what failed has climbed every rung that its policy allows."""

SILENT = ("Stale", "Lost")
"""Agents that have missed their leases. Of nodes that fall silent together some are given up for lost seconds before
the others: who counted only those would see a few at a time, and replace them all."""

TAKEN_OUT = ("Enrolled", "Servicing", "Retired")
"""States of nodes that are not here to be lost: not heard yet, or taken out by somebody."""


def nodes_out(nodes: Iterable[NodeView]) -> list[str]:
    """Those of them that count for the safety stop: silent or quarantined, whoever has them."""
    return [
        node.name
        for node in nodes
        if node.state == "Quarantined" or (node.agent in SILENT and node.state not in TAKEN_OUT)
    ]


def silent_members(members: Iterable[MemberView]) -> list[str]:
    """The nodes whose agents have missed their leases, as their allocation shows them. They were read at another moment
    than the nodes: who counts as out in either is out."""
    return [member.node for member in members if member.agent in SILENT]


def broken_members(members: Sequence[MemberView]) -> list[tuple[MemberView, str]]:
    """Members and spares that cannot do their part, each with the reason.

    Nodes of a cabinet fail together (its power, its cooling): one that is silent counts as lost where another of its
    cabinet is. They are isolated and replaced together, and who was innocent is cleared by a health check later.
    """
    found, dark = [], {member.cabinet for member in members if member.agent == "Lost"}
    for member in members:
        if member.agent == "Lost":
            found.append((member, "NodeLost"))
        elif member.agent == "Stale" and member.cabinet in dark:
            found.append((member, "DomainLost"))
        elif member.gone:
            found.append((member, f"Node{member.state}"))
        elif member.health == "Unhealthy":
            found.append((member, "NodeUnhealthy"))
    return found


def suspect_domains(nodes: Sequence[str], out: Sequence[str]) -> list[str]:
    """The cabinets of these nodes, as far as they are out and others there too: all of such a cabinet is suspect."""
    counts = Counter(NodeName(node).cabinet for node in out)
    return sorted({NodeName(node).cabinet for node in nodes if node in out and counts[NodeName(node).cabinet] > 1})


def failed_since(members: Sequence[MemberView], nodes: Sequence[str]) -> tuple[str, str] | None:
    """When the first of these nodes failed and when the first was found to have (RFC 3339); None where nobody knows."""
    known = [(each.failed_at, each.detected_at) for each in members if each.node in nodes]
    times = [(failed, detected) for failed, detected in known if failed is not None and detected is not None]
    return (min(failed for failed, _ in times), min(detected for _, detected in times)) if times else None


def plan_recovery(
    members: Sequence[MemberView],
    out: Sequence[str],
    policy: RecoveryPolicy,
    tried: Sequence[RungTried] | None = None,
    now: float = 0.0,
) -> Recovery:
    """What to do about an instance's `members` at `now` (s). `out`: all nodes that count for the safety stop. `tried`:
    the rungs that were begun, in their order; None where nothing serves yet, so that whatever failed is replaced."""
    broken = broken_members(members)
    if not broken:
        return Recovery("keep")
    stopped = _stopped_domains(sorted({*out, *silent_members(members)}), policy)
    repairable = [each for each in broken if not stopped.keys() & set(_domains(each[0].node))]
    if not repairable:
        message = next(text for domain, text in stopped.items() for each, _ in broken if domain in _domains(each.node))
        return Recovery("hold", reason="SafetyStop", message=message)
    repairable.sort(key=lambda each: each[0].role != "member")
    names, reason = tuple(member.node for member, _ in repairable), min(reason for _, reason in repairable)
    failures = {member.node: _in_words(member, reason) for member, reason in repairable}
    message = "; ".join(f"{node}: {why}" for node, why in failures.items())
    if tried is None:
        return Recovery("replace", names, reason, message, names)
    replaced, begin, exhausted = [], [], {}
    for member, _ in repairable:
        before = [each for each in tried if each.node == member.node]
        choice = next_rung(member, failures[member.node], before, now, recovery_rules(), policy.rungs)
        if choice.action == "exhausted":
            exhausted[member.node] = choice.why
        if choice.rung == REPLACE:
            replaced.append(member.node)
        if choice.action == "begin" and not (before and before[-1].rung == choice.rung):
            begin.append((member.node, choice.rung, choice.why))
    if len(exhausted) == len(names):
        return Recovery("hold", (), EXHAUSTED, "; ".join(f"{node}: {why}" for node, why in exhausted.items()))
    names = tuple(node for node in names if node not in exhausted)
    return Recovery("replace" if replaced else "repair", tuple(replaced), reason, message, names, tuple(begin))


def _in_words(member: MemberView, reason: str) -> str:
    why = member.fault if reason == "NodeUnhealthy" else member.message
    return reason + (f": {why}" if reason != "NodeLost" and why else "")


def _domains(node: str) -> tuple[str, str]:
    """The failure domains a node stands in: its cabinet and its supernode."""
    name = NodeName(node)
    return name.cabinet, name.supernode


def _stopped_domains(out: Sequence[str], policy: RecoveryPolicy) -> dict[str, str]:
    """Each failure domain with more nodes out than the policy allows, and the sentence that says so."""
    limits = (policy.lost_per_cabinet_max, policy.lost_per_supernode_max)
    counts = [Counter(domains) for domains in zip(*map(_domains, out), strict=True)]
    return {
        domain: f"{count} nodes of {domain} are silent or quarantined, more than {most}: "
        "nothing of it is replaced until fewer are"
        for count_by, most in zip(counts, limits, strict=False)
        for domain, count in count_by.items()
        if count > most
    }
