"""Starts the operator: `python -m services.operator --help`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import kopf
from pydantic import Field

from matrixcommon.api.client import WatchEvent, at, call, list_all, watch
from matrixcommon.model.clock import WallClock
from matrixcommon.model.errors import Gone, MatrixError, NotFound
from matrixcommon.model.resource_key import key_of
from matrixcompute.client import ComputeClient
from matrixcontainer.client.client import CRD, POD, KubeClient, http_of, login
from matrixcontainer.mirrors.mirrors import Mirrors
from matrixcontainer.mirrors.virtual_kubelet import RENEW_S, Kubelets
from matrixcontainer.operator.changed import Changed
from matrixcontainer.operator.crds import custom_resource_definitions
from matrixcontainer.operator.handlers import reconcilers_for, registry_for
from matrixcontainer.operator.leader_election import Leadership
from matrixcontainer.operator.reconciler import AGAIN_WALL_S
from matrixcontainer.scheduler.scheduler import PodScheduler
from matrixresource.client import ResourceClient
from services.chassis.http import http_client
from services.chassis.logging import configure
from services.chassis.periodic import Periodic
from services.chassis.settings import Settings
from services.operator.health import serve_health

log = logging.getLogger(__name__)

RETRY_WALL_S = 0.5
METRICS_S, METRICS_WALL_S_MIN = 5.0, 0.25
"""Fresh enough for autoscalers, which look every fifteen emulated seconds; but a machine can only do so much."""


class OperatorSettings(Settings):
    """The operator: CloudMatrixInstance and related kinds, on any Kubernetes API. Its time is the wall's."""

    kubeconfig: Path | None = Field(None, description="kubeconfig of the Kubernetes API; none means: inside a pod")
    identity: str = Field("", description="who we are among several operators; the host and state folder by default")
    lease_namespace: str = Field(
        "kube-system", min_length=1, description="namespace of the Lease that says which of several operators works"
    )
    shared_cluster: bool = Field(
        True,
        description="the API is of a cluster with machines and kubelets of its own: emulated nodes bear a taint that "
        "keeps its pods off them, and their kubelets, with a Lease for each, are played here; off where the embedded "
        "API plays them",
    )
    install_crds: bool = Field(True, description="apply the CRDs at start")
    resource_url: str = Field("http://127.0.0.1:8401", description="where MatrixResource is")
    link_url: str = Field("http://127.0.0.1:8402", description="where MatrixLink is")
    compute_url: str = Field("http://127.0.0.1:8403", description="where MatrixCompute is")
    infer_url: str = Field("http://127.0.0.1:8404", description="where CloudMatrix-Infer is")
    infer_public_url: str = Field("", description="where users find CloudMatrix-Infer; the same by default")
    agents_url: str = Field("http://127.0.0.1:8405", description="where the emulated hardware takes faults")


class InferenceOverHttp:
    """CloudMatrix-Infer's deployments, as the operator's port wants them."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ensure(self, name: str, request: dict[str, Any]) -> dict[str, Any]:
        return await call(self._http, "PUT", at("deployments", name), body=request)

    async def find(self, name: str) -> dict[str, Any] | None:
        try:
            return await call(self._http, "GET", at("deployments", name))
        except NotFound:
            return None

    async def statistics(self, name: str) -> dict[str, Any]:
        return await call(self._http, "GET", at("deployments", name, "/statistics"))

    async def drain(self, name: str, nodes: list[str]) -> dict[str, Any]:
        return await call(self._http, "PUT", at("deployments", name, "/drain"), body={"nodes": nodes})

    async def undrain(self, name: str) -> None:
        await call(self._http, "DELETE", at("deployments", name, "/drain"))

    async def delete(self, name: str) -> bool:
        try:
            await call(self._http, "DELETE", at("deployments", name))
        except NotFound:
            return True
        return await self.find(name) is None

    def watch(self, since: int | None) -> AsyncIterator[WatchEvent]:
        return watch(self._http, "/v1/deployments", since=since)


class FaultsOverHttp:
    """The emulated hardware's faults, as the operator's port wants them."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def inject(self, name: str, request: dict[str, Any]) -> None:
        await call(self._http, "PUT", f"/v1/faults/{name}", body=request)

    async def clear(self, name: str) -> None:
        await call(self._http, "DELETE", f"/v1/faults/{name}")


async def follow(
    stream: Callable[[int | None], AsyncIterator[WatchEvent]], heard: Callable[[WatchEvent | None], Awaitable[None]]
) -> None:
    """For ever: `heard` with every event, and with None after every break, since something may have been missed."""
    since: int | None = None
    while True:
        try:
            async for event in stream(since):
                if event.type != "BOOKMARK":
                    await heard(event)
                since = event.rv
        except Gone:
            since = None
        except MatrixError as refused:
            log.info("watch ended", extra={"why": refused.message})
        await heard(None)
        await asyncio.sleep(RETRY_WALL_S)


def nudging(watcher: Periodic) -> Callable[[WatchEvent | None], Awaitable[None]]:
    """For `follow`: whatever is heard, the watcher looks again."""

    async def heard(_: WatchEvent | None) -> None:
        watcher.nudge()

    return heard


async def supervised(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """For ever: the work, begun again after whatever ends it; it never ends without a line in the log."""
    while True:
        try:
            await work()
            log.error("background task ended", extra={"task": name})
        except Exception:
            log.exception("background task failed", extra={"task": name})
        await asyncio.sleep(RETRY_WALL_S)


class OperatorProcess:
    """Everything one operator runs: Kopf, the mirrors, the kubelets, the reports, its health."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self.kube = KubeClient(http_of(login(settings.kubeconfig)))
        token = settings.token
        self.resource = ResourceClient(http_client(settings.resource_url, token))
        self._link_http = http_client(settings.link_url, token)
        self.compute = ComputeClient(http_client(settings.compute_url, token))
        self.inference = InferenceOverHttp(http_client(settings.infer_url, token))
        self.reconcilers = reconcilers_for(
            self.kube,
            self.compute,
            self.inference,
            FaultsOverHttp(http_client(settings.agents_url, token)),
            time.time,
            f"{settings.infer_public_url or settings.infer_url}/v1",
        )
        self._instances, self._infers = Changed(self.reconcilers.instances), Changed(self.reconcilers.infers)
        mirrors = Mirrors(self.kube, self.resource, self._slices, time.time, settings.shared_cluster)
        self._kubelets = Kubelets(self.kube, self.resource, time.time)
        wall = WallClock()
        instances = Periodic("instances", self._instances.reconcile, wall, period_s=AGAIN_WALL_S, rest_s=0.1)
        infers = Periodic("deployments", self._infers.reconcile, wall, period_s=AGAIN_WALL_S, rest_s=0.3)
        self._instances.nudge, self._infers.nudge = instances.nudge, infers.nudge
        self.mirrors = Periodic("mirrors", mirrors.reconcile, wall, period_s=30, rest_s=1.5)
        self.kubelets = Periodic("kubelets", self._reconcile_pods, wall, period_s=10, rest_s=0.3)
        leases = Periodic("node-leases", self._kubelets.renew_leases, wall, period_s=RENEW_S, rest_s=1.0)
        scheduler = PodScheduler(self.kube, self.resource, time.time)
        self.scheduler = Periodic("pod-scheduler", scheduler.reconcile, wall, period_s=10, rest_s=0.2)
        self.watchers = [instances, infers, self.mirrors, self.scheduler]
        if settings.shared_cluster:
            self.watchers += [self.kubelets, leases]
        self._kopf_ready = asyncio.Event()
        identity = settings.identity or f"{socket.gethostname()}:{settings.state.resolve()}"
        self.leadership = Leadership(self.kube, identity, time.time, namespace=settings.lease_namespace)
        self._on_standby = False
        self._stopping = asyncio.Event()

    async def _reconcile_pods(self) -> str:
        text = await self._kubelets.reconcile()
        if self._kubelets.again_s is not None:
            asyncio.get_running_loop().call_later(self._kubelets.again_s, self.kubelets.nudge)
        return text

    async def _slices(self) -> list[dict[str, Any]]:
        return await list_all(self._link_http, "/v1/slices")

    async def _instance_changed(self, event: WatchEvent | None) -> None:
        """An instance changed, and with it what the deployments on it have to say; or any of them did."""
        key = None if event is None else key_of(event.view["project"], event.view["name"])
        self._instances.add(self.reconcilers.keys("instances", key))
        self._infers.add(self.reconcilers.keys("infers", key))

    async def _deployment_changed(self, event: WatchEvent | None) -> None:
        changed = None if event is None else {key_of(event.view["project"], event.view["name"])}
        self._infers.add(self.reconcilers.keys("infers") if changed is None else changed)

    async def _instance_event(self, event: WatchEvent | None) -> None:
        if event is not None and event.type == "ADDED":
            await self.reconcilers.instances.record(event.view)

    def waiting_for(self) -> str | None:
        """None when this one works, or stands by while another does."""
        if self._kopf_ready.is_set() or (self._on_standby and self.leadership.holder):
            return None
        return "Kopf to reach the Kubernetes API"

    async def install_crds(self) -> None:
        """Apply the CRDs and wait until they are established; tries again while the API is away."""
        wanted = {crd["metadata"]["name"]: crd for crd in custom_resource_definitions()}
        while True:
            try:
                for crd in wanted.values():
                    await self.kube.apply(CRD, crd)
                while wanted:
                    for name in list(wanted):
                        found = await self.kube.find(CRD, name)
                        conditions = ((found or {}).get("status") or {}).get("conditions") or []
                        if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                            del wanted[name]
                    await asyncio.sleep(0.05 if wanted else 0)
                return
            except MatrixError as refused:
                log.warning("CRDs are not installed yet", extra={"why": refused.message})
                await asyncio.sleep(RETRY_WALL_S)

    async def run(self) -> None:
        """Until SIGTERM."""
        self._take_signals()
        health = await serve_health(self._settings.host, self._settings.port, self.waiting_for, self.watchers)
        self._on_standby = True
        await self._unless_stopped(self.leadership.acquire())
        self._on_standby = False
        if self._settings.install_crds:
            await self._unless_stopped(self.install_crds())
        background: dict[str, Callable[[], Awaitable[None]]] = {
            **{watcher.name: watcher.run for watcher in self.watchers},
            "watch-pods": self._follow_pods,
        }
        for name, stream, heard in (
            ("instances", partial(self.compute.watch, "instances"), self._instance_changed),
            ("events", partial(self.compute.watch, "events"), self._instance_event),
            ("deployments", self.inference.watch, self._deployment_changed),
            ("allocations", partial(self.resource.watch, "allocations"), nudging(self.scheduler)),
            ("nodes", partial(self.resource.watch, "nodes"), nudging(self.mirrors)),
            ("slices", lambda rv: watch(self._link_http, "/v1/slices", since=rv), nudging(self.mirrors)),
        ):
            background[f"watch-{name}"] = partial(follow, stream, heard)
        tasks = [asyncio.create_task(supervised(name, work), name=name) for name, work in background.items()]
        kept = asyncio.create_task(self.leadership.keep())
        kept.add_done_callback(lambda _: self._stopping.set())
        await self._kopf(tasks)
        kept.cancel()
        await self.leadership.release()
        await health.cleanup()

    def _take_signals(self) -> None:
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self._stopping.set)

    async def _signals_after(self, kopf_ready: asyncio.Event) -> None:
        """Kopf takes the signals for itself when it starts, and then waits five seconds for tasks that are ours."""
        await kopf_ready.wait()
        self._take_signals()

    async def _follow_pods(self) -> None:
        """For ever: nudge the scheduler and the kubelets at every change of a pod."""
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

    async def _unless_stopped(self, work: Any) -> None:
        task, stop = asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            raise SystemExit(0)
        await task

    async def _kopf(self, tasks: list[asyncio.Task[None]]) -> None:
        metrics_wall_s = max(METRICS_S / self._settings.time_scale, METRICS_WALL_S_MIN)
        registry = registry_for(self.reconcilers, self._settings.kubeconfig, metrics_wall_s)
        stop_flag, ready_flag = asyncio.Event(), self._kopf_ready
        operator = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=kopf.OperatorSettings(),
                clusterwide=True,
                standalone=True,
                stop_flag=stop_flag,
                ready_flag=ready_flag,
            )
        )
        stop = asyncio.create_task(self._stopping.wait())
        signals = asyncio.create_task(self._signals_after(ready_flag))
        await asyncio.wait({operator, stop}, return_when=asyncio.FIRST_COMPLETED)
        signals.cancel()
        stop_flag.set()
        for task in tasks:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.0):  # wait_for would lose a cancellation that comes with the end
                await operator


def main(argv: Sequence[str] | None = None) -> None:
    settings = OperatorSettings.load("operator", argv)
    configure("operator", settings.log_level)
    logging.getLogger("kopf").setLevel(logging.WARNING)

    async def start() -> None:
        """Once the kubeconfig is there: the process that writes it may be starting beside us."""
        while settings.kubeconfig is not None and not settings.kubeconfig.exists():
            log.info("waiting for the kubeconfig", extra={"path": str(settings.kubeconfig)})
            await asyncio.sleep(0.2)
        await OperatorProcess(settings).run()

    asyncio.run(start())
