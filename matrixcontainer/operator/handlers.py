"""Kopf's view of the operator: which change of which resource, and which of its timers, calls whose `reconcile`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kopf

from matrixcommon.model.errors import MatrixError, NotFound
from matrixcommon.model.resource_key import resolve
from matrixcompute.client import ComputeClient
from matrixcontainer.client.client import INFER, INSTANCE, Kind, KubeClient
from matrixcontainer.client.login import login
from matrixcontainer.operator.changed import AT_ONCE_MAX
from matrixcontainer.operator.decision import key_of_resource
from matrixcontainer.operator.declared import DisruptionBudgetReconciler, RecoveryPolicyReconciler
from matrixcontainer.operator.faults import FaultReconciler
from matrixcontainer.operator.infers import InferReconciler
from matrixcontainer.operator.instances import InstanceReconciler
from matrixcontainer.operator.ports import Faults, Inference
from matrixcontainer.operator.reconciler import AGAIN_WALL_S, FINALIZER, GONE_WALL_S, Reconciler
from matrixcontainer.operator.scale_in import ScaleIn
from matrixcontainer.operator.scaling import ScalingPolicyReconciler
from matrixcontainer.operator.scenarios import ScenarioReconciler

log = logging.getLogger(__name__)

RESYNC_WALL_S = 30.0
"""How often each resource is looked at though nobody reported a change: it heals what was changed behind our back."""
GIVEN_BACK_TRIES = 150
"""How often what a resource without its finalizer leaves is asked to go: for five minutes of services that are away."""


class NotAsSpecified(kopf.TemporaryError):
    """Nothing failed: the resource is to be seen again, as its status says."""


@dataclass
class Reconcilers:
    """The one of each kind, and what Kopf's indexes know of their resources once it runs."""

    instances: InstanceReconciler
    infers: InferReconciler
    policies: ScalingPolicyReconciler
    recovery: RecoveryPolicyReconciler
    budgets: DisruptionBudgetReconciler
    faults: FaultReconciler
    scenarios: ScenarioReconciler
    indexes: Mapping[str, Mapping[str, Iterable[str]]] = field(default_factory=dict)
    free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE_MAX))
    """Places for the handlers, which Kopf calls for all resources at once."""

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

    async def take_over(self) -> None:
        """Begin where another process may have been killed with requests under way."""
        for reconciler in self.all:
            with contextlib.suppress(NotFound):  # a kind that is not served has no resources
                await reconciler.take_over()

    @property
    def at_rest(self) -> bool:
        """Whether nothing that was asked for can still be carried out unseen."""
        return not any(reconciler.unanswered.any for reconciler in self.all)

    def keys(self, index: str, of: str | None = None) -> set[str]:
        """The keys in an index, all of them or those under `of`."""
        found = self.indexes.get(index, {})
        entries = found.values() if of is None else [found[of]] if of in found else []
        return {key for entry in entries for key in entry}


def reconcilers_for(
    kube: KubeClient,
    compute: ComputeClient,
    inference: Inference,
    faults: Faults,
    wall: Callable[[], float],
    endpoint: str,
) -> Reconcilers:
    """`endpoint` is where CloudMatrix-Infer answers, for users to read in the status; `wall` tells the wall's time."""
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


def _of(kind: Kind) -> tuple[str, str, str]:
    group, version = kind.api_version.split("/")
    return group, version, kind.plural


def registry_for(reconcilers: Reconcilers, kubeconfig: Path | None) -> kopf.OperatorRegistry:
    """All handlers."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def log_in(**_: Any) -> kopf.ConnectionInfo:
        return login(kubeconfig)

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **given: Any) -> None:
        settings.persistence.finalizer = FINALIZER
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="kopf.cloudmatrix.io")
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="kopf.cloudmatrix.io")
        settings.posting.enabled = False  # events come from what happened to the instance, not from our own log
        settings.execution.max_workers = 2
        # A timer at work when its resource is deleted: Kopf asks again whether it has ended, by default after a minute.
        settings.background.instant_exit_timeout = 0.1
        settings.background.cancellation_polling = GONE_WALL_S
        reconcilers.indexes = {name: given[name] for name in ("instances", "infers")}

    @kopf.index(*_of(INSTANCE), id="instances", registry=registry)
    def instances(body: kopf.Body, **_: Any) -> dict[str, str]:
        return {_key(body): _key(body)}

    @kopf.index(*_of(INFER), id="infers", registry=registry)
    def infers(body: kopf.Body, **_: Any) -> dict[str, str]:
        """CloudMatrixInfers by the instance they are on."""
        return {resolve(body.spec["instance"], body.metadata.namespace or ""): _key(body)}

    for reconciler in reconcilers.all:
        _handle(registry, reconciler, reconcilers.free)

    return registry


def _handle(registry: kopf.OperatorRegistry, reconciler: Reconciler, free: asyncio.Semaphore) -> None:
    """Whatever happens to a resource of that kind, its deletion included, is one function; and so is its timer."""

    async def reconcile(body: kopf.Body, **_: Any) -> None:
        try:
            async with free:
                again_s = await reconciler.reconcile(_key(body))
        except MatrixError as refused:
            raise kopf.TemporaryError(refused.message, delay=AGAIN_WALL_S) from refused
        if again_s is not None:
            raise NotAsSpecified(f"{_key(body)} is not as specified yet", delay=again_s)

    async def give_back(body: kopf.Body, **_: Any) -> None:
        for _again in range(GIVEN_BACK_TRIES):
            try:
                async with free:
                    again_s = await reconciler.give_back(_key(body), dict(body))
            except MatrixError as refused:
                log.warning("not given back yet", extra={"key": _key(body), "why": refused.message})
                again_s = AGAIN_WALL_S
            if again_s is None:
                return
            await asyncio.sleep(again_s)
        log.error("what stood behind a resource may be left", extra={"kind": reconciler.kind.kind, "key": _key(body)})

    where = _of(reconciler.kind)
    kopf.on.event(*where, id="give-back", when=_is_gone, registry=registry)(give_back)
    for change in (kopf.on.resume, kopf.on.create, kopf.on.update, kopf.on.delete):
        change(*where, id="reconcile", registry=registry)(reconcile)  # names the annotation of Kopf's progress
    kopf.timer(*where, interval=RESYNC_WALL_S, initial_delay=RESYNC_WALL_S, id="resync", registry=registry)(reconcile)


def _is_gone(type: str | None, **_: Any) -> bool:
    return type == "DELETED"


def _key(body: kopf.Body) -> str:
    return key_of_resource({"metadata": body.metadata})
