"""What MatrixResource and MatrixLink showed of one instance, and the conditions that follow from it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from matrixcommon.model.planes import Plane
from matrixcommon.model.quantities import pluralized
from matrixcommon.model.resource_model import set_condition
from matrixcompute.contract import NOT_SERVING, InstanceRequest, SliceSummary
from matrixcompute.model.member_health import describe_sub_healthy
from matrixcompute.model.states import UNREADY
from matrixcompute.recovery.loss import active_or_none
from matrixcompute.recovery.policy import Recovery
from matrixresource.contract.allocations import AllocationView

ConditionUpdate = tuple[str, bool, str, str]
"""A condition's type, status, reason and message."""


class ObservedSlice(SliceSummary):
    """One of an instance's slices, with the nodes it connects, which are not shown with the slice."""

    members: tuple[str, ...] = Field((), exclude=True, description="the nodes it connects")


@dataclass(frozen=True)
class Observed:
    """What MatrixResource and MatrixLink showed of one instance at one moment."""

    allocation: AllocationView | None
    slices: tuple[ObservedSlice, ...]

    @property
    def slices_match(self) -> bool:
        """Whether on every plane its slices connect exactly the members of its allocation."""
        if self.allocation is None:
            return False
        members = sorted(member.node for member in self.allocation.members if member.role == "member")
        joined: dict[Plane, list[str]] = {plane: [] for plane in Plane}
        for each in self.slices:
            joined[each.plane] += each.members
        return all(sorted(nodes) == members for nodes in joined.values())

    @property
    def ready_nodes(self) -> int:
        if (allocation := self.allocation) is None:
            return 0
        roles = ((member.role, member.ready) for member in allocation.members)
        return ready_members(allocation.state, allocation.bound, allocation.power, roles)

    @property
    def nodes_ready(self) -> bool:
        return self.allocation is not None and 0 < self.allocation.nodes == self.ready_nodes

    @property
    def links_ready(self) -> bool:
        return len(programmed_planes(self.slices)) == len(Plane)


def ready_members(state: str, bound: bool, power: str, members: Iterable[tuple[str, bool]]) -> int:
    """How many members of an allocation are ready to serve. `members`: (role, ready) of each."""
    if state == "Releasing" or not bound or power == "Off":
        return 0
    return sum(ready for role, ready in members if role == "member")


def programmed_planes(slices: Sequence[SliceSummary]) -> set[Plane]:
    """The planes on which every slice is programmed on all its members."""
    return {each.plane for each in slices} - {each.plane for each in slices if not each.programmed}


def conditions_of(
    before: list[dict[str, Any]],
    observed: Observed,
    recovery: Recovery | None,
    *,
    state: str,
    shape: InstanceRequest,
    nodes: int,
    spares: int,
    generation: int,
    now: float,
) -> list[dict[str, Any]]:
    """The conditions of an instance, from what agents reported. `nodes`, `spares`: the numbers it should have now; it
    may have fewer, with members down to the floor of its `shape`. `recovery`: None before recovery has been decided,
    which leaves Degraded unchanged."""
    allocation = active_or_none(observed.allocation)
    missing = max(0, nodes - allocation.nodes) if allocation is not None else 0
    desired = allocation.nodes + missing if allocation is not None else nodes
    updates = (
        _scheduled(before, allocation, state),
        _nodes_ready(observed, allocation, desired, missing),
        _links_ready(observed),
        _qos_satisfied(observed),
        _spares_available(allocation, spares),
        None if recovery is None else _degraded(observed, recovery, desired, missing, shape.floor),
        _ready(observed, allocation, state, desired, missing),
    )
    result = before
    for update in updates:
        if update is not None:
            result = set_condition(result, *update, generation=generation, now=now)
    return result


def _scheduled(before: list[dict[str, Any]], allocation: AllocationView | None, state: str) -> ConditionUpdate | None:
    """None leaves the condition unchanged."""
    if allocation is not None:
        spares, asked = sum(each.role == "spare" for each in allocation.members), allocation.spares
        of_spares = pluralized(asked, "spare") if spares >= asked else f"{spares} of {pluralized(asked, 'spare')}"
        size = f"{pluralized(allocation.nodes, 'node')} and {of_spares}"
        return "Scheduled", True, "Reserved", f"{size} are committed"
    if not any(each["type"] == "Scheduled" for each in before):
        return "Scheduled", False, "Pending", "nodes are being chosen"
    if state == "Suspended":
        return "Scheduled", False, "Released", "it holds no nodes until it is resumed"
    if state in ("Deleting", "Suspending"):
        return "Scheduled", False, "Released", "nodes are being released"
    return None


def _nodes_ready(observed: Observed, allocation: AllocationView | None, desired: int, missing: int) -> ConditionUpdate:
    off = allocation is not None and allocation.power == "Off"
    waiting = "MembersMissing" if observed.nodes_ready else "SwitchedOff" if off else "Waiting"
    ready = observed.nodes_ready and not missing
    message = f"{observed.ready_nodes} of {desired} members are active{_stages(allocation)}"
    return "NodesReady", ready, "AllActive" if ready else waiting, message


def _links_ready(observed: Observed) -> ConditionUpdate:
    reason = "AllProgrammed" if observed.links_ready else "Waiting"
    programmed = f"{len(programmed_planes(observed.slices))} of {len(Plane)} planes"
    message = f"{programmed} are programmed on every member{_details(observed.slices)}"
    return "LinksReady", observed.links_ready, reason, message


def _qos_satisfied(observed: Observed) -> ConditionUpdate:
    if planes := _planes_below_floor(observed):
        return "QosSatisfied", False, "FloorsBroken", f"links cannot keep the floors on {', '.join(planes)}"
    if observed.links_ready:
        return "QosSatisfied", True, "FloorsKept", "floors are admitted on every link"
    return "QosSatisfied", False, "Waiting", "waiting for routes"


def _spares_available(allocation: AllocationView | None, spares: int) -> ConditionUpdate:
    if allocation is None:
        return "SparesAvailable", False, "Pending", f"0 of {spares} spares stand ready"
    ready_spares = (
        sum(member.ready for member in allocation.members if member.role == "spare") if allocation.bound else 0
    )
    desired = max(allocation.spares, spares)
    if allocation.power == "Off" and desired:
        kept = sum(member.role == "spare" for member in allocation.members)
        return "SparesAvailable", False, "SwitchedOff", f"{kept} of {desired} spares are kept, switched off"
    complete = ready_spares >= desired
    message = f"{ready_spares} of {desired} spares stand ready"
    return "SparesAvailable", complete, "SparesReady" if complete else "SparesMissing", message


def _degraded(observed: Observed, recovery: Recovery, desired: int, missing: int, floor: int) -> ConditionUpdate:
    if recovery.action != "keep":
        return "Degraded", True, recovery.reason, recovery.message
    if missing:
        has = f"it has {desired - missing} of {desired} members, and its floor is {floor}"
        return "Degraded", True, "MembersMissing", f"{has}: there was no node for the others"
    if _planes_below_floor(observed):
        return "Degraded", True, "FloorsBroken", "links cannot keep the promised floors"
    texts = []
    if lossy := list(dict.fromkeys(each.plane.value for each in observed.slices if each.state == "Degraded")):
        texts.append(f"links are lost on {', '.join(lossy)}, and traffic is routed around them: the floors are kept")
    if sub_healthy := describe_sub_healthy(observed.allocation.members if observed.allocation is not None else ()):
        texts.append(sub_healthy)
    return "Degraded", False, "Whole", "; ".join(texts) or "nothing is broken"


def _ready(
    observed: Observed, allocation: AllocationView | None, state: str, desired: int, missing: int
) -> ConditionUpdate:
    if not observed.nodes_ready or not observed.links_ready or state in UNREADY:
        lacking = _nodes_ready(observed, allocation, desired, missing), _links_ready(observed)
        return "Ready", False, *not_ready_reason(state, [each[3] for each in lacking if not each[1]])
    serves = f"serves with {desired - missing} of {desired} nodes" if missing else "serves"
    return "Ready", True, "Ready", serves


def not_ready_reason(state: str, lacking: Sequence[str]) -> tuple[str, str]:
    """Reason and message of an instance that is not Ready: its state, or for an Active one what is `lacking`, as the
    messages of other conditions."""
    if state == "Active" and lacking:
        return NOT_SERVING, "; ".join(lacking)
    return state, f"the instance is {state}"


def _planes_below_floor(observed: Observed) -> list[str]:
    return list(dict.fromkeys(each.plane.value for each in observed.slices if not each.floors_kept))


SILENT_NAMED_MAX = 4
"""How many silent members are named: as many as a cabinet has."""


def _stages(allocation: AllocationView | None) -> str:
    """How many members are at which stage, why others are kept out, and which are silent."""
    waiting = [each for each in allocation.members if each.role == "member" and not each.ready] if allocation else []
    at = Counter(each.stage for each in waiting if each.stage is not None and not each.gone)
    texts = [f"{count} at {stage}" for stage, count in at.items()]
    texts += [f"{each.node} is {each.state}: {each.message}" for each in waiting if each.gone and each.message]
    if silent := [each.node for each in waiting if each.agent != "Connected" and not (each.gone and each.message)]:
        more = f" and {len(silent) - SILENT_NAMED_MAX} more" if len(silent) > SILENT_NAMED_MAX else ""
        texts.append(f"agent silent: {', '.join(silent[:SILENT_NAMED_MAX])}{more}")
    return f" ({'; '.join(texts)})" if texts else ""


def _details(slices: Sequence[SliceSummary]) -> str:
    waiting = [f"{each.plane.value}: {each.message or each.state}" for each in slices if not each.programmed]
    return f" ({'; '.join(waiting)})" if waiting else ""
