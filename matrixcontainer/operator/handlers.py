"""Kopf handlers: connect every change of a resource, and a resync timer, to the `reconcile` of its kind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kopf

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.resource_key import resolve
from matrixcompute.client import ComputeClient
from matrixcontainer.client.client import INFER, INSTANCE, Kind, KubeClient
from matrixcontainer.client.kopf_session import kopf_session
from matrixcontainer.client.login import login
from matrixcontainer.operator.decision import key_of_resource
from matrixcontainer.operator.declared import DisruptionBudgetReconciler, RecoveryPolicyReconciler
from matrixcontainer.operator.faults import FaultReconciler
from matrixcontainer.operator.infers import InferReconciler
from matrixcontainer.operator.instances import InstanceReconciler
from matrixcontainer.operator.ports import Faults, Inference
from matrixcontainer.operator.reconcile_queue import CONCURRENCY_MAX
from matrixcontainer.operator.reconciler import DELETION_POLL_WALL_S, FINALIZER, REQUEUE_AFTER_WALL_S, Reconciler
from matrixcontainer.operator.scale_in import ScaleIn
from matrixcontainer.operator.scaling import ScalingPolicyReconciler
from matrixcontainer.operator.scenarios import ScenarioReconciler

log = logging.getLogger(__name__)

RESYNC_WALL_S = 30.0
"""How often each resource is reconciled without a reported change, to repair drift that nothing reported."""
CLEANUP_ATTEMPTS_MAX = 150
"""Attempts to delete what a resource that lost its finalizer leaves behind: enough for services to be unavailable for
five minutes."""


class NotConverged(kopf.TemporaryError):
    """Not a failure: the resource has not converged yet, as its status says, and is reconciled again."""


@dataclass
class Reconcilers:
    """The reconciler of each kind, and Kopf's indexes of their resources once Kopf runs."""

    instances: InstanceReconciler
    infers: InferReconciler
    policies: ScalingPolicyReconciler
    recovery: RecoveryPolicyReconciler
    budgets: DisruptionBudgetReconciler
    faults: FaultReconciler
    scenarios: ScenarioReconciler
    indexes: Mapping[str, Mapping[str, Iterable[str]]] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENCY_MAX))
    """Limits concurrent handlers, which Kopf starts for all resources at once."""

    @property
    def all(self) -> tuple[Reconciler, ...]:
        return (
            self.instances,
            self.infers,
            self.policies,
            self.recovery,
            self.budgets,
            self.faults,
            self.scenarios,
        )

    def keys(self, index: str, key_filter: str | None = None) -> set[str]:
        """All keys in an index, or only those under `of`."""
        entries_by_key = self.indexes.get(index, {})
        entries = (
            entries_by_key.values()
            if key_filter is None
            else [entries_by_key[key_filter]]
            if key_filter in entries_by_key
            else []
        )
        return {key for entry in entries for key in entry}


def reconcilers_for(
    kube: KubeClient,
    compute: ComputeClient,
    inference: Inference,
    faults: Faults,
    wall: Callable[[], float],
    endpoint: str,
) -> Reconcilers:
    """`endpoint` is CloudMatrix-Infer's URL, shown in the status; `wall` returns the wall-clock time."""
    scale_in = ScaleIn(kube, compute, inference, wall)
    return Reconcilers(
        InstanceReconciler(kube, compute, scale_in, wall),
        InferReconciler(kube, compute, inference, scale_in, wall, endpoint),
        ScalingPolicyReconciler(kube, compute, wall),
        RecoveryPolicyReconciler(kube, compute, wall),
        DisruptionBudgetReconciler(kube, compute, wall),
        FaultReconciler(kube, faults, wall),
        ScenarioReconciler(kube, compute, wall),
    )


def _kopf_resource(kind: Kind) -> tuple[str, str, str]:
    group, version = kind.api_version.split("/")
    return group, version, kind.plural


def registry_for(reconcilers: Reconcilers, kubeconfig: Path | None) -> kopf.OperatorRegistry:
    """Register all handlers."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.AiohttpSession:
        return kopf_session(login(kubeconfig))

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **given: Any) -> None:
        settings.persistence.finalizer = FINALIZER
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="kopf.cloudmatrix.io")
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="kopf.cloudmatrix.io")
        settings.posting.enabled = False  # our events report what happened to the instance, not log lines
        settings.execution.max_workers = 2
        # When a resource is deleted, Kopf polls whether its running timer has exited: every minute by default.
        settings.background.instant_exit_timeout = 0.1
        settings.background.cancellation_polling = DELETION_POLL_WALL_S
        reconcilers.indexes = {name: given[name] for name in ("instances", "infers")}

    @kopf.index(*_kopf_resource(INSTANCE), id="instances", registry=registry)
    def instances(body: kopf.Body, **_: Any) -> dict[str, str]:
        return {_resource_key(body): _resource_key(body)}

    @kopf.index(*_kopf_resource(INFER), id="infers", registry=registry)
    def infers(body: kopf.Body, **_: Any) -> dict[str, str]:
        """Index CloudMatrixInfers by the key of their instance."""
        return {resolve(body.spec["instance"], body.metadata.namespace or ""): _resource_key(body)}

    for reconciler in reconcilers.all:
        _register_handlers(registry, reconciler, reconcilers.slots)

    return registry


def _register_handlers(registry: kopf.OperatorRegistry, reconciler: Reconciler, slots: asyncio.Semaphore) -> None:
    """Register one function for every change of a resource of that kind, deletion included, and for its timer."""

    async def reconcile(body: kopf.Body, **_: Any) -> None:
        try:
            async with slots:
                requeue_after_s = await reconciler.reconcile(_resource_key(body))
        except MatrixError as refused:
            raise kopf.TemporaryError(refused.message, delay=REQUEUE_AFTER_WALL_S) from refused
        if requeue_after_s is not None:
            raise NotConverged(f"{_resource_key(body)} has not converged yet", delay=requeue_after_s)

    async def clean_up(body: kopf.Body, **_: Any) -> None:
        for _attempt in range(CLEANUP_ATTEMPTS_MAX):
            try:
                async with slots:
                    requeue_after_s = await reconciler.clean_up(_resource_key(body), dict(body))
            except MatrixError as refused:
                log.warning("cleanup refused, will retry", extra={"key": _resource_key(body), "why": refused.message})
                requeue_after_s = REQUEUE_AFTER_WALL_S
            if requeue_after_s is None:
                return
            await asyncio.sleep(requeue_after_s)
        log.error(
            "cleanup of a deleted resource gave up", extra={"kind": reconciler.kind.kind, "key": _resource_key(body)}
        )

    resource = _kopf_resource(reconciler.kind)
    kopf.on.event(*resource, id="give-back", when=_is_deleted, registry=registry)(clean_up)
    for subscribe in (kopf.on.resume, kopf.on.create, kopf.on.update, kopf.on.delete):
        subscribe(*resource, id="reconcile", registry=registry)(reconcile)  # the id is part of Kopf's annotations
    kopf.timer(*resource, interval=RESYNC_WALL_S, initial_delay=RESYNC_WALL_S, id="resync", registry=registry)(
        reconcile
    )


def _is_deleted(type: str | None, **_: Any) -> bool:
    return type == "DELETED"


def _resource_key(body: kopf.Body) -> str:
    return key_of_resource({"metadata": body.metadata})
