"""next_action: what to do about one resource, decided on what is wished and what is observed. Pure.

And the status that tells of it, true to what the services show. Conditions of a Kubernetes object carry the wall's time
(its readers compute ages from it), so a condition's transition is dated when the operator saw it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from matrixcompute.contract import InstanceRequest, InstanceView
from matrixcontainer.kube_events import event_body
from matrixresource.vocabulary.errors import MatrixError
from matrixresource.vocabulary.quantities import timestamp
from matrixresource.vocabulary.wire import condition

MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "cloudmatrix-operator"
SOURCE_LABEL = "cloudmatrix.io/namespace"


@dataclass(frozen=True)
class Action:
    """One thing to do: ensure the instance is as `request` says, only plan that, delete it, or nothing."""

    verb: Literal["EnsureInstance", "PlanInstance", "DeleteInstance", "Nothing"]
    request: InstanceRequest | None = None
    why: str = ""


def wished_instance(body: dict[str, Any]) -> InstanceRequest:
    """The request that a CloudMatrixInstance stands for; its labels and namespace travel along."""
    metadata = body["metadata"]
    labels = {**(metadata.get("labels") or {}), SOURCE_LABEL: metadata.get("namespace", "default")}
    shape = {key: value for key, value in body["spec"].items() if key != "dryRun"}
    return InstanceRequest.model_validate({**shape, "labels": labels})


def next_action(body: dict[str, Any], observed: InstanceView | None) -> Action:
    """What brings the instance nearer to what its resource says."""
    if body["metadata"].get("deletionTimestamp"):
        return Action("DeleteInstance" if observed is not None else "Nothing", why="the resource is being deleted")
    request = wished_instance(body)
    if body["spec"].get("dryRun"):
        planned = ((body.get("status") or {}).get("plan") or {}).get("generation")
        if planned == body["metadata"].get("generation", 1):
            return Action("Nothing", why="planned already")
        return Action("PlanInstance", request, "only a plan is asked for")
    if observed is None:
        return Action("EnsureInstance", request, "there is no such instance")
    held = InstanceRequest(
        project=observed.project,
        labels=observed.labels,
        nodes=observed.nodes,
        spares=observed.spares,
        placement=observed.placement,
        network=observed.network,
    )
    if observed.state == "Deleting":
        return Action("Nothing", why="an instance of that name is still being deleted")
    if held != request:
        return Action("EnsureInstance", request, "the shape has changed")
    return Action("Nothing", why="as wished")


def instance_status(body: dict[str, Any], observed: InstanceView | None, wall_now: float) -> dict[str, Any]:
    """The status of a CloudMatrixInstance. `observedGeneration` moves once the instance follows that generation."""
    before = body.get("status") or {}
    generation = body["metadata"].get("generation", 1)
    if observed is None:
        conditions = condition(
            before.get("conditions") or [],
            "Ready",
            False,
            "Pending",
            "MatrixCompute has not taken the instance up yet",
            generation=generation,
            now=wall_now,
        )
        return {"state": "Pending", "readyNodes": 0, "readySpares": 0, "conditions": conditions}
    settled = observed.generation == observed.observed_generation and next_action(body, observed).verb == "Nothing"
    conditions = before.get("conditions") or []
    seen = {each["type"] for each in conditions}
    for held in observed.conditions:
        status = {"True": True, "False": False}.get(held.status)
        of = generation if settled else before.get("observedGeneration", 0) or 0
        conditions = condition(
            conditions, held.type, status, held.reason, held.message, generation=of or generation, now=wall_now
        )
        seen.discard(held.type)
    return {
        "state": observed.state,
        "observedGeneration": generation if settled else before.get("observedGeneration", 0),
        "readyNodes": observed.ready_nodes,
        "readySpares": sum(member.role == "spare" and member.ready for member in observed.members),
        "operation": observed.operation or "",
        "repairs": observed.repairs,
        "members": [member.wire() for member in observed.members],
        "slices": [each.wire() for each in observed.slices],
        "conditions": [each for each in conditions if each["type"] not in seen],
    }


def planned_status(
    body: dict[str, Any], plan: InstanceView | None, refused: MatrixError | None, wall_now: float
) -> dict[str, Any]:
    """The status of a resource that is only planned: whether it fits now and where, or why not. Nothing is created."""
    generation = body["metadata"].get("generation", 1)
    told: dict[str, Any] = {"generation": generation, "fits": plan is not None, "plannedAt": timestamp(wall_now)}
    if plan is not None:
        told["members"] = [
            {"node": member.node, "cabinet": member.cabinet, "role": member.role} for member in plan.members
        ]
        told["cabinets"] = len({member.cabinet for member in plan.members})
    elif refused is not None:
        told |= {"reason": refused.reason, "message": refused.message, "blocking": refused.blocking}
    conditions = condition(
        (body.get("status") or {}).get("conditions") or [],
        "Scheduled",
        False,
        "DryRun" if refused is None else refused.reason,
        "it would fit; remove dryRun to commit it" if refused is None else refused.message,
        generation=generation,
        now=wall_now,
    )
    return {"state": "Planned", "observedGeneration": generation, "plan": told, "conditions": conditions}


def event_object(event: dict[str, Any], namespace: str, uid: str, wall_now: float) -> dict[str, Any]:
    """A Kubernetes Event for one of MatrixCompute's; its name derives from it, so that it is told once."""
    about = {
        "apiVersion": "cloudmatrix.io/v1alpha1",
        "kind": "CloudMatrixInstance",
        "name": event["instance"],
        "namespace": namespace,
        "uid": uid,
    }
    told = {key: event[key] for key in ("type", "reason", "message")}
    return event_body(event["name"], about, **told, component=MANAGED_BY, at=wall_now)
