"""plan_recovery: what to do about members that are lost or faulty. A pure decision on what agents reported.

A lost or unhealthy member is replaced, one after the other, by a spare or a free node. When more nodes of a cabinet or
of the supernode went silent at once than the policy allows, nothing is replaced: that many at once is far likelier a
cut management network than dead hardware, and tearing a healthy instance down would make it worse (the safety stop).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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
        elif member.health == "Unhealthy":
            found.append((member, "NodeUnhealthy"))
    return found


def plan_recovery(members: Sequence[MemberView], silent: Sequence[str], policy: RecoveryPolicy) -> Recovery:
    """What to do about an instance's `members`; `silent` are all held nodes, whoever holds them, of `SILENT` agents."""
    broken = broken_members(members)
    if not broken:
        return Recovery("keep")
    per_cabinet = Counter(node.rsplit("-", 1)[0] for node in silent)
    per_supernode = Counter(node.split("-")[0] for node in silent)
    for domains, most in ((per_cabinet, policy.lost_per_cabinet_max), (per_supernode, policy.lost_per_supernode_max)):
        for domain, count in domains.items():
            if count > most:
                return Recovery(
                    "hold",
                    reason="SafetyStop",
                    message=f"{count} nodes of {domain} are silent at once, more than {most}: "
                    "nothing is replaced until fewer are",
                )
    reasons = sorted({reason for _, reason in broken})
    names = tuple(member.node for member, _ in sorted(broken, key=lambda each: each[0].role != "member"))
    return Recovery("replace", names, reasons[0], f"{', '.join(names)}: {', '.join(reasons)}")
