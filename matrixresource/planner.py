"""Planner: the questions about requests that nobody has made yet. It reads one moment and writes nothing."""

from __future__ import annotations

from matrixresource import plans
from matrixresource.allocator import whole_nodes
from matrixresource.contract import FragmentationView, PlanChange, PlanObstacles, PlanRequest, PlanView
from matrixresource.inventory import Snapshot
from matrixresource.placement import Wish
from matrixresource.store import ResourceStore
from matrixresource.vocabulary.errors import Conflict


class Planner:
    """Plans and fragmentation over one store."""

    def __init__(self, store: ResourceStore) -> None:
        self._store = store

    def plan(self, request: PlanRequest) -> PlanView:
        """Whether a new allocation would fit now. Raises Conflict when the topology is not the one it was meant for."""
        nodes = whole_nodes(request)
        snapshot = self._snapshot()
        if request.topology_version and request.topology_version != snapshot.topology_version:
            text = f"the topology is {snapshot.topology_version!r} by now; plan anew on that version"
            raise Conflict(text, field="topologyVersion")
        wish = Wish(nodes, request.spares, **request.placement.model_dump())
        found = plans.plan(snapshot.without(request.exclude_nodes, "Excluded"), wish)
        placed = found.placed
        return PlanView(
            fits=placed is not None,
            topology_version=snapshot.topology_version,
            nodes=nodes,
            spares=request.spares,
            members=[str(name) for name in placed.members] if placed else [],
            spare_nodes=[str(name) for name in placed.spares] if placed else [],
            blast_radius=found.radius() if placed else {},
            message=found.refusal,
            blocking=[
                PlanObstacles(cabinet=one.cabinet, nodes=one.nodes, free=one.free, reasons=one.reasons)
                for one in found.blocking
            ],
            changes=[
                PlanChange(kind=c.kind, nodes=c.nodes, allocations=list(c.allocations), message=plans.told(c))
                for c in found.changes
            ],
        )

    def fragmentation(self) -> FragmentationView:
        """How the free nodes lie."""
        snapshot = self._snapshot()
        return FragmentationView(
            topology_version=snapshot.topology_version,
            nodes=len(snapshot.nodes),
            free_nodes=len(snapshot.free()),
            largest_block=plans.largest_blocks(snapshot),
            cabinets_with_block_of=plans.free_blocks(snapshot),
        )

    def _snapshot(self) -> Snapshot:
        with self._store.reading() as session:
            return self._store.snapshot(session)
