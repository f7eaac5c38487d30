"""The status of a CloudMatrixInstance, built from what the services report: overall, per member and per plane.

Conditions on Kubernetes objects carry wall-clock time (clients compute ages from it), so a condition's transition is
dated when the operator saw it.
"""

from __future__ import annotations

from typing import Any

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.quantities import timestamp
from matrixcommon.model.resource_model import set_condition
from matrixcompute.contract import NOT_SERVING, CancelledChange, InstanceView
from matrixcontainer.client.client import Kind
from matrixcontainer.client.events import event_body, event_for_object
from matrixcontainer.operator.decision import INSTANCE_LABEL, MANAGED_BY, cancelled_change, lease_ended, next_action

SYNCED = "Synced"
"""Type of the condition that says why the instance does not follow its spec; present only while that is so."""

EMPTY_STATUS: dict[str, Any] = {"readyNodes": 0, "readySpares": 0, "members": [], "slices": []}
"""Status fields of an instance that does not exist."""

HEALTHY_STATUS = {"Healthy": True, "SubHealthy": True, "Unhealthy": False}
"""Status of a member's Healthy condition by its health; Unknown for any other."""


def stopped_serving(view: dict[str, Any]) -> bool:
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
        details = ("LeaseEnded", "the lease has ended; change the spec to start a new one")
        if not ended:
            details = ("Pending", "MatrixCompute has not accepted the instance yet")
        kept_types = ("Ready", "Progressing") if ended else ("Ready",)
        conditions = [
            each for each in conditions if each["type"] in kept_types
        ]  # the others described the old instance
        for type in kept_types:
            conditions = set_condition(conditions, type, False, *details, generation=generation, now=wall_now)
        return {"state": "Ended" if ended else "Pending", **EMPTY_STATUS, "conditions": conditions}
    cancelled = cancelled_change(body, observed) if refused is None else None
    settled = refused is None and cancelled is None and observed.generation == observed.observed_generation
    settled = settled and next_action(body, observed).verb == "Nothing"
    outdated_types = {each["type"] for each in conditions}
    observed_generation = (generation if settled else before.get("observedGeneration", 0)) or generation
    for current in observed.conditions:
        status = {"True": True, "False": False}.get(current.status)
        conditions = set_condition(
            conditions,
            current.type,
            status,
            current.reason,
            current.message,
            generation=observed_generation,
            now=wall_now,
        )
        outdated_types.discard(current.type)
    not_followed = ("Cancelled", cancelled_message(cancelled)) if cancelled is not None else None
    if refused is not None:
        not_followed = refused.reason, f"{refused.message}; the instance is unchanged"
    if not_followed is not None:
        conditions = set_condition(conditions, SYNCED, False, *not_followed, generation=generation, now=wall_now)
        outdated_types.discard(SYNCED)
    return {
        "state": observed.state,
        "observedGeneration": generation if settled else before.get("observedGeneration", 0),
        "readyNodes": observed.ready_nodes,
        "readySpares": sum(member.role == "spare" and member.ready for member in observed.members),
        "selector": f"{INSTANCE_LABEL}={observed.name}",
        "operation": observed.operation or "",
        "repairs": observed.repairs,
        "expiresAt": observed.expires_at or "",
        "members": _members(before, observed, observed_generation, wall_now),
        "slices": _slices(before, observed, observed_generation, wall_now),
        "conditions": [each for each in conditions if each["type"] not in outdated_types],
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
    plan_status: dict[str, Any] = {"generation": generation, "fits": plan is not None, "plannedAt": timestamp(wall_now)}
    if plan is not None:
        plan_status["members"] = [
            {"node": member.node, "cabinet": member.cabinet, "role": member.role} for member in plan.members
        ]
        plan_status["cabinets"] = len({member.cabinet for member in plan.members})
        plan_status["preempts"] = plan.preempts
        if observed is not None:
            current_nodes, planned_nodes = _nodes_by_rank(observed), _nodes_by_rank(plan)
            plan_status["moves"] = [
                {"rank": rank, "from": current_nodes.get(rank, ""), "to": planned_nodes.get(rank, "")}
                for rank in sorted(current_nodes.keys() | planned_nodes.keys())
                if current_nodes.get(rank) != planned_nodes.get(rank)
            ]
    elif refused is not None:
        plan_status |= {"reason": refused.reason, "message": refused.message, "blocking": refused.blocking}
    if observed is not None:
        return instance_status(body, observed, wall_now) | {"observedGeneration": generation, "plan": plan_status}
    conditions = set_condition(
        (body.get("status") or {}).get("conditions") or [],
        "Scheduled",
        False,
        "DryRun" if refused is None else refused.reason,
        "the instance fits; remove dryRun to create it" if refused is None else refused.message,
        generation=generation,
        now=wall_now,
    )
    return {"state": "Planned", "observedGeneration": generation, "plan": plan_status, "conditions": conditions}


def _members(
    before: dict[str, Any], observed: InstanceView, observed_generation: int, wall_now: float
) -> list[dict[str, Any]]:
    """All nodes of the instance with their conditions."""
    current = {each["node"]: each.get("conditions") or [] for each in before.get("members") or []}
    members = []
    for member in observed.members:
        conditions = current.get(member.node, [])
        for type, status, reason, message in (
            ("Ready", member.ready, member.state, f"the node is {member.state}, its agent is {member.agent}"),
            (
                "Healthy",
                HEALTHY_STATUS.get(member.health),
                member.health,
                f"the hardware is {member.health}{member.fault and ': '}{member.fault}",
            ),
        ):
            conditions = set_condition(
                conditions, type, status, reason, message, generation=observed_generation, now=wall_now
            )
        members.append(member.wire() | {"conditions": conditions})
    return members


def _slices(
    before: dict[str, Any], observed: InstanceView, observed_generation: int, wall_now: float
) -> list[dict[str, Any]]:
    """The instance's slice of each plane, with its conditions."""
    current = {each["plane"]: each.get("conditions") or [] for each in before.get("slices") or []}
    slices = []
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
            conditions = set_condition(
                conditions, type, status, reason, message, generation=observed_generation, now=wall_now
            )
        slices.append(each.wire() | {"conditions": conditions})
    return slices


def _nodes_by_rank(view: InstanceView) -> dict[int, str]:
    """Members' nodes by rank."""
    return {member.rank: member.node for member in view.members if member.role == "member" and member.rank is not None}


def resource_event(
    kind: Kind, body: dict[str, Any], type: str, reason: str, message: str, wall_now: float, since: str = ""
) -> dict[str, Any]:
    """An Event on a resource of ours, in its namespace. The same transition (`since`) yields the same Event."""
    dedup_key = f"{body['metadata'].get('generation', 1)} {reason} {message} {since}"
    return event_for_object(kind, body, type, reason, message, component=MANAGED_BY, at=wall_now, dedup_key=dedup_key)


def event_object(event: dict[str, Any], namespace: str, uid: str, wall_now: float) -> dict[str, Any]:
    """A Kubernetes Event for one of MatrixCompute's events. It has the same name, so that it is recorded once."""
    reference = {
        "apiVersion": "cloudmatrix.io/v1alpha1",
        "kind": "CloudMatrixInstance",
        "name": event["about"],
        "namespace": namespace,
        "uid": uid,
    }
    details = {key: event[key] for key in ("type", "reason", "message")}
    return event_body(event["name"], reference, **details, component=MANAGED_BY, at=wall_now)
