"""Which nodes affinity and anti-affinity leave over."""

from __future__ import annotations

from collections.abc import Iterable

from matrixresource.scheduler.model.request import PlacementRequest
from matrixresource.scheduler.model.state import LedgerState


class AffinityFilter:
    """What affinity and anti-affinity leave over, as a test on a node."""

    def __init__(self, ledger: LedgerState, request: PlacementRequest) -> None:
        self.nodes, self.nodes_per_supernode = ledger.shape.nodes, ledger.shape.nodes_per_supernode
        self.rules: list[tuple[int, set[int], bool]] = []
        self.is_unsatisfiable = False
        for rule, inside in ((request.anti_affinity, False), (request.affinity, True)):
            if rule is None or not rule.required:
                continue
            size = {"node": 1, "cabinet": self.nodes, "supernode": self.nodes_per_supernode}[rule.over]
            theirs = [self._domains(ledger, other, size) for other in rule.others if other in ledger.allocations]
            if theirs:
                kept = set.intersection(*theirs) if inside else set.union(*theirs)
                self.rules.append((size, kept, inside))
                self.is_unsatisfiable = self.is_unsatisfiable or (inside and not kept)

    def _domains(self, ledger: LedgerState, other: str, size: int) -> set[int]:
        """The domains of its members; for one without members, of the nodes it is pooled from."""
        place = ledger.allocations[other].place
        if size >= self.nodes:
            cabinets = place.cabinets(self.nodes) or place.used_cabinets(self.nodes)
            return {cabinet * self.nodes // size for cabinet in cabinets}
        whole = {c * self.nodes + o for c, mask in place.whole for o in ledger.index.offsets(mask)}
        members = whole | {node for node, _ in place.parts}
        return members or {node for node, _ in place.cpus + place.mem}

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __call__(self, node: int) -> bool:
        for size, kept, inside in self.rules:  # noqa: SIM110 - a loop takes half as long here
            if (node // size in kept) is not inside:
                return False
        return True

    def cabinets(self, scope: Iterable[int]) -> Iterable[int]:
        """Those cabinets of which some node may be allowed: all of them if the constraints are about nodes."""
        for size, kept, inside in self.rules:
            if size >= self.nodes:
                each = size // self.nodes
                scope = [cabinet for cabinet in scope if (cabinet // each in kept) is inside]
        return scope

    def applies_to_nodes(self) -> bool:
        return any(size < self.nodes for size, _, _ in self.rules)
