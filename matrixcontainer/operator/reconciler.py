"""The base of every kind's reconciler: how it reads a resource, converges it and writes its status.

Every trigger (a change that Kopf saw, Kopf's timer, a change reported by the services) ends in `reconcile(key)`. It
reads the resource itself, handles one call per resource at a time, and writes at the resourceVersion that it read; on a
conflict it reads again and starts over. So only the newest spec is ever acted on or reported. Reconciling is
idempotent: a second run does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import httpx

from matrixcommon.model.errors import Conflict, MatrixError, NotFound, Unavailable
from matrixcommon.model.resource_key import name_of, project_of
from matrixcommon.model.resource_model import is_condition_true, set_condition
from matrixcommon.telemetry.trace import resumed_span
from matrixcontainer.client.client import Kind, KubeClient
from matrixcontainer.client.events import record_event
from matrixcontainer.kubeapi.admission.trace_context import ANNOTATION
from matrixcontainer.operator.status import resource_event

FINALIZER = "cloudmatrix.io/operator"
READS_MAX = 5
REQUEUE_AFTER_WALL_S = 2.0
DELETION_POLL_WALL_S = 0.5
UNANSWERED_WALL_S = 60.0
"""How long an unanswered request may still take effect: it may be in transit, or queued in a process that hangs."""
CLEANED_UP_WALL_S = 600.0


class StaleRead(Conflict):
    """The resource has changed since it was read."""


def prefix_field(refused: MatrixError, spec_field: str = "spec") -> None:
    """Prefix a service's refusal with the field it is about, as named in the resource.

    `spec_field` is where the request to the service holds the spec: for a scenario, the `definition` of its run.
    """
    if refused.field and not refused.message.startswith(("spec.", "metadata.")):
        field = "metadata.name" if refused.field == "name" else f"spec.{refused.field.removeprefix(f'{spec_field}.')}"
        refused.message = f"{field}: {refused.message.removeprefix(f'{refused.field}: ')}"


class UnansweredRequests:
    """Requests that were sent but not answered, each of which may still take effect for `UNANSWERED_WALL_S`.

    Those of an earlier operator process do not matter: once a service has answered this one, it refuses them (`Fence`).
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._expires_at: dict[str, float] = {}

    def add(self, key: str) -> None:
        """Record that a request for that resource was not answered."""
        self._expire()
        self._expires_at[key] = self._wall() + UNANSWERED_WALL_S

    def may_take_effect(self, key: str) -> bool:
        """Whether an unanswered request for that resource may still take effect."""
        self._expire()
        return key in self._expires_at

    def _expire(self) -> None:
        now = self._wall()
        self._expires_at = {key: until for key, until in self._expires_at.items() if now < until}


class Reconciler(ABC):
    """Reconciles the resources of one kind. Callers use `reconcile`; each kind implements `converge`."""

    kind: ClassVar[Kind]
    spec_field: ClassVar[str] = "spec"
    deleted_status: ClassVar[Mapping[str, Any]] = {}
    """Status fields, besides the state, of a resource of which nothing is left."""

    def __init__(self, kube: KubeClient, wall: Callable[[], float]) -> None:
        self.kube = kube
        self.wall = wall
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.unanswered = UnansweredRequests(wall)
        self._cleaned_up: dict[str, float] = {}
        """Resources of which nothing is left: uid to the time when that was established. Lets `clean_up` skip them for
        `CLEANED_UP_WALL_S`."""

    def _mark_cleaned_up(self, uid: str) -> None:
        now = self.wall()
        self._cleaned_up = {key: at for key, at in self._cleaned_up.items() if now < at + CLEANED_UP_WALL_S} | {
            uid: now
        }

    async def reconcile(self, key: str) -> float | None:
        """Bring the resource's object in the services closer to its spec, and write the status.

        Returns in how many wall-clock seconds to call again, or None when done (for a resource being deleted: when
        nothing is left of it). A permanent refusal is written into the status; raises MatrixError for any other.
        """
        async with self.lock_for(key):
            for _ in range(READS_MAX):
                body = await self.read(key)
                if body is None:
                    return None
                with contextlib.suppress(StaleRead):
                    return await self._reconcile_read(key, body)
        raise StaleRead(f"{self.kind.kind} {key} changes faster than it can be reported")

    async def _reconcile_read(self, key: str, body: dict[str, Any]) -> float | None:
        """Reconcile the resource as just read. Raises StaleRead if it has changed since."""
        try:
            with resumed_span(trace_context(body), f"reconcile {self.kind.kind}", resource=key):
                requeue_after_s = await self.converge(key, body)
                unanswered_delay_s = self._unanswered_delay(key, body) if requeue_after_s is None else None
                if body["metadata"].get("deletionTimestamp"):
                    await self._report_deleting(body, requeue_after_s is not None, unanswered_delay_s is not None)
                    if requeue_after_s is None and unanswered_delay_s is None:
                        self._mark_cleaned_up(body["metadata"]["uid"])
                return unanswered_delay_s if requeue_after_s is None else requeue_after_s
        except StaleRead:
            raise
        except asyncio.CancelledError:
            self.unanswered.add(key)
            raise
        except MatrixError as refused:
            if isinstance(refused, Unavailable) and was_sent(refused):
                self.unanswered.add(key)
            prefix_field(refused, self.spec_field)
            temporary = refused.retryable or isinstance(refused, Conflict)
            if not body["metadata"].get("deletionTimestamp"):
                await self.report_refusal(key, body, refused, temporary)
                if not temporary:
                    return None
            raise

    async def clean_up(self, key: str, body: dict[str, Any]) -> float | None:
        """Delete what a deleted resource leaves behind, in case its finalizer was removed before that was done.

        `body` is the resource's last state. Returns in how many wall-clock seconds to call again; None when nothing is
        left, or when a new resource has the name and takes over the rest. Raises MatrixError."""
        async with self.lock_for(key):
            if self._cleaned_up.pop(body["metadata"]["uid"], None) is not None or await self.read(key) is not None:
                return None
            metadata = {**body["metadata"], "deletionTimestamp": body["metadata"].get("deletionTimestamp") or "gone"}
            return await self.converge(key, {**body, "metadata": metadata})

    def _unanswered_delay(self, key: str, body: dict[str, Any]) -> float | None:
        """In how many wall-clock seconds to check again before a resource may be removed, because an unanswered request
        could still take effect and nothing would clean up after it; None if it may be removed."""
        pending = body["metadata"].get("deletionTimestamp") and self.unanswered.may_take_effect(key)
        return REQUEUE_AFTER_WALL_S if pending else None

    async def _report_deleting(self, body: dict[str, Any], in_progress: bool, unanswered: bool) -> None:
        """Report on a resource being deleted: that it is no longer Ready, and what still delays its removal once
        nothing is left of it. Where other finalizers hold it, this is the last reconcile and so the final status."""
        other_finalizers = [each for each in body["metadata"].get("finalizers") or [] if each != FINALIZER]
        state, status = "Deleting", dict[str, Any]()
        if unanswered:
            message = (
                f"cleanup is done; waiting up to {UNANSWERED_WALL_S:g} s until a request that was not answered can no "
                "longer take effect"
            )
        elif in_progress and is_condition_true((body.get("status") or {}).get("conditions") or [], "Ready"):
            message = "deletion is in progress"
        elif other_finalizers and not in_progress:
            message = f"cleanup is done; waiting for other finalizers: {', '.join(other_finalizers)}"
            state, status = "Deleted", dict(self.deleted_status)
        else:
            return
        conditions = self.condition(body, "Ready", False, state, message)
        await self.write_status(body, {"state": state, "conditions": conditions, **status})

    @abstractmethod
    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        """Do one pass over the resource as just read; return what `reconcile` returns."""

    def lock_for(self, key: str) -> asyncio.Lock:
        """The lock that serialises work on the resource."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def read(self, key: str) -> dict[str, Any] | None:
        """Read the resource; None if it does not exist."""
        return await self.kube.find(self.kind, name_of(key), project_of(key) if self.kind.namespaced else None)

    async def write_status(self, body: dict[str, Any], status: dict[str, Any]) -> bool:
        """Write these status fields if any has changed; return whether anything was written.

        Updates `body` with what was written. Raises StaleRead if the resource has changed since it was read.
        """
        current, metadata = body.get("status") or {}, body["metadata"]
        if all(current.get(key) == value for key, value in status.items()):
            return False
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        try:
            written = await self.kube.merge(
                self.kind,
                metadata["name"],
                patch,
                metadata.get("namespace") if self.kind.namespaced else None,
                "status",
            )
        except NotFound:
            return False  # deleted meanwhile
        except Conflict as newer:
            raise StaleRead(newer.message) from newer
        metadata["resourceVersion"] = written["metadata"]["resourceVersion"]
        body["status"] = written["status"]
        return True

    async def report_ready(
        self, body: dict[str, Any], state: str, ready: bool, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """Write the state and the Ready condition, and record an event if they changed."""
        conditions = self.condition(body, "Ready", ready, reason, message)
        generation = body["metadata"].get("generation", 1)
        status = {"state": state, "observedGeneration": generation, "conditions": conditions}
        if await self.write_status(body, status):
            await self.record_transition(body, "Warning" if warning else "Normal", reason, message)

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, temporary: bool) -> None:
        """Write into the status why a spec is refused; `temporary`: the refusal may be temporary and is retried."""
        if not temporary:
            await self.report_ready(body, "Refused", False, refused.reason, refused.message, warning=True)

    def condition(
        self, body: dict[str, Any], type: str, status: bool, reason: str, message: str
    ) -> list[dict[str, Any]]:
        """The resource's conditions with this one set."""
        return set_condition(
            (body.get("status") or {}).get("conditions") or [],
            type,
            status,
            reason,
            message,
            generation=body["metadata"].get("generation", 1),
            now=self.wall(),
        )

    async def record_transition(self, body: dict[str, Any], type: str, reason: str, message: str) -> None:
        """Record an event on the resource, once per transition of its Ready condition."""
        conditions = body["status"]["conditions"]
        since = next(each["lastTransitionTime"] for each in conditions if each["type"] == "Ready")
        await record_event(self.kube, resource_event(self.kind, body, type, reason, message, self.wall(), since))


def was_sent(refused: Unavailable) -> bool:
    """Whether an unanswered request was sent and so may take effect; not if the connection was never established."""
    cause = refused.__cause__
    return isinstance(cause, httpx.TransportError) and not isinstance(cause, (httpx.ConnectError, httpx.ConnectTimeout))


def trace_context(body: dict[str, Any]) -> str:
    """The trace context of the write that produced this generation; empty once that generation was observed."""
    metadata = body["metadata"]
    observed = (body.get("status") or {}).get("observedGeneration") == metadata.get("generation", 1)
    carrier = (metadata.get("annotations") or {}).get(ANNOTATION, "")
    return "" if observed and not metadata.get("deletionTimestamp") else str(carrier)
