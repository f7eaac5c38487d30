"""The status of a CloudMatrixInstance, built from what the services report: overall, per member and per plane.

Conditions on Kubernetes objects carry wall-clock time (clients compute ages from it), so a condition's transition is
dated when the operator saw it.
"""

from __future__ import annotations

from typing import Any

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_model import condition
from matrixcompute.contract import NOT_SERVING, CancelledChange, InstanceView
from matrixcontainer.client.client import Kind
from matrixcontainer.client.events import event_body, event_on
from matrixcontainer.operator.decision import INSTANCE_LABEL, MANAGED_BY, cancelled_change, lease_ended, next_action

SYNCED = "Synced"
"""Type of the condition that says why the instance does not follow its spec; present only while that is so."""

NOTHING_LEFT: dict[str, Any] = {"readyNodes": 0, "readySpares": 0, "members": [], "slices": []}
"""Status fields of an instance that does not exist."""

HEALTHY = {"Healthy": True, "SubHealthy": True, "Unhealthy": False}
"""Status of a member's Healthy condition by its health; Unknown for any other."""


def serves_no_more(view: dict[str, Any]) -> bool:
    """Whether an instance, as MatrixCompute shows it, has lost what it needs to serve."""
    return any(each["type"] == "Ready" and each["reason"] == NOT_SERVING for each in view.get("conditions", ()))


def instance_status(
    body: dict[str, Any], observed: InstanceView | None, wall_now: float, refused: MatrixError | None = None
) -> dict[str, Any]:
    """The status of a CloudMatrixInstance. `observedGeneration` advances once the instance follows that generation,
    which never happens if the spec was `refused`."""
    before = body.get("status") or {}
    generation = body["metadata"].get("generation", 1)
    conditions = before.get("conditions") or []
    if observed is None:
        ended = lease_ended(body)
        why = ("LeaseEnded", "the lease has ended; change the spec to start a new one")
        if not ended:
            why = ("Pending", "MatrixCompute has not accepted the instance yet")
        kept = ("Ready", "Progressing") if ended else ("Ready",)
        conditions = [each for each in conditions if each["type"] in kept]  # the others described the old instance
        for type in kept:
            conditions = condition(conditions, type, False, *why, generation=generation, now=wall_now)
        return {"state": "Ended" if ended else "Pending", **NOTHING_LEFT, "conditions": conditions}
    cancelled = cancelled_change(body, observed) if refused is None else None
    settled = refused is None and cancelled is None and observed.generation == observed.observed_generation
    settled = settled and next_action(body, observed).verb == "Nothing"
    seen = {each["type"] for each in conditions}
    of = (generation if settled else before.get("observedGeneration", 0)) or generation
    for current in observed.conditions:
        status = {"True": True, "False": False}.get(current.status)
        conditions = condition(
            conditions, current.type, status, current.reason, current.message, generation=of, now=wall_now
        )
        seen.discard(current.type)
    not_followed = ("Cancelled", cancelled_message(cancelled)) if cancelled is not None else None
    if refused is not None:
        not_followed = refused.reason, f"{refused.message}; the instance is unchanged"
    if not_followed is not None:
        conditions = condition(conditions, SYNCED, False, *not_followed, generation=generation, now=wall_now)
        seen.discard(SYNCED)
    return {
        "state": observed.state,
        "observedGeneration": generation if settled else before.get("observedGeneration", 0),
        "readyNodes": observed.ready_nodes,
        "readySpares": sum(member.role == "spare" and member.ready for member in observed.members),
        "selector": f"{INSTANCE_LABEL}={observed.name}",
        "operation": observed.operation or "",
        "repairs": observed.repairs,
        "expiresAt": observed.expires_at or "",
        "members": _members(before, observed, of, wall_now),
        "slices": _planes(before, observed, of, wall_now),
        "conditions": [each for each in conditions if each["type"] not in seen],
        **({"lastRecovery": observed.last_recovery.wire()} if observed.last_recovery is not None else {}),
    } | ({"cancelled": {"operation": cancelled.operation, "generation": generation}} if cancelled is not None else {})


def cancelled_message(cancelled: CancelledChange) -> str:
    return f"operation {cancelled.operation} was cancelled: the instance is unchanged until the spec changes"


def planned_status(
    body: dict[str, Any],
    observed: InstanceView | None,
    plan: InstanceView | None,
    refused: MatrixError | None,
    wall_now: float,
) -> dict[str, Any]:
    """The status of a dry run: whether the instance fits now and where, or why not. Nothing is changed.

    For an existing instance the plan also lists the moves, by rank.
    """
    generation = body["metadata"].get("generation", 1)
    reported: dict[str, Any] = {"generation": generation, "fits": plan is not None, "plannedAt": timestamp(wall_now)}
    if plan is not None:
        reported["members"] = [
            {"node": member.node, "cabinet": member.cabinet, "role": member.role} for member in plan.members
        ]
        reported["cabinets"] = len({member.cabinet for member in plan.members})
        reported["preempts"] = plan.preempts
        if observed is not None:
            here, there = _places(observed), _places(plan)
            reported["moves"] = [
                {"rank": rank, "from": here.get(rank, ""), "to": there.get(rank, "")}
                for rank in sorted(here.keys() | there.keys())
                if here.get(rank) != there.get(rank)
            ]
    elif refused is not None:
        reported |= {"reason": refused.reason, "message": refused.message, "blocking": refused.blocking}
    if observed is not None:
        return instance_status(body, observed, wall_now) | {"observedGeneration": generation, "plan": reported}
    conditions = condition(
        (body.get("status") or {}).get("conditions") or [],
        "Scheduled",
        False,
        "DryRun" if refused is None else refused.reason,
        "the instance fits; remove dryRun to create it" if refused is None else refused.message,
        generation=generation,
        now=wall_now,
    )
    return {"state": "Planned", "observedGeneration": generation, "plan": reported, "conditions": conditions}


def _members(before: dict[str, Any], observed: InstanceView, of: int, wall_now: float) -> list[dict[str, Any]]:
    """All nodes of the instance with their conditions."""
    current = {each["node"]: each.get("conditions") or [] for each in before.get("members") or []}
    reported = []
    for member in observed.members:
        conditions = current.get(member.node, [])
        for type, status, reason, message in (
            ("Ready", member.ready, member.state, f"the node is {member.state}, its agent is {member.agent}"),
            (
                "Healthy",
                HEALTHY.get(member.health),
                member.health,
                f"the hardware is {member.health}{member.fault and ': '}{member.fault}",
            ),
        ):
            conditions = condition(conditions, type, status, reason, message, generation=of, now=wall_now)
        reported.append(member.wire() | {"conditions": conditions})
    return reported


def _planes(before: dict[str, Any], observed: InstanceView, of: int, wall_now: float) -> list[dict[str, Any]]:
    """The instance's slice of each plane, with its conditions."""
    current = {each["plane"]: each.get("conditions") or [] for each in before.get("slices") or []}
    reported = []
    for each in observed.slices:
        conditions = current.get(each.plane.value, [])
        for type, status, reason, message in (
            ("Programmed", each.programmed, each.state, each.message),
            (
                "FloorsKept",
                each.floors_kept,
                "FloorsKept" if each.floors_kept else "FloorsBroken",
                "guaranteed bandwidth is available" if each.floors_kept else "links lack guaranteed bandwidth",
            ),
        ):
            conditions = condition(conditions, type, status, reason, message, generation=of, now=wall_now)
        reported.append(each.wire() | {"conditions": conditions})
    return reported


def _places(view: InstanceView) -> dict[int, str]:
    """Members' nodes by rank."""
    return {member.rank: member.node for member in view.members if member.role == "member" and member.rank is not None}


def resource_event(
    kind: Kind, body: dict[str, Any], type: str, reason: str, message: str, wall_now: float, since: str = ""
) -> dict[str, Any]:
    """An Event on a resource of ours, in its namespace. The same transition (`since`) yields the same Event."""
    mark = f"{body['metadata'].get('generation', 1)} {reason} {message} {since}"
    return event_on(kind, body, type, reason, message, component=MANAGED_BY, at=wall_now, mark=mark)


def event_object(event: dict[str, Any], namespace: str, uid: str, wall_now: float) -> dict[str, Any]:
    """A Kubernetes Event for one of MatrixCompute's events. It has the same name, so that it is recorded once."""
    about = {
        "apiVersion": "cloudmatrix.io/v1alpha1",
        "kind": "CloudMatrixInstance",
        "name": event["instance"],
        "namespace": namespace,
        "uid": uid,
    }
    reported = {key: event[key] for key in ("type", "reason", "message")}
    return event_body(event["name"], about, **reported, component=MANAGED_BY, at=wall_now)
