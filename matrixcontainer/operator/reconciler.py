"""What every kind's reconciler does: one way to look at a resource, one way to write what is found.

Whoever calls, a change that Kopf saw, its timer, or a change that the services report, ends in `reconcile(key)`. It
reads the resource itself, works on one at a time, and writes at the version it read: where somebody was faster, it
reads again and begins anew. So no spec older than the newest is ever acted on or reported. Run twice, it does nothing
the second time.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import httpx

from matrixcommon.model.errors import Conflict, MatrixError, NotFound, Unavailable
from matrixcommon.model.resource_key import name_of, project_of
from matrixcommon.model.resource_model import condition, is_true
from matrixcommon.telemetry.trace import continued
from matrixcontainer.client.client import Kind, KubeClient
from matrixcontainer.client.events import record
from matrixcontainer.kubeapi.admission.trace_context import ANNOTATION
from matrixcontainer.operator.status import reported_of

FINALIZER = "cloudmatrix.io/operator"
READS_MAX = 5
AGAIN_WALL_S = 2.0
GONE_WALL_S = 0.5
LATE_WALL_S = 60.0
"""How long a request that got no answer may still be carried out: it may lie with a process that stands still, or on
its way."""
LEFT_WALL_S = 600.0


class StaleRead(Conflict):
    """The resource has changed since it was read."""


def name_field(refused: MatrixError, sent_as: str = "spec") -> None:
    """Have a service's refusal begin with the field that it is about, as the resource has it.

    `sent_as` is where in a request to the service the spec is: a scenario's is its run's `definition`.
    """
    if refused.field and not refused.message.startswith(("spec.", "metadata.")):
        field = "metadata.name" if refused.field == "name" else f"spec.{refused.field.removeprefix(f'{sent_as}.')}"
        refused.message = f"{field}: {refused.message.removeprefix(f'{refused.field}: ')}"


class UnansweredRequests:
    """What may still be made though nobody waits for it: requests that were sent and got no answer, each for
    `LATE_WALL_S`.

    Another process may have sent some and ended before it heard of them. Of what it handled each counts as one, from
    when this process took over.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._until: dict[str, float] = {}
        self._inherited: frozenset[str] = frozenset()
        self._inherited_until = 0.0

    def note(self, key: str) -> None:
        """One for that resource got no answer."""
        self._forget()
        self._until[key] = self._wall() + LATE_WALL_S

    def inherit(self, uids: Iterable[str]) -> None:
        """Another process handled these until now."""
        self._inherited, self._inherited_until = frozenset(uids), self._wall() + LATE_WALL_S

    def may_arrive(self, key: str, uid: str) -> bool:
        """Whether one for that resource may still be carried out."""
        self._forget()
        return key in self._until or uid in self._inherited

    @property
    def any(self) -> bool:
        self._forget()
        return bool(self._until or self._inherited)

    def _forget(self) -> None:
        now = self._wall()
        self._until = {key: until for key, until in self._until.items() if now < until}
        if now >= self._inherited_until:
            self._inherited = frozenset()


class Reconciler(ABC):
    """One kind's. `reconcile` is the only way in; `converge` is what each kind adds."""

    kind: ClassVar[Kind]
    sent_as: ClassVar[str] = "spec"
    gone_status: ClassVar[Mapping[str, Any]] = {}
    """What the status says of a resource of which nothing is left, beside its state."""

    def __init__(self, kube: KubeClient, wall: Callable[[], float]) -> None:
        self.kube = kube
        self.wall = wall
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.unanswered = UnansweredRequests(wall)
        self._left: dict[str, float] = {}
        """Resources of which nothing is left, by uid, each since when: that they are gone is no news for a while."""

    def _note_left(self, uid: str) -> None:
        now = self.wall()
        self._left = {each: at for each, at in self._left.items() if now < at + LEFT_WALL_S} | {uid: now}

    async def reconcile(self, key: str) -> float | None:
        """Bring what stands behind the resource nearer to its spec, and report.

        Returns in how many wall seconds to come again; None where all is said, of a resource being deleted: where
        nothing is left of it. What cannot pass by itself is written into the status; raises MatrixError for the rest.
        """
        async with self.turn(key):
            for _ in range(READS_MAX):
                body = await self.read(key)
                if body is None:
                    return None
                with contextlib.suppress(StaleRead):
                    try:
                        with continued(asked_in(body), f"reconcile {self.kind.kind}", resource=key):
                            again_s = await self.converge(key, body)
                            late_s = self._may_come_late(key, body) if again_s is None else None
                            if body["metadata"].get("deletionTimestamp"):
                                await self._report_deleting(body, again_s is not None, late_s is not None)
                                if again_s is late_s is None:
                                    self._note_left(body["metadata"]["uid"])
                            return late_s if again_s is None else again_s
                    except StaleRead:
                        raise
                    except asyncio.CancelledError:
                        self.unanswered.note(key)
                        raise
                    except MatrixError as refused:
                        if isinstance(refused, Unavailable) and was_sent(refused):
                            self.unanswered.note(key)
                        name_field(refused, self.sent_as)
                        passes = refused.retryable or isinstance(refused, Conflict)
                        if not body["metadata"].get("deletionTimestamp"):
                            await self.report_refusal(key, body, refused, passes)
                            if not passes:
                                return None
                        raise
        raise StaleRead(f"{self.kind.kind} {key} changes faster than it can be reported")

    async def give_back(self, key: str, body: dict[str, Any]) -> float | None:
        """Delete what stood behind a resource that is gone, where somebody took its finalizers away before that was
        done; `body` is how it was last. Returns in how many wall seconds to come again; None where nothing is left, or
        another resource has the name by now: that has the rest. Raises MatrixError."""
        async with self.turn(key):
            if self._left.pop(body["metadata"]["uid"], None) is not None or await self.read(key) is not None:
                return None
            going = {**body["metadata"], "deletionTimestamp": body["metadata"].get("deletionTimestamp") or "gone"}
            return await self.converge(key, {**body, "metadata": going})

    def _may_come_late(self, key: str, body: dict[str, Any]) -> float | None:
        """In how many wall seconds to come again before a resource may go: what was asked for and got no answer could
        be made yet, and nobody would take that away then."""
        metadata = body["metadata"]
        waits = metadata.get("deletionTimestamp") and self.unanswered.may_arrive(key, metadata["uid"])
        return AGAIN_WALL_S if waits else None

    async def _report_deleting(self, body: dict[str, Any], goes: bool, late: bool) -> None:
        """Of a resource that is being deleted: that it is not Ready any more, and what it waits for once nothing is
        left of it. What others hold after that is looked at no more, so that is written as it stays."""
        others = [each for each in body["metadata"].get("finalizers") or [] if each != FINALIZER]
        state, status = "Deleting", dict[str, Any]()
        if late:
            message = (
                f"nothing is left of it; it goes once a request that got no answer cannot arrive any more, within "
                f"{LATE_WALL_S:g} s"
            )
        elif goes and is_true((body.get("status") or {}).get("conditions") or [], "Ready"):
            message = "what stands behind it is being deleted"
        elif others and not goes:
            message = f"nothing is left of it; it stays for its finalizers {', '.join(others)}"
            state, status = "Deleted", dict(self.gone_status)
        else:
            return
        conditions = self.condition(body, "Ready", False, state, message)
        await self.write_status(body, {"state": state, "conditions": conditions, **status})

    async def take_over(self) -> None:
        """To be called once nobody else reconciles, where somebody may have: what that one asked for may be on its way,
        and its memory of that is gone."""
        bodies, _ = await self.kube.list(self.kind)
        self.unanswered.inherit(body["metadata"]["uid"] for body in bodies)

    @abstractmethod
    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        """One pass over the resource as it was just read; what `reconcile` returns."""

    def turn(self, key: str) -> asyncio.Lock:
        """Held while somebody works on the resource."""
        return self._turns.setdefault(key, asyncio.Lock())

    async def read(self, key: str) -> dict[str, Any] | None:
        """The resource as it is now."""
        return await self.kube.find(self.kind, name_of(key), project_of(key) if self.kind.namespaced else None)

    async def write_status(self, body: dict[str, Any], status: dict[str, Any]) -> bool:
        """Write these fields of the status where they say anything new; whether they did.

        `body` shows what was written afterwards. Raises StaleRead where it is no longer the newest.
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
            return False  # deleted while we looked
        except Conflict as newer:
            raise StaleRead(newer.message) from newer
        metadata["resourceVersion"] = written["metadata"]["resourceVersion"]
        body["status"] = written["status"]
        return True

    async def report_ready(
        self, body: dict[str, Any], state: str, ready: bool, reason: str, message: str, *, warning: bool = False
    ) -> None:
        """A status that is a state and its Ready condition, and an event when it comes to say so."""
        conditions = self.condition(body, "Ready", ready, reason, message)
        generation = body["metadata"].get("generation", 1)
        status = {"state": state, "observedGeneration": generation, "conditions": conditions}
        if await self.write_status(body, status):
            await self.record_transition(body, "Warning" if warning else "Normal", reason, message)

    async def report_refusal(self, key: str, body: dict[str, Any], refused: MatrixError, passes: bool) -> None:
        """Write into the status why a spec is refused; `passes` for what will be tried again anyway."""
        if not passes:
            await self.report_ready(body, "Refused", False, refused.reason, refused.message, warning=True)

    def condition(
        self, body: dict[str, Any], type: str, status: bool, reason: str, message: str
    ) -> list[dict[str, Any]]:
        """The resource's conditions with that one set."""
        return condition(
            (body.get("status") or {}).get("conditions") or [],
            type,
            status,
            reason,
            message,
            generation=body["metadata"].get("generation", 1),
            now=self.wall(),
        )

    async def record_transition(self, body: dict[str, Any], type: str, reason: str, message: str) -> None:
        """An event on the resource, once for each time its Ready condition came to say so."""
        conditions = body["status"]["conditions"]
        since = next(each["lastTransitionTime"] for each in conditions if each["type"] == "Ready")
        await record(self.kube, reported_of(self.kind, body, type, reason, message, self.wall(), since))


def was_sent(refused: Unavailable) -> bool:
    """Whether what got no answer was sent and may be carried out: a connection that was refused carried nothing."""
    why = refused.__cause__
    return isinstance(why, httpx.TransportError) and not isinstance(why, (httpx.ConnectError, httpx.ConnectTimeout))


def asked_in(body: dict[str, Any]) -> str:
    """The trace context of the write that asked for this generation, as long as that has not been taken up."""
    metadata = body["metadata"]
    seen = (body.get("status") or {}).get("observedGeneration") == metadata.get("generation", 1)
    kept = (metadata.get("annotations") or {}).get(ANNOTATION, "")
    return "" if seen and not metadata.get("deletionTimestamp") else str(kept)
