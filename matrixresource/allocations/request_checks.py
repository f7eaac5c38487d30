"""Checks that can refuse a request before a placement is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy.orm import Session

from matrixcommon.model.errors import Conflict, InvalidField, MatrixError
from matrixresource.contract.allocations import AllocationRequest
from matrixresource.store.allocation_tables import AllocationRow
from matrixresource.store.tables import NodeRow
from matrixresource.store.topology_versions import checked_version


def check_request(
    session: Session, name: str, request: AllocationRequest, granted: AllocationRequest | None = None
) -> None:
    """Raises StaleTopology, and InvalidField for relations to other allocations that no placement could satisfy;
    Conflict if those allocations have gone since the spec was `granted`."""
    checked_version(session, request.topology_version)
    check_placement(request)
    affinities = request.affinity.allocations if request.affinity else []
    anti_affinities = request.anti_affinity.allocations if request.anti_affinity else []
    for field, others in (("affinity", affinities), ("antiAffinity", anti_affinities)):
        if name in others:
            raise InvalidField(f"{field} of {name} refers to {name} itself", field=f"{field}.allocations")
    missing = [other for other in affinities if session.get(AllocationRow, other) is None]
    if missing and request.affinity and request.affinity.required:
        known = granted is not None and granted.affinity is not None and {*missing} <= {*granted.affinity.allocations}
        refusal: type[MatrixError] = Conflict if known else InvalidField
        raise refusal(
            f"affinity refers to allocation {missing[0]!r}, which does not exist", field="affinity.allocations"
        )
    for node in request.memory_gib_by_node:
        if session.get(NodeRow, node) is None:
            raise InvalidField(f"there is no node {node!r}", field=f"memoryGibByNode.{node}")
    levels = {rule.level for rule in (request.affinity, request.anti_affinity) if rule is not None}
    if both := sorted(set(affinities) & set(anti_affinities)) if len(levels) == 1 else []:
        raise InvalidField(
            f"affinity and antiAffinity both refer to {both[0]} at the same level", field="antiAffinity.allocations"
        )
    if cycle := affinity_cycle(name, affinities, lambda other: _affinities_of(session, other)):
        text = f"affinity forms a cycle: {' -> '.join(cycle)}"
        raise InvalidField(text, field="affinity.allocations")


def check_placement(request: AllocationRequest) -> None:
    """Raises InvalidField for required placement that has no meaning for sockets and memory alone: they come from as
    many nodes as it takes, which do not count as members."""
    placement = request.placement
    if request.nodes is not None or request.npus is not None or not placement.required:
        return
    if placement.policy == "spread":
        raise InvalidField(
            "cpus and memoryGib alone have no members to spread; set required: false, or request nodes or npus",
            field="placement.policy",
        )
    if placement.level == "node":
        raise InvalidField(
            "cpus and memoryGib alone can be packed into a cabinet or a supernode; for one node, use memoryGibByNode, "
            "or request them with nodes or npus",
            field="placement.level",
        )


def _affinities_of(session: Session, name: str) -> list[str]:
    row = session.get(AllocationRow, name)
    affinity = row.spec().affinity if row is not None else None
    return affinity.allocations if affinity else []


def affinity_cycle(name: str, affinities: Iterable[str], affinities_of: Callable[[str], Iterable[str]]) -> list[str]:
    """The cycle of affinities from `name` back to itself; [] if there is none. `affinities_of` gives the affinities of
    the others."""
    open_paths = [[name, other] for other in affinities]
    seen: set[str] = set()
    while open_paths:
        path = open_paths.pop()
        if path[-1] == name:
            return path
        if path[-1] not in seen:
            seen.add(path[-1])
            open_paths += [[*path, other] for other in affinities_of(path[-1])]
    return []
