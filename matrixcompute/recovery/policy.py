"""plan_recovery: decide what to do about members that are lost, faulty or kept out, from what agents reported. Pure.

The ladder of rungs (`ladder.py`) decides about each lost or unhealthy member: it is repaired in place, or replaced by a
spare or a free node. The safety stop: when more nodes of a cabinet or supernode are silent or quarantined than the
policy allows, whoever holds them, no member in that domain is replaced. So many failures at once are far likelier a cut
management network, or an image that does not boot, than dead hardware, and tearing down a healthy instance would make
matters worse. Members in other cabinets and supernodes are replaced as usual. Nodes that were taken out for work do not
count.
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
    """The safety stop's limits: how many nodes of a domain may be out before its members are no longer replaced. A
    cabinet has four nodes, so the loss of a whole one is still repaired. `drain_s`: how long a member that still serves
    may drain before it is moved or repaired (s, emulated); 0: not at all. `rungs`: the rungs that may be tried (None:
    all). `stop_on_exhausted`: whether a refused repair waits for `:retry`."""

    lost_per_cabinet_max: int = 4
    lost_per_supernode_max: int = 8
    drain_s: float = 600.0
    rungs: Collection[str] | None = None
    stop_on_exhausted: bool = False

    def overridden_by(self, drain_s: float | None, rungs: Collection[str], on_exhausted: str) -> RecoveryPolicy:
        """This policy, overridden by the recovery policy of an instance or a project."""
        drain_s = self.drain_s if drain_s is None else drain_s
        return replace(self, drain_s=drain_s, rungs=tuple(rungs), stop_on_exhausted=on_exhausted == "Stop")


@dataclass(frozen=True)
class Recovery:
    """What to do: keep (nothing is wrong), replace `nodes`, repair some in place and replace none, or hold (do nothing,
    for the reason in `message`). `affected`: every failed member that is not held. `due_rungs`: the rungs that are due,
    as (node, rung, why)."""

    action: Literal["keep", "replace", "repair", "hold"]
    nodes: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""
    affected: tuple[str, ...] = ()
    due_rungs: tuple[tuple[str, str, str], ...] = ()


EXHAUSTED = "RungsExhausted"
"""The reason of a hold that waiting does not end: every rung that the policy allows has been tried."""

SILENT = ("Stale", "Lost")
"""States of agents that have missed their leases. When nodes fall silent together, some are declared Lost seconds
before the others; counting only Lost would see a few at a time, never trip the safety stop, and replace them all."""

TAKEN_OUT = ("Enrolled", "Servicing", "Retired")
"""States of nodes that cannot be lost: never heard yet, or taken out of service on purpose."""


def nodes_out(nodes: Iterable[NodeView]) -> list[str]:
    """The nodes that count towards the safety stop: silent or quarantined, whoever holds them."""
    return [
        node.name
        for node in nodes
        if node.state == "Quarantined" or (node.agent in SILENT and node.state not in TAKEN_OUT)
    ]


def silent_members(members: Iterable[MemberView]) -> list[str]:
    """The nodes whose agents have missed their leases, as the allocation shows them. The allocation and the nodes were
    read at different moments; a node that is out in either counts as out."""
    return [member.node for member in members if member.agent in SILENT]


def broken_members(members: Sequence[MemberView]) -> list[tuple[MemberView, str]]:
    """Members and spares that are out of action, each with the reason.

    Nodes of a cabinet fail together (power, cooling): a silent node counts as lost if another of its cabinet is lost.
    They are isolated and replaced together, and a later health check clears the healthy ones.
    """
    found, lost_cabinets = [], {member.cabinet for member in members if member.agent == "Lost"}
    for member in members:
        if member.agent == "Lost":
            found.append((member, "NodeLost"))
        elif member.agent == "Stale" and member.cabinet in lost_cabinets:
            found.append((member, "DomainLost"))
        elif member.gone:
            found.append((member, f"Node{member.state}"))
        elif member.health == "Unhealthy":
            found.append((member, "NodeUnhealthy"))
    return found


def suspect_domains(nodes: Sequence[str], out: Sequence[str]) -> list[str]:
    """The cabinets in which one of these `nodes` and at least one other node are out: the whole cabinet is suspect."""
    counts = Counter(NodeName(node).cabinet for node in out)
    return sorted({NodeName(node).cabinet for node in nodes if node in out and counts[NodeName(node).cabinet] > 1})


def failed_since(members: Sequence[MemberView], nodes: Sequence[str]) -> tuple[str, str] | None:
    """The earliest failure among these nodes, and the earliest detection (RFC 3339); None if unknown."""
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
    """Decide what to do about an instance's `members` at `now` (s). `out`: all nodes that count towards the safety
    stop. `tried`: the rungs begun so far, in order; None where nothing serves yet, so that every failure means
    replacement."""
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
    failures = {member.node: _describe_failure(member, reason) for member, reason in repairable}
    message = "; ".join(f"{node}: {why}" for node, why in failures.items())
    if tried is None:
        return Recovery("replace", names, reason, message, names)
    replaced, due_rungs, exhausted = [], [], {}
    for member, _ in repairable:
        before = [each for each in tried if each.node == member.node]
        choice = next_rung(member, failures[member.node], before, now, recovery_rules(), policy.rungs)
        if choice.action == "exhausted":
            exhausted[member.node] = choice.why
        if choice.rung == REPLACE:
            replaced.append(member.node)
        if choice.action == "begin" and not (before and before[-1].rung == choice.rung):
            due_rungs.append((member.node, choice.rung, choice.why))
    if len(exhausted) == len(names):
        return Recovery("hold", (), EXHAUSTED, "; ".join(f"{node}: {why}" for node, why in exhausted.items()))
    names = tuple(node for node in names if node not in exhausted)
    return Recovery("replace" if replaced else "repair", tuple(replaced), reason, message, names, tuple(due_rungs))


def _describe_failure(member: MemberView, reason: str) -> str:
    why = member.fault if reason == "NodeUnhealthy" else member.message
    return reason + (f": {why}" if reason != "NodeLost" and why else "")


def _domains(node: str) -> tuple[str, str]:
    """The failure domains of a node: its cabinet and its supernode."""
    name = NodeName(node)
    return name.cabinet, name.supernode


def _stopped_domains(out: Sequence[str], policy: RecoveryPolicy) -> dict[str, str]:
    """Each failure domain with more nodes out than the policy allows, with a message that says so."""
    limits = (policy.lost_per_cabinet_max, policy.lost_per_supernode_max)
    counts = [Counter(domains) for domains in zip(*map(_domains, out), strict=True)]
    return {
        domain: f"{count} nodes of {domain} are silent or quarantined, more than the limit of {most}: "
        "none of its members is replaced until fewer are"
        for count_by, most in zip(counts, limits, strict=False)
        for domain, count in count_by.items()
        if count > most
    }
