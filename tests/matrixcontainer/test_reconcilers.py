"""What every reconciler does: reads by itself, one at a time, and never reports what it did not read last."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import kopf
import pytest

from matrixcommon.model.errors import Conflict, InvalidField, Unavailable
from matrixcontainer.client.client import INSTANCE
from matrixcontainer.kubeapi.meta.qualified_names import qualified_name_errors
from matrixcontainer.operator.handlers import reconcilers_for, registry_for
from matrixcontainer.operator.reconcile_queue import CONCURRENCY_MAX, ReconcileQueue
from matrixcontainer.operator.reconciler import (
    DELETION_POLL_WALL_S,
    READS_MAX,
    REQUEUE_AFTER_WALL_S,
    UNANSWERED_WALL_S,
    Reconciler,
    StaleRead,
    UnansweredRequests,
)
from matrixcontainer.operator.status import stopped_serving


class OneResource:
    """A Kubernetes API that holds one resource; `meanwhile` changes its spec before so many of the next writes."""

    def __init__(self) -> None:
        metadata = {"name": "one", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1}
        self.body: dict[str, Any] = {
            "apiVersion": INSTANCE.api_version,
            "kind": INSTANCE.kind,
            "metadata": metadata,
            "spec": {"nodes": 1},
        }
        self.meanwhile = 0
        self.events: list[dict[str, Any]] = []

    def _moved(self, **fields: Any) -> dict[str, Any]:
        metadata = self.body["metadata"]
        version = {"resourceVersion": str(int(metadata["resourceVersion"]) + 1)}
        self.body = {**self.body, "metadata": metadata | version, **fields}
        return self.body

    def scale(self, nodes: int) -> None:
        self._moved(spec={"nodes": nodes})
        self.body["metadata"]["generation"] += 1

    async def find(self, *_: Any) -> dict[str, Any]:
        return {**self.body, "metadata": dict(self.body["metadata"])}

    async def list(self, *_: Any) -> tuple[list[dict[str, Any]], str]:
        return [await self.find()], self.body["metadata"]["resourceVersion"]

    async def merge(self, _kind: Any, _name: str, patch: dict[str, Any], *_: Any) -> dict[str, Any]:
        if self.meanwhile:
            self.meanwhile -= 1
            self.scale(self.body["spec"]["nodes"] + 1)
        if patch["metadata"]["resourceVersion"] != self.body["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified")
        return self._moved(status={**self.body.get("status", {}), **patch["status"]})

    async def create(self, _kind: Any, event: dict[str, Any], _namespace: str) -> None:
        self.events.append(event)


class Echo(Reconciler):
    """Says in its status how many nodes it read; refuses what it is told to."""

    kind = INSTANCE
    refusal: BaseException | None = None
    at_once = most_at_once = 0

    async def converge(self, key: str, body: dict[str, Any]) -> float | None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.refusal is not None:
            raise self.refusal
        await self.report_ready(body, f"{body['spec']['nodes']} nodes", True, "Seen", "as it was read")
        return None


def echo() -> tuple[OneResource, Echo]:
    kube = OneResource()
    return kube, Echo(kube, lambda: 0.0)  # type: ignore[arg-type]


async def test_a_spec_that_changes_before_the_write_is_read_again() -> None:
    kube, reconciler = echo()
    kube.meanwhile = 2
    assert await reconciler.reconcile("one") is None
    assert kube.body["status"]["state"] == "3 nodes"
    assert kube.body["status"]["observedGeneration"] == kube.body["metadata"]["generation"] == 3
    assert len(kube.events) == 1, "only what was written is recorded"


async def test_resource_that_keeps_changing_is_retried_later() -> None:
    kube, reconciler = echo()
    kube.meanwhile = READS_MAX
    with pytest.raises(StaleRead):
        await reconciler.reconcile("one")
    assert "status" not in kube.body


async def test_concurrent_reconciles_are_serialised() -> None:
    kube, reconciler = echo()
    await asyncio.gather(*(reconciler.reconcile("one") for _ in range(5)))
    assert reconciler.most_at_once == 1
    assert kube.body["metadata"]["resourceVersion"] == "2"


async def test_permanent_refusals_are_reported_and_temporary_ones_raised() -> None:
    kube, reconciler = echo()
    reconciler.refusal = InvalidField("no such level")
    assert await reconciler.reconcile("one") is None
    assert kube.body["status"]["state"] == "Refused"
    assert kube.body["status"]["conditions"][0]["message"] == "no such level"
    reconciler.refusal = Unavailable("away")
    with pytest.raises(Unavailable):
        await reconciler.reconcile("one")
    kube.body["metadata"]["deletionTimestamp"] = "now"
    reconciler.refusal = InvalidField("not while others need it")
    with pytest.raises(InvalidField):
        await reconciler.reconcile("one")


def without_answer(why: httpx.HTTPError) -> Unavailable:
    refused = Unavailable("away")
    refused.__cause__ = why
    return refused


@pytest.mark.parametrize(
    ("why", "waits"),
    [
        (httpx.ReadTimeout("no answer in time"), True),
        (httpx.ReadError("cut off"), True),
        (httpx.ConnectError("refused"), False),
        (httpx.ConnectTimeout("nobody there"), False),
    ],
)
async def test_resource_is_kept_while_an_unanswered_request_may_take_effect(why: httpx.HTTPError, waits: bool) -> None:
    kube, now = OneResource(), [100.0]
    reconciler = Echo(kube, lambda: now[0])  # type: ignore[arg-type]
    reconciler.refusal = without_answer(why)
    with pytest.raises(Unavailable):
        await reconciler.reconcile("one")
    reconciler.refusal = None
    assert await reconciler.reconcile("one") is None, "it lives, and nothing is waited for"
    kube.body["metadata"]["deletionTimestamp"] = "now"
    assert await reconciler.reconcile("one") == (REQUEUE_AFTER_WALL_S if waits else None)
    if waits:
        assert kube.body["status"]["state"] == "Deleting"
        (ready,) = kube.body["status"]["conditions"]
        assert (ready["status"], ready["reason"]) == ("False", "Deleting")
        assert "cleanup is done" in ready["message"], "it says what it waits for"
    now[0] += UNANSWERED_WALL_S
    assert await reconciler.reconcile("one") is None


async def test_cancelled_request_counts_as_unanswered() -> None:
    kube, reconciler = echo()
    reconciler.refusal = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await reconciler.reconcile("one")
    reconciler.refusal = None
    kube.body["metadata"]["deletionTimestamp"] = "now"
    assert await reconciler.reconcile("one") == REQUEUE_AFTER_WALL_S


def test_unanswered_requests_expire() -> None:
    now = [100.0]
    unanswered = UnansweredRequests(lambda: now[0])
    for each in range(1000):
        unanswered.add(f"r{each}")
        now[0] += 1.0
    assert len(unanswered._expires_at) == UNANSWERED_WALL_S
    assert unanswered.may_take_effect("r999")
    now[0] += UNANSWERED_WALL_S
    assert not unanswered.may_take_effect("r999")


async def test_answered_refusal_delays_no_deletion() -> None:
    kube, reconciler = echo()
    reconciler.refusal = Unavailable("the database takes no writes")
    with pytest.raises(Unavailable):
        await reconciler.reconcile("one")
    reconciler.refusal = None
    kube.body["metadata"]["deletionTimestamp"] = "now"
    assert await reconciler.reconcile("one") is None


@pytest.mark.parametrize(
    ("spec_field", "field", "message", "shown"),
    [
        ("spec", "planes.ub.floor", "an NPU has 392 GB/s", "spec.planes.ub.floor: an NPU has 392 GB/s"),
        ("spec", "nodes", "nodes: at most 48", "spec.nodes: at most 48"),
        ("spec", "spec.nodes", "spec.nodes: at most 48", "spec.nodes: at most 48"),
        ("spec", "name", "'a.b' is not a valid name", "metadata.name: 'a.b' is not a valid name"),
        ("definition", "definition.targets.a", "it selects nothing", "spec.targets.a: it selects nothing"),
        ("definition", "definition.seed", "definition.seed: at least 0", "spec.seed: at least 0"),
        ("definition", "name", "'a.b' is not a valid name", "metadata.name: 'a.b' is not a valid name"),
    ],
)
async def test_refusal_is_prefixed_with_the_resource_field(
    spec_field: str, field: str, message: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube, reconciler = echo()
    monkeypatch.setattr(Echo, "spec_field", spec_field)
    reconciler.refusal = InvalidField(message, field=field)
    await reconciler.reconcile("one")
    assert kube.body["status"]["conditions"][0]["message"] == shown


async def test_temporarily_refused_resource_is_requeued() -> None:
    kube, reconciler = echo()
    changed = ReconcileQueue(reconciler)
    reconciler.refusal = Unavailable("away")
    changed.add(["one", "one"])
    assert await changed.reconcile() == "1 resources reconciled, 1 requeued"
    reconciler.refusal = None
    assert await changed.reconcile() == "1 resources reconciled, 0 requeued"
    assert await changed.reconcile() == "0 resources reconciled, 0 requeued"
    assert kube.body["status"]["state"] == "1 nodes"


async def test_an_error_in_one_queued_resource_does_not_hold_up_the_others() -> None:
    kube, reconciler = echo()
    changed = ReconcileQueue(reconciler)
    reconciler.refusal = ValueError("nobody thought of that")
    changed.add(["one", "two"])
    assert await changed.reconcile() == "2 resources reconciled, 2 requeued"
    reconciler.refusal = None
    assert await changed.reconcile() == "2 resources reconciled, 0 requeued"
    assert kube.body["status"]["state"] == "1 nodes"


def test_urgent_change_is_reconciled_immediately() -> None:
    _, reconciler = echo()
    changed, nudged = ReconcileQueue(reconciler), list[bool]()
    changed.nudge = lambda *, urgent: nudged.append(urgent)
    changed.add(["one"])
    for reason in ("NotServing", "Updating"):
        view = {"conditions": [{"type": "Ready", "status": "False", "reason": reason}]}
        changed.add(["one"], stopped_serving(view))
    assert nudged == [False, True, False]


def test_handler_ids_are_valid_annotation_names() -> None:
    kube: Any = OneResource()
    registry = registry_for(reconcilers_for(kube, kube, kube, kube, lambda: 0.0, ""), None)
    handlers = [*registry._changing.get_all_handlers(), *registry._spawning.get_all_handlers()]
    assert {handler.id for handler in handlers} == {"reconcile", "resync"}
    assert [qualified_name_errors(f"kopf.cloudmatrix.io/{handler.id}") for handler in handlers if handler.id] == [
        [] for _ in handlers
    ]


def test_running_timer_does_not_delay_a_deletion() -> None:
    """Kopf looks again whether a timer has ended; by default a minute later, which a user would wait for."""
    kube: Any = OneResource()
    registry = registry_for(reconcilers_for(kube, kube, kube, kube, lambda: 0.0, ""), None)
    settings = kopf.OperatorSettings()
    for handler in registry._activities.get_all_handlers():
        if handler.activity == "startup":
            handler.fn(settings=settings, instances={}, infers={})
    assert settings.background.cancellation_polling <= DELETION_POLL_WALL_S


async def test_concurrent_reconciles_are_limited() -> None:
    kube: Any = OneResource()
    reconcilers = reconcilers_for(kube, kube, kube, kube, lambda: 0.0, "")
    at_work, most, seen = 0, 0, 0

    async def reconcile(_: str) -> None:
        nonlocal at_work, most, seen
        at_work, seen = at_work + 1, seen + 1
        most = max(most, at_work)
        for _ in range(3):  # requests
            await asyncio.sleep(0)
        at_work -= 1

    for each in reconcilers.all:
        each.reconcile = reconcile  # type: ignore[method-assign,assignment]
    registry = registry_for(reconcilers, None)
    changed = [each.fn for each in registry._changing.get_all_handlers() if each.id == "reconcile"]
    metadata = {"name": "one", "namespace": "default", "uid": "u"}
    bodies = [kopf.Body({"metadata": metadata | {"name": f"n{each}"}}) for each in range(100)]
    await asyncio.gather(*(call(body=body) for call in changed for body in bodies))
    assert (most, seen) == (CONCURRENCY_MAX, len(changed) * len(bodies))


class Served(OneResource):
    """Several CloudMatrixInfers; `statistics` of the one that is away cannot be had."""

    def __init__(self, *names: str, away: str) -> None:
        super().__init__()
        status = {"pods": 1}
        self.bodies = [{**self.body, "metadata": self.body["metadata"] | {"name": n}, "status": status} for n in names]
        self.away, self.measured = away, list[str]()

    async def list(self, *_: Any) -> tuple[list[dict[str, Any]], str]:
        return self.bodies, "1"

    async def statistics(self, key: str) -> dict[str, Any]:
        if key == self.away:
            raise Unavailable("infer does not answer")
        return {"measuredS": 30.0, "windowS": 30.0}

    async def merge(self, _kind: Any, name: str, patch: dict[str, Any], *_: Any) -> dict[str, Any]:
        assert "metrics" in patch["status"]
        self.measured.append(name)
        return {**self.body, "status": patch["status"]}


async def test_an_error_in_one_deployment_does_not_hold_up_metrics_of_others() -> None:
    kube: Any = Served("one", "two", "three", "new", "gone", away="two")
    kube.bodies[3]["status"] = {}
    kube.bodies[4]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    reconcilers = reconcilers_for(kube, kube, kube, kube, lambda: 0.0, "")
    assert await reconcilers.infers.update_metrics() == "3 deployments measured"
    assert kube.measured == ["one", "three"]
