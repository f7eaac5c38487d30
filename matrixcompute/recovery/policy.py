"""plan_recovery: what to do about members that are lost, faulty or kept out. A pure decision on what agents reported.

A lost or unhealthy member is replaced, one after the other, by a spare or a free node. When more nodes of a cabinet or
of a supernode went silent at once than the policy allows, nothing that stands in it is replaced (the safety stop): that
many at once is far likelier a cut management network than dead hardware, and tearing a healthy instance down would make
it worse. What stands in other cabinets and supernodes is replaced as ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from matrixcommon.model.hardware_names import NodeName
from matrixresource.contract.allocations import MemberView


@dataclass(frozen=True)
class RecoveryPolicy:
    """How much may be repaired at once. A cabinet has four nodes: losing a whole one is still repaired."""

    lost_per_cabinet_max: int = 4
    lost_per_supernode_max: int = 8


@dataclass(frozen=True)
class Recovery:
    """What to do: keep (nothing is wrong), replace `nodes`, or hold with the `message` that says why."""

    action: Literal["keep", "replace", "hold"]
    nodes: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""


SILENT = ("Stale", "Lost")
"""Agents that have missed their leases. Of nodes that fall silent together some are given up for lost seconds before
the others: who counted only those would see a few at a time, and replace them all."""


def broken_members(members: Sequence[MemberView]) -> list[tuple[MemberView, str]]:
    """Members and spares that cannot do their part, each with the reason."""
    found = []
    for member in members:
        if member.agent == "Lost":
            found.append((member, "NodeLost"))
        elif member.gone:
            found.append((member, f"Node{member.state}"))
        elif member.health == "Unhealthy":
            found.append((member, "NodeUnhealthy"))
    return found


def plan_recovery(members: Sequence[MemberView], silent: Sequence[str], policy: RecoveryPolicy) -> Recovery:
    """What to do about an instance's `members`; `silent` are all held nodes, whoever holds them, of `SILENT` agents."""
    broken = broken_members(members)
    if not broken:
        return Recovery("keep")
    stopped = _stopped_domains(silent, policy)
    repairable = [each for each in broken if not stopped.keys() & set(_domains(each[0].node))]
    if not repairable:
        message = next(text for domain, text in stopped.items() for each, _ in broken if domain in _domains(each.node))
        return Recovery("hold", reason="SafetyStop", message=message)
    repairable.sort(key=lambda each: each[0].role != "member")
    names = tuple(member.node for member, _ in repairable)
    message = "; ".join(
        f"{member.node}: {reason}" + (f": {why}" if reason != "NodeLost" and why else "")
        for member, reason in repairable
        for why in [member.fault if reason == "NodeUnhealthy" else member.message]
    )
    return Recovery("replace", names, min(reason for _, reason in repairable), message)


def _domains(node: str) -> tuple[str, str]:
    """The failure domains a node stands in: its cabinet and its supernode."""
    name = NodeName(node)
    return name.cabinet, name.supernode


def _stopped_domains(silent: Sequence[str], policy: RecoveryPolicy) -> dict[str, str]:
    """Each failure domain with more silent nodes than the policy allows, and the sentence that says so."""
    limits = (policy.lost_per_cabinet_max, policy.lost_per_supernode_max)
    counts = [Counter(domains) for domains in zip(*map(_domains, silent), strict=True)]
    return {
        domain: f"{count} nodes of {domain} are silent at once, more than {most}: "
        "nothing of it is replaced until fewer are"
        for count_by, most in zip(counts, limits, strict=False)
        for domain, count in count_by.items()
        if count > most
    }
