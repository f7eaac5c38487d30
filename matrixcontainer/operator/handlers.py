"""Kopf's view of the operator: which change of which resource calls which reconcile function, and what to do when it is
refused.

What may pass by itself is tried again soon; what cannot is written into the status and left until the spec changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from matrixcommon.model.errors import Conflict, MatrixError
from matrixcontainer.client.client import FAULT, INFER, INSTANCE, Kind, KubeAccess
from matrixcontainer.operator.decision import key_of_resource
from matrixcontainer.operator.reconciler import Operator

AGAIN_WALL_S = 2.0
GONE_WALL_S = 0.5
FINALIZER = "cloudmatrix.io/operator"


def _of(kind: Kind) -> tuple[str, str, str]:
    group, version = kind.api_version.split("/")
    return group, version, kind.plural


def registry_for(operator: Operator, access: KubeAccess, nudge: Callable[[], None]) -> kopf.OperatorRegistry:
    """All handlers over one operator. `nudge` asks for the status reports to run soon."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=access.ca_file,
            token=access.token,
            scheme="Bearer" if access.token else None,
            certificate_path=access.certificate_file,
            private_key_path=access.key_file,
        )

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.persistence.finalizer = FINALIZER
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="kopf.cloudmatrix.io")
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="kopf.cloudmatrix.io")
        settings.posting.enabled = False  # events come from what happened to the instance, not from our own log
        settings.execution.max_workers = 2

    @kopf.on.resume(*_of(INSTANCE), registry=registry)
    @kopf.on.create(*_of(INSTANCE), registry=registry)
    @kopf.on.update(*_of(INSTANCE), registry=registry)
    async def instance_changed(body: kopf.Body, **_: Any) -> None:
        await _perform(lambda: operator.reconcile_instance(_plain(body)), body)
        nudge()

    @kopf.on.delete(*_of(INSTANCE), registry=registry)
    async def instance_deleted(body: kopf.Body, **_: Any) -> None:
        await _gone(lambda: operator.delete_instance(key_of_resource(_plain(body))), body)

    @kopf.on.resume(*_of(INFER), registry=registry)
    @kopf.on.create(*_of(INFER), registry=registry)
    @kopf.on.update(*_of(INFER), registry=registry)
    async def infer_changed(body: kopf.Body, **_: Any) -> None:
        await _perform(lambda: operator.reconcile_infer(_plain(body)), body)
        nudge()

    @kopf.on.delete(*_of(INFER), registry=registry)
    async def infer_deleted(body: kopf.Body, **_: Any) -> None:
        await _gone(lambda: operator.delete_infer(_plain(body)), body)

    @kopf.on.resume(*_of(FAULT), registry=registry)
    @kopf.on.create(*_of(FAULT), registry=registry)
    async def fault_changed(body: kopf.Body, **_: Any) -> None:
        await _perform(lambda: operator.inject_fault(_plain(body)), body)

    @kopf.on.delete(*_of(FAULT), registry=registry)
    async def fault_deleted(body: kopf.Body, **_: Any) -> None:
        await _perform(lambda: operator.clear_fault(str(body.metadata.name)), body)

    async def _perform(action: Callable[[], Awaitable[object]], body: kopf.Body) -> None:
        try:
            await action()
        except MatrixError as refused:
            if refused.retryable or isinstance(refused, Conflict):
                raise kopf.TemporaryError(refused.message, delay=AGAIN_WALL_S) from refused
            await operator.report_refusal(_kind(body), _plain(body), refused)
            raise kopf.PermanentError(refused.message) from refused

    async def _gone(action: Callable[[], Awaitable[bool]], body: kopf.Body) -> None:
        try:
            done = await action()
        except MatrixError as refused:
            raise kopf.TemporaryError(refused.message, delay=AGAIN_WALL_S) from refused
        nudge()
        if not done:
            raise kopf.TemporaryError(f"{body.metadata.name} is being taken down", delay=GONE_WALL_S)

    return registry


def _plain(body: kopf.Body) -> dict[str, Any]:
    """Kopf's read-only view as the document it shows."""

    def plain(value: Any) -> Any:
        if hasattr(value, "items"):
            return {key: plain(child) for key, child in value.items()}
        return [plain(child) for child in value] if isinstance(value, list | tuple) else value

    return {**plain(body), "apiVersion": body["apiVersion"], "kind": body["kind"]}


def _kind(body: kopf.Body) -> Kind:
    return next(kind for kind in (INSTANCE, INFER, FAULT) if kind.kind == body["kind"])
