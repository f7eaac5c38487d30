"""The operator as a process: Kopf, the mirrors, the kubelets of emulated nodes, and the health of all of it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, cast

import httpx
import kopf
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from matrixcommon.api.authorization import AccessRules
from matrixcommon.api.client import Collection, WatchEvent, call, resource_path
from matrixcommon.model.clock import WallClock
from matrixcommon.model.errors import MatrixError
from matrixcommon.model.fencing import FENCE
from matrixcommon.model.resource_key import key_of
from matrixcompute.client import ComputeClient
from matrixcompute.clients.inference import Inference
from matrixcontainer.client.client import POD, Kind, KubeClient
from matrixcontainer.client.login import http_client_for, login, points_to
from matrixcontainer.mirrors.cordons import MANAGED_OBJECTS
from matrixcontainer.mirrors.mirrors import MIRRORED, Mirrors
from matrixcontainer.mirrors.virtual_kubelet import RENEW_S, Kubelets
from matrixcontainer.operator.crd_installer import CrdInstaller
from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.handlers import reconcilers_for, registry_for
from matrixcontainer.operator.leader_election import LeaderElector
from matrixcontainer.operator.reconcile_queue import ReconcileQueue
from matrixcontainer.operator.reconciler import REQUEUE_AFTER_WALL_S
from matrixcontainer.operator.status import stopped_serving
from matrixcontainer.scheduler.scheduler import PodScheduler
from matrixresource.client import ResourceClient
from services.chassis.access import Tokens
from services.chassis.app import create_app
from services.chassis.http import http_client
from services.chassis.http_server.serving import serve
from services.chassis.logging import configure_logging
from services.chassis.metrics import watcher_metrics
from services.chassis.periodic import RETRY_WALL_S, EventHandler, Periodic, follow, nudge_on_event, supervise
from services.chassis.tracing import configure_tracing
from services.operator.kopf_logging import configure_kopf
from services.operator.settings import OperatorSettings

log = logging.getLogger(__name__)

METRICS_S, METRICS_FLOOR_WALL_S = 5.0, 0.25
"""Period of metrics: fresh enough for autoscalers, which look every fifteen emulated seconds, with a wall-clock
floor."""
KOPF_STOP_TIMEOUT_WALL_S = 2.0


class FaultsOverHttp(Collection):
    """The faults of the emulated hardware, as the operator's port."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        super().__init__(http, "faults")

    async def inject(self, name: str, request: dict[str, Any]) -> None:
        await self.ensure(name, request)

    async def clear(self, name: str) -> None:
        await call(self._http, "DELETE", resource_path("faults", name))


class OperatorProcess:
    """Everything one operator runs: Kopf, the mirrors, the kubelets, the reports, its health."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self.kube = KubeClient(http_client_for(login(settings.kubeconfig)))
        token = settings.token
        self.resource = ResourceClient(http_client(settings.resource_url, token))
        self._slices = Collection(http_client(settings.link_url, token), "slices")
        self.compute = ComputeClient(http_client(settings.compute_url, token))
        self.inference = Inference(http_client(settings.infer_url, token))
        self.reconcilers = reconcilers_for(
            self.kube,
            self.compute,
            self.inference,
            FaultsOverHttp(http_client(settings.agents_url, token)),
            time.time,
            f"{settings.infer_public_url or settings.infer_url}/v1",
        )
        self._instance_queue, self._infer_queue = (
            ReconcileQueue(self.reconcilers.instances),
            ReconcileQueue(self.reconcilers.infers),
        )
        self._policy_queue, self._scenario_queue = (
            ReconcileQueue(self.reconcilers.policies),
            ReconcileQueue(self.reconcilers.scenarios),
        )
        mirrors = Mirrors(self.kube, self.resource, self._slices.all, time.time, settings.shared_cluster)
        self._mirror_reconciler = mirrors
        self._kubelets = Kubelets(self.kube, self.resource, time.time)
        wall = WallClock()
        instances = Periodic(
            "instances", self._instance_queue.reconcile, wall, period_s=REQUEUE_AFTER_WALL_S, rest_s=0.1
        )
        infers = Periodic("deployments", self._infer_queue.reconcile, wall, period_s=REQUEUE_AFTER_WALL_S, rest_s=0.3)
        self._instance_queue.nudge, self._infer_queue.nudge = instances.nudge, infers.nudge
        policies = Periodic(
            "scaling-policies", self._policy_queue.reconcile, wall, period_s=REQUEUE_AFTER_WALL_S, rest_s=0.3
        )
        scenarios = Periodic(
            "scenarios", self._scenario_queue.reconcile, wall, period_s=REQUEUE_AFTER_WALL_S, rest_s=0.3
        )
        self._policy_queue.nudge, self._scenario_queue.nudge = policies.nudge, scenarios.nudge
        self.mirrors = Periodic("mirrors", mirrors.reconcile, wall, period_s=30, rest_s=1.5)
        self.kubelets = Periodic("kubelets", self._reconcile_pods, wall, period_s=10, rest_s=0.3)
        leases = Periodic("node-leases", self._kubelets.renew_leases, wall, period_s=RENEW_S, rest_s=1.0)
        scheduler = PodScheduler(self.kube, self.resource, time.time)
        self.scheduler = Periodic("pod-scheduler", scheduler.reconcile, wall, period_s=10, rest_s=0.2)
        metrics = Periodic(
            "metrics", self._update_metrics, settings.clock(), period_s=METRICS_S, floor_wall_s=METRICS_FLOOR_WALL_S
        )
        self.watchers = [instances, infers, policies, scenarios, self.mirrors, self.scheduler, metrics]
        if settings.shared_cluster:
            self.watchers += [self.kubelets, leases]
        self._crds = CrdInstaller(self.kube, custom_resource_definitions(), self._restore_mirrors)
        self._kopf_ready = asyncio.Event()
        self._identity = settings.identity or f"{socket.gethostname()}:{settings.state.resolve()}"
        self.leader_elector = LeaderElector(self.kube, self._identity, time.time, namespace=settings.lease_namespace)
        self._on_standby = False

    def _restore_mirrors(self) -> None:
        self._mirror_reconciler.resync()
        self.mirrors.nudge()

    async def _reconcile_pods(self) -> str:
        try:
            return await self._kubelets.reconcile()
        finally:  # a refusal of one pod must not delay the next stage of others
            if self._kubelets.requeue_after_s is not None:
                asyncio.get_running_loop().call_later(self._kubelets.requeue_after_s, self.kubelets.nudge)

    async def _update_metrics(self) -> str:
        """Measure the deployments, spending at most half of the time on it, however many there are."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        summary = await self.reconcilers.infers.update_metrics()
        await asyncio.sleep(loop.time() - started)
        return summary

    async def _instance_changed(self, event: WatchEvent | None) -> None:
        """Reconcile an instance that changed, and the deployments on it; all of them if events may be missing."""
        key = None if event is None else key_of(event.view["project"], event.view["name"])
        urgent = event is not None and stopped_serving(event.view)
        self._instance_queue.add(self.reconcilers.keys("instances", key), urgent)
        self._infer_queue.add(self.reconcilers.keys("infers", key))

    async def _deployment_changed(self, event: WatchEvent | None) -> None:
        changed = None if event is None else {key_of(event.view["project"], event.view["name"])}
        self._infer_queue.add(self.reconcilers.keys("infers") if changed is None else changed)

    async def _policy_changed(self, event: WatchEvent | None) -> None:
        if event is not None:
            self._policy_queue.add({key_of(event.view["project"], event.view["name"])})

    async def _run_changed(self, event: WatchEvent | None) -> None:
        if event is not None:
            self._scenario_queue.add({str(event.view["name"])})

    async def _instance_event(self, event: WatchEvent | None) -> None:
        if event is not None and event.type == "ADDED":
            await self.reconcilers.instances.record(event.view)

    def waiting_for(self) -> str | None:
        """None if this operator works, or stands by while another works."""
        if self._kopf_ready.is_set() or (self._on_standby and self.leader_elector.holder):
            return None
        return "Kopf to reach the Kubernetes API"

    def app(self) -> FastAPI:
        """The application: health and metrics, with everything that runs beside them."""
        registry = CollectorRegistry()
        watcher_metrics(registry, self.watchers)
        access, tokens = AccessRules("Operator", ()), Tokens(self._settings.tokens)
        return create_app(
            "operator",
            "Operator",
            [],
            access,
            tokens=tokens,
            tasks=[self.run],
            ready=self.waiting_for,
            registry=registry,
        )

    async def run(self) -> None:
        """Run until cancelled; the process ends if Kopf ends, or if another operator becomes the leader."""
        try:
            self._on_standby = True
            await self.leader_elector.acquire()
            self._on_standby = False
            FENCE.set(self.leader_elector.fence)
            if self._settings.install_crds:
                await self._crds.install()
            background = [watcher.run for watcher in self.watchers] + [self._watch_pods]
            background += [self._crds.keep] if self._settings.install_crds else []
            background += [partial(self._watch_mirrored, kind) for kind in MIRRORED]
            background += [partial(follow, stream, handler) for stream, handler in self._change_streams()]
            tasks = [asyncio.create_task(supervise(background_task)) for background_task in background]
            renewal, operator = asyncio.create_task(self.leader_elector.renew()), asyncio.create_task(self._run_kopf())
            superseded = asyncio.create_task(self.leader_elector.superseded.wait())
            try:
                ended, _ = await asyncio.wait({renewal, operator, superseded}, return_when=asyncio.FIRST_COMPLETED)
                if superseded in ended:
                    log.error("a newer operator has taken over", extra={"lease": self.leader_elector.fence})
                for error in filter(None, (task.exception() for task in ended if not task.cancelled())):
                    log.error("Kopf or the leadership failed", exc_info=error)
            finally:
                for task in (renewal, superseded, operator, *tasks):
                    task.cancel()
                await asyncio.wait({operator, *tasks}, timeout=KOPF_STOP_TIMEOUT_WALL_S)
                await self.leader_elector.release()
        finally:
            signal.raise_signal(signal.SIGTERM)

    def _change_streams(self) -> tuple[tuple[Callable[[int | None], AsyncIterator[WatchEvent]], EventHandler], ...]:
        """Streams of changes, each with its handler."""
        return (
            (partial(self.compute.watch, "instances"), self._instance_changed),
            (partial(self.compute.watch, "events"), self._instance_event),
            (partial(self.compute.watch, "scaling-policies"), self._policy_changed),
            (partial(self.compute.watch, "scenario-runs"), self._run_changed),
            (self.inference.watch, self._deployment_changed),
            (partial(self.resource.watch, "allocations"), nudge_on_event(self.scheduler.nudge)),
            (partial(self.resource.watch, "nodes"), nudge_on_event(self.mirrors.nudge)),
            (self._slices.watch, nudge_on_event(self.mirrors.nudge)),
        )

    async def _watch_pods(self) -> None:
        """Forever: nudge the scheduler and the kubelets at every change of a pod."""
        while True:
            try:
                _, since = await self.kube.list(POD)
                async for type, _body in self.kube.watch(POD, since):
                    if type != "BOOKMARK":
                        self.scheduler.nudge()
                        self.kubelets.nudge()
            except MatrixError as refused:
                log.info("watch of pods ended", extra={"why": refused.message})
            self.scheduler.nudge()
            await asyncio.sleep(RETRY_WALL_S)

    async def _watch_mirrored(self, kind: Kind) -> None:
        """Forever: nudge the mirrors when others change a mirrored object, or cordon a Node."""
        refusal = ""
        while True:
            try:
                bodies, since = await self.kube.list(kind, labels=MANAGED_OBJECTS)
                self._mirror_reconciler.replace(kind, bodies)
                self.mirrors.nudge()
                refusal = ""
                async for type, body in self.kube.watch(kind, since, MANAGED_OBJECTS):
                    if type != "BOOKMARK" and self._mirror_reconciler.handle_event(kind, type, body):
                        self.mirrors.nudge()
            except MatrixError as refused:
                if refused.message != refusal:
                    log.info("watch of mirrors ended", extra={"kind": kind.kind, "why": refused.message})
                refusal = refused.message
            await asyncio.sleep(RETRY_WALL_S)

    async def _run_kopf(self) -> None:
        """Run Kopf without letting it install signal handlers: signals belong to the server, which ends the whole
        process. Restoring the handlers afterwards would lose signals that arrive in between."""
        loop = asyncio.get_running_loop()
        loop.__dict__["add_signal_handler"] = lambda *_: None
        try:
            await kopf.operator(
                registry=registry_for(self.reconcilers, self._settings.kubeconfig),
                settings=kopf.OperatorSettings(),
                clusterwide=True,
                standalone=True,
                # Kopf's default contains the user's name, which may not exist in a container.
                identity=cast(Any, self._identity),
                ready_flag=self._kopf_ready,
            )
        finally:
            del loop.__dict__["add_signal_handler"]


def run(argv: Sequence[str] | None = None) -> None:
    """Run the operator with settings from `argv`, until told to stop."""
    settings = OperatorSettings.load("operator", argv)
    configure_logging("operator", settings.log_level)
    configure_tracing("operator")
    configure_kopf(logging.getLogger().handlers)

    while settings.kubeconfig is not None and not points_to(settings.kubeconfig, settings.kube_url):
        log.info("waiting for the kubeconfig", extra={"path": str(settings.kubeconfig), "of": settings.kube_url})
        time.sleep(0.2)  # the process that writes it may still be starting
    serve(OperatorProcess(settings).app(), settings)
