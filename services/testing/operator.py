"""The operator of a stack in one process, paced by the stack's clock: what `services/operator` does around Kopf.

Changes wake it, as there. Between two runs it pauses as long as a real operator would at that time scale, so an hour
without changes costs almost nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from matrixcommon.api.client import Collection, WatchEvent
from matrixcompute.clients.inference import Inference
from matrixcontainer.client.client import NODE, POD
from matrixcontainer.kubeapi.storage.objects import Change
from services.chassis.app import run_background
from services.chassis.periodic import EventHandler, Periodic, follow, nudge_on_event
from services.testing.cluster import Cluster

RESYNC_WALL_S, MEASURED_WALL_S = 30.0, 5.0
RESOURCES_REST_WALL_S, MIRRORS_REST_WALL_S, SCHEDULER_REST_WALL_S = 0.1, 1.5, 0.2
REST_S = 1.0
OURS = "cloudmatrix.io"


class Operator:
    """The operator of a cluster; `run` it as a task beside the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

        def every(
            name: str, action: Callable[[], Awaitable[object]], period_wall_s: float, rest_wall_s: float
        ) -> Periodic:
            return Periodic(
                name,
                action,
                cluster.clock,
                period_s=RESYNC_WALL_S,
                floor_wall_s=period_wall_s,
                rest_s=REST_S,
                rest_floor_wall_s=rest_wall_s,
            )

        self._resources = every("resources", cluster.reconcile_resources, RESYNC_WALL_S, RESOURCES_REST_WALL_S)
        self._measures = every("measures", cluster.update_metrics, MEASURED_WALL_S, 0.0)
        self._mirrors = every("mirrors", cluster.mirror, RESYNC_WALL_S, MIRRORS_REST_WALL_S)
        self._scheduler = every("scheduler", cluster.scheduler.reconcile, RESYNC_WALL_S, SCHEDULER_REST_WALL_S)

    async def run(self) -> None:
        """Run until cancelled."""
        listeners = self._cluster.kube_api.store.listeners
        listeners.append(self._changed)
        try:
            watchers = (self._resources, self._measures, self._mirrors, self._scheduler)
            await run_background(watchers, [partial(follow, stream, heard) for stream, heard in self._watches()])
        finally:
            listeners.remove(self._changed)

    def _changed(self, change: Change) -> None:
        resource = change.record.key[0]
        if resource.endswith(OURS):
            self._resources.nudge()
        elif resource == POD.plural:
            self._scheduler.nudge()
        elif resource == NODE.plural and change.type == "MODIFIED":
            self._mirrors.nudge()

    def _watches(self) -> tuple[tuple[Callable[[int | None], AsyncIterator[WatchEvent]], EventHandler], ...]:
        cluster, resources = self._cluster, nudge_on_event(self._resources.nudge)
        slices = Collection(cluster.http["link"], "slices")
        return (
            (partial(cluster.compute.watch, "instances"), resources),
            (partial(cluster.compute.watch, "scaling-policies"), resources),
            (partial(cluster.compute.watch, "scenario-runs"), resources),
            (Inference(cluster.http["infer"]).watch, resources),
            (partial(cluster.resource.watch, "allocations"), nudge_on_event(self._scheduler.nudge)),
            (partial(cluster.resource.watch, "nodes"), nudge_on_event(self._mirrors.nudge)),
            (slices.watch, nudge_on_event(self._mirrors.nudge)),
        )
