"""The background work of MatrixLink by subject: dependencies, periods, and the events that wake it early.

Each subject holds the objects that its routes call, and lists what runs for it: `periodics` on a period or when nudged,
`tasks` forever; `leader_watchers` ones run only in the leading replica.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from matrixcommon.model.clock import Clock
from matrixcommon.model.process_pauses import ProcessPauses
from matrixcommon.workflows.operations import Operations
from matrixcommon.workflows.runner import WorkflowRunner
from matrixlink.communicators.service import Communicators
from matrixlink.controllers.agent_leases import Leases
from matrixlink.controllers.link_health import LinkHealth
from matrixlink.controllers.link_reports import LinkReportProcessor
from matrixlink.controllers.orphaned_slices import OrphanedSlices
from matrixlink.controllers.supernode_expiry import SupernodeExpiry
from matrixlink.controllers.topology_follower import TopologyFollower
from matrixlink.fabric.condition.fabric import Fabric
from matrixlink.link_health.fault_localisation import FaultLocaliser
from matrixlink.link_health.flap_damping import Damping
from matrixlink.link_health.link_events import LinkEvents
from matrixlink.link_health.link_state import LinkStateTracker
from matrixlink.maintenance.drain_workflow import WORKFLOWS, DrainHost
from matrixlink.maintenance.drained_elements import DrainedElements
from matrixlink.maintenance.drains import Drains
from matrixlink.slices.slice_controller import SliceController
from matrixlink.telemetry.rates import PortRates
from matrixresource.client import ResourceClient
from services.chassis.periodic import Periodic, follow
from services.link.allocations import ReservedNodes

HEALTH_PERIOD_S, HEALTH_FLOOR_WALL_S = 5.0, 0.5
DEPARTED_PERIOD_S = 60.0
TOPOLOGY_PERIOD_S = 5.0
ORPHANS_PERIOD_S = 60.0

Task = Callable[[], Awaitable[object]]


class HealthControllers:
    """Link health: tracks links as reported by their agents, locates faults, and reroutes slices around them."""

    def __init__(
        self,
        slice_controller: SliceController,
        fabric: Fabric,
        leases: Leases,
        pauses: ProcessPauses,
        damping: Damping,
        clock: Clock,
    ) -> None:
        store, promises = slice_controller.store, slice_controller.promises
        self.conditions = LinkStateTracker(store, promises, clock, damping)
        self.diagnosis = FaultLocaliser(fabric, promises, self.conditions, clock)
        events = LinkEvents(store, fabric, leases.reachable, clock)
        watcher = LinkHealth(slice_controller, self.conditions, self.diagnosis, events, pauses)
        self._health = Periodic(
            "link-health", watcher.watch, clock, period_s=HEALTH_PERIOD_S, floor_wall_s=HEALTH_FLOOR_WALL_S
        )
        self.nudge = self._health.nudge

    @property
    def periodics(self) -> list[Periodic]:
        return [self._health]


class CommunicatorControllers:
    """Communicators: keeps them up to date with the capacity of their ports."""

    def __init__(self, slice_controller: SliceController, fabric: Fabric, clock: Clock) -> None:
        self.service = Communicators(slice_controller.store, fabric, clock)
        self._watcher = Periodic("communicators", self.service.watch, clock, period_s=HEALTH_PERIOD_S, floor_wall_s=0.5)

    @property
    def periodics(self) -> list[Periodic]:
        return [self._watcher]

    def ports_changed(self) -> None:
        self.service.synchronise()
        self._watcher.nudge()


class ReportControllers:
    """Reports of agents. Supernodes whose agents are all gone are forgotten, except those in `kept`."""

    def __init__(
        self,
        slice_controller: SliceController,
        fabric: Fabric,
        leases: Leases,
        health: HealthControllers,
        communicators: CommunicatorControllers,
        kept: Sequence[str],
        clock: Clock,
    ) -> None:
        self._health, self._communicators = health, communicators
        self.rates = PortRates(fabric, clock)
        self.reports = LinkReportProcessor(
            slice_controller, leases, health.conditions, health.diagnosis, self.rates, clock, self._ports_changed
        )
        departed = SupernodeExpiry(slice_controller, leases, kept, self.reports, self.rates, health.diagnosis)
        self._departed = Periodic("departed", departed.watch, clock, period_s=DEPARTED_PERIOD_S, floor_wall_s=1.0)

    @property
    def periodics(self) -> list[Periodic]:
        return [self._departed]

    def _ports_changed(self) -> None:
        self._communicators.ports_changed()
        self._health.nudge()


class ResourceFollowers:
    """Followers of MatrixResource: the fabric follows its topology, slices follow their allocations."""

    def __init__(
        self,
        slice_controller: SliceController,
        communicators: CommunicatorControllers,
        resource: ResourceClient,
        clock: Clock,
    ) -> None:
        self.allocations = ReservedNodes(resource, clock)
        self._resource, self._communicators = resource, communicators
        self._follower = TopologyFollower(slice_controller, resource)
        self._topology = Periodic(
            "topology", self._follow_topology, clock, period_s=TOPOLOGY_PERIOD_S, floor_wall_s=0.5
        )
        self._follower.newest.changed = self._topology.nudge
        orphans = OrphanedSlices(slice_controller, self.allocations, clock)
        self._orphans = Periodic("orphans", orphans.reconcile, clock, period_s=ORPHANS_PERIOD_S, floor_wall_s=5.0)

    @property
    def periodics(self) -> list[Periodic]:
        return [self._topology, self._orphans]

    @property
    def tasks(self) -> list[Task]:
        return [partial(follow, partial(self._resource.watch, "topology-versions"), self._follower.newest.handle_event)]

    async def _follow_topology(self) -> str:
        found = await self._follower.watch()
        self._communicators.service.synchronise()
        return found


class DrainControllers:
    """Drains: takes elements out of use and puts them back, step by step."""

    def __init__(self, slice_controller: SliceController, clock: Clock) -> None:
        elements = DrainedElements(slice_controller)
        host = DrainHost(elements)
        self.runner = WorkflowRunner(WORKFLOWS, host, clock)
        self.resumption = Periodic("workflow-resumption", self.runner.reconcile, clock, period_s=30.0, floor_wall_s=1.0)
        self.operations = Operations(self.runner, host, clock, self.resumption.nudge)
        self.drains = Drains(elements, self.runner)

    @property
    def leader_watchers(self) -> list[Periodic]:
        return [self.resumption]
