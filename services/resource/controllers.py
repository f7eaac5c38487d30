"""The background work of MatrixResource by subject: dependencies, periods, and the events that wake it early.

Each subject holds the objects that its routes call, and lists what runs for it, on a period or when nudged: `periodics`
in every replica, `led` ones only in the leader.
"""

from __future__ import annotations

from matrixcommon.model.clock import Clock, with_wall_floor
from matrixcommon.workflows.operations import Operations
from matrixresource.allocations.allocator import Allocator
from matrixresource.allocations.node_lifecycle import NodeLifecycle
from matrixresource.controllers.defragmentation import ProposedPlanReconciler
from matrixresource.controllers.flapping import FlappingNodes
from matrixresource.controllers.node_reports import NodeReportProcessor
from matrixresource.defragmentation.service import DefragmentationService
from matrixresource.defragmentation.workflows import DefragmentationHost
from matrixresource.store.store import ResourceStore
from matrixresource.supernodes.topology_manager import TopologyManager
from services.chassis.periodic import Periodic

LEASE_WATCH_FLOOR_WALL_S = 0.5
REPLENISH_PERIOD_S = 60.0
SETTLE_WATCH_PERIOD_S = 10.0
FLAPPING_PERIOD_S = 30.0
EXPIRY_PERIOD_S = 10.0
PROPOSED_PERIOD_S = 5.0


class AllocationControllers:
    """Allocations: replenishes spares, and ends leases and reservations on time."""

    def __init__(self, allocator: Allocator, clock: Clock) -> None:
        self._allocator = allocator
        self._refill = Periodic(
            "replenish",
            self._replenish,
            clock,
            period_s=REPLENISH_PERIOD_S,
            floor_wall_s=2.0,
            rest_s=10.0,
            rest_floor_wall_s=1.0,
        )
        self._expiry = Periodic("expire", self._expire, clock, period_s=EXPIRY_PERIOD_S, floor_wall_s=0.5)
        self.replenish = self._refill.nudge

    @property
    def periodics(self) -> list[Periodic]:
        return [self._refill, self._expiry]

    async def _replenish(self) -> str:
        return f"{self._allocator.replenish()} spares allocated"

    async def _expire(self) -> str:
        return f"{self._allocator.reservations.reconcile()}; {self._allocator.expire()} leases ended"


class ReportControllers:
    """Reports of nodes, and the leases that they renew."""

    def __init__(
        self,
        store: ResourceStore,
        allocations: AllocationControllers,
        allocator: Allocator,
        topology_manager: TopologyManager,
        clock: Clock,
        *,
        lease_grace_s: float,
        lease_watch_s: float,
    ) -> None:
        self.reports = NodeReportProcessor(
            store,
            allocator,
            topology_manager,
            clock,
            grace_s=lambda: clock.at_least_wall(lease_grace_s, 6.0),
            nudge=allocations.replenish,
            watch_period_s=lambda: with_wall_floor(clock, lease_watch_s, LEASE_WATCH_FLOOR_WALL_S),
        )
        self._leases = Periodic(
            "leases",
            self.reports.watch_leases,
            clock,
            period_s=lease_watch_s,
            floor_wall_s=min(LEASE_WATCH_FLOOR_WALL_S, lease_watch_s),
        )

    @property
    def periodics(self) -> list[Periodic]:
        return [self._leases]


class NodeControllers:
    """The life cycle of nodes: carries out administrators' requests, and takes flapping nodes out of service."""

    def __init__(self, store: ResourceStore, allocator: Allocator, clock: Clock) -> None:
        self.lifecycle = NodeLifecycle(store, allocator, clock)
        flapping = FlappingNodes(store, self.lifecycle, clock)
        self._flapping = Periodic("flapping", flapping.reconcile, clock, period_s=FLAPPING_PERIOD_S, floor_wall_s=1.0)

    @property
    def periodics(self) -> list[Periodic]:
        return [self._flapping]


class TopologyControllers:
    """The topology: makes a new version of it once changed wiring has settled, and finishes drains of domains."""

    def __init__(self, topology_manager: TopologyManager, clock: Clock) -> None:
        self._topology_manager = topology_manager
        self._reconciler = Periodic(
            "topology", self._reconcile, clock, period_s=SETTLE_WATCH_PERIOD_S, floor_wall_s=0.5
        )

    @property
    def periodics(self) -> list[Periodic]:
        return [self._reconciler]

    async def _reconcile(self) -> str:
        drained = ", ".join(self._topology_manager.finish_drains())
        found = self._topology_manager.reconcile() or "no new topology version"
        return f"{found}{drained and f'; drained: {drained}'}"


class DefragmentationControllers:
    """Defragmentation: carries out plans of moves, and expires plans that were not approved."""

    def __init__(self, store: ResourceStore, allocator: Allocator, clock: Clock) -> None:
        host = DefragmentationHost(store, allocator, clock)
        self.runner = host.runner()
        self.resumption = Periodic("workflow-resumption", self.runner.reconcile, clock, period_s=30.0, floor_wall_s=1.0)
        self.operations = Operations(self.runner, host, clock, self.resumption.nudge)
        self.service = DefragmentationService(store, allocator.ledger, clock, self.runner)
        proposed = ProposedPlanReconciler(store, clock)
        self._proposed = Periodic(
            "proposed-plans", proposed.reconcile, clock, period_s=PROPOSED_PERIOD_S, floor_wall_s=0.5
        )

    @property
    def led(self) -> list[Periodic]:
        return [self.resumption, self._proposed]
