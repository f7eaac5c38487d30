"""Faults with which a node keeps working, as the events of the instance on it: SubHealth and PreSeparate.

Nothing is repaired because of such a fault, so no other event would tell the instance's users why it is slow, or that
its NPUs will be taken out of service once they are released. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from matrixresource.contract.allocations import MemberView

SUB_HEALTHY = "SubHealthy"
NAMED_MAX = 4
"""How many members a condition names: as many as a cabinet has."""


class HealthEvent(NamedTuple):
    """An event of an instance: a member began or ceased to work with a fault, or has another one."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"]


def health_events(before: Iterable[Mapping[str, Any]], members: Iterable[MemberView]) -> list[HealthEvent]:
    """The events that follow from members observed `before`, in wire form, and now. A member that became Unhealthy or
    was lost has none here: its repair has."""
    previous = {each["node"]: each for each in before}
    events: list[HealthEvent] = []
    for member in members:
        known = previous.get(member.node, {})
        was_sub_healthy = known.get("health") == SUB_HEALTHY
        if member.health == SUB_HEALTHY and not (was_sub_healthy and known.get("fault") == member.fault):
            events.append(HealthEvent("MemberSubHealthy", f"{member.role} {describe_fault(member)}", "Warning"))
        elif member.health == "Healthy" and was_sub_healthy:
            events.append(HealthEvent("MemberHealthy", f"{member.role} {member.node} is Healthy again", "Normal"))
    return events


def describe_fault(member: MemberView) -> str:
    """What a member works with, and what becomes of it."""
    outcome = "it keeps working until it is released" if "(PreSeparate)" in member.fault else "it keeps working"
    return f"{member.node} is SubHealthy: {member.fault or 'its agent gave no code'}; {outcome}"


def describe_sub_healthy(members: Sequence[MemberView]) -> str | None:
    """Which members work with a fault, in one sentence; None if none does."""
    faulty = [each for each in members if each.health == SUB_HEALTHY]
    if not faulty:
        return None
    more = f"; and {len(faulty) - NAMED_MAX} more" if len(faulty) > NAMED_MAX else ""
    return "; ".join(describe_fault(each) for each in faulty[:NAMED_MAX]) + more
