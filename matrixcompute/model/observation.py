"""What the neighbours showed of one instance, and what its conditions say of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from matrixcommon.model.planes import Plane
from matrixcommon.model.quantities import counted
from matrixcommon.model.resource_model import condition
from matrixcompute.contract import InstanceRequest, SliceSummary
from matrixcompute.recovery.loss import active_or_none
from matrixcompute.recovery.policy import Recovery
from matrixresource.contract.allocations import AllocationView


class ObservedSlice(SliceSummary):
    """One of an instance's slices, with the nodes that it joins; the instance shows those as its own members."""

    members: tuple[str, ...] = Field((), exclude=True, description="the nodes that it joins")


@dataclass(frozen=True)
class Observed:
    """What the neighbours showed of one instance at one moment."""

    allocation: AllocationView | None
    slices: tuple[ObservedSlice, ...]

    @property
    def joined(self) -> bool:
        """Whether on every plane its slices join just the members of its allocation."""
        if self.allocation is None:
            return False
        members = sorted(member.node for member in self.allocation.members if member.role == "member")
        joined: dict[Plane, list[str]] = {plane: [] for plane in Plane}
        for each in self.slices:
            joined[each.plane] += each.members
        return all(sorted(nodes) == members for nodes in joined.values())

    @property
    def ready_nodes(self) -> int:
        if self.allocation is None or self.allocation.state == "Releasing" or not self.allocation.bound:
            return 0
        if self.allocation.power == "Off":
            return 0
        return sum(member.ready for member in self.allocation.members if member.role == "member")

    @property
    def nodes_ready(self) -> bool:
        return self.allocation is not None and 0 < self.allocation.nodes == self.ready_nodes

    @property
    def links_ready(self) -> bool:
        return len(programmed_planes(self.slices)) == len(Plane)


def programmed_planes(slices: Sequence[SliceSummary]) -> set[Plane]:
    """The planes whose every slice is programmed on all its members."""
    return {each.plane for each in slices} - {each.plane for each in slices if not each.programmed}


def conditions_of(
    before: list[dict[str, Any]],
    observed: Observed,
    recovery: Recovery,
    *,
    state: str,
    shape: InstanceRequest,
    nodes: int,
    spares: int,
    generation: int,
    now: float,
) -> list[dict[str, Any]]:
    """The eight conditions of an instance, each true to what agents reported. `nodes`, `spares`: as many as it is to
    have now; it may have fewer, members down to the floor of its `shape`."""
    allocation = active_or_none(observed.allocation)
    result = before

    def say(type: str, status: bool | None, reason: str, message: str) -> None:
        nonlocal result
        result = condition(result, type, status, reason, message, generation=generation, now=now)

    if allocation is not None:
        size = f"{counted(allocation.nodes, 'node')} and {counted(allocation.spares, 'spare')}"
        say("Scheduled", True, "Reserved", f"{size} are committed")
    elif not any(each["type"] == "Scheduled" for each in before):
        say("Scheduled", False, "Pending", "nodes are being chosen")
    elif state in ("Deleting", "Suspending", "Suspended"):
        say("Scheduled", False, "Released", "nodes are given back")
    off = allocation is not None and allocation.power == "Off"
    missing_nodes = max(0, nodes - allocation.nodes) if allocation is not None else 0
    wanted = allocation.nodes + missing_nodes if allocation is not None else nodes
    all_ready = observed.nodes_ready and not missing_nodes
    waiting = "MembersMissing" if observed.nodes_ready else "SwitchedOff" if off else "Waiting"
    say(
        "NodesReady",
        all_ready,
        "AllActive" if all_ready else waiting,
        f"{observed.ready_nodes} of {wanted} members are active{_stages(allocation)}",
    )
    programmed = len(programmed_planes(observed.slices))
    say(
        "LinksReady",
        observed.links_ready,
        "AllProgrammed" if observed.links_ready else "Waiting",
        f"{programmed} of {len(Plane)} planes are programmed on every member{_details(observed.slices)}",
    )
    kept = observed.links_ready and all(each.floors_kept for each in observed.slices)
    broken_floors = list(dict.fromkeys(each.plane.value for each in observed.slices if not each.floors_kept))
    say(
        "QosSatisfied",
        kept,
        "FloorsKept" if kept else "FloorsBroken" if broken_floors else "Waiting",
        f"floors are not kept on {', '.join(broken_floors)}"
        if broken_floors
        else "floors are admitted on every link"
        if kept
        else "waiting for routes",
    )
    standing = 0
    if allocation is not None and allocation.bound:
        standing = sum(member.ready for member in allocation.members if member.role == "spare")
    asked = 0 if allocation is None else max(allocation.spares, spares)
    missing = allocation is not None and standing < asked
    say(
        "SparesAvailable",
        allocation is not None and not missing,
        "SparesMissing" if missing else "SparesReady" if allocation is not None else "Pending",
        f"{standing} of {asked} spares stand ready",
    )
    if recovery.action != "keep":
        say("Degraded", True, recovery.reason, recovery.message)
    elif missing_nodes:
        has = f"it has {wanted - missing_nodes} of {wanted} members, and its floor is {shape.floor}"
        say("Degraded", True, "MembersMissing", f"{has}: there was no node for the others")
    elif broken_floors:
        say("Degraded", True, "FloorsBroken", "what was promised cannot be kept")
    else:
        say("Degraded", False, "Whole", "nothing is broken")
    ready = observed.nodes_ready and observed.links_ready and state not in ("Deleting", "Failed")
    serves = f"serves with {wanted - missing_nodes} of {wanted} nodes" if missing_nodes else "serves"
    say("Ready", ready, "Ready" if ready else state, serves if ready else f"the instance is {state}")
    return result


def _stages(allocation: AllocationView | None) -> str:
    """How many of the members are at which stage, and what is said of those that are kept out."""
    waiting = [each for each in allocation.members if each.role == "member" and not each.ready] if allocation else []
    at = Counter(each.stage for each in waiting if each.stage is not None and not each.gone)
    texts = [f"{count} at {stage}" for stage, count in at.items()]
    texts += [f"{each.node} is {each.state}: {each.message}" for each in waiting if each.gone and each.message]
    return f" ({'; '.join(texts)})" if texts else ""


def _details(slices: Sequence[SliceSummary]) -> str:
    waiting = [f"{each.plane.value}: {each.message or each.state}" for each in slices if not each.programmed]
    return f" ({'; '.join(waiting)})" if waiting else ""
