"""next_action: what to do about one resource, decided on the spec and what is observed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.resource_key import DEFAULT_PROJECT, key_of, project_of, resolve
from matrixcompute.contract import CancelledChange, InstanceRequest, InstanceShape, InstanceView

MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "cloudmatrix-operator"
INSTANCE_LABEL = "cloudmatrix.io/instance"
SOURCE_LABEL = "cloudmatrix.io/namespace"


@dataclass(frozen=True)
class Action:
    """One thing to do: ensure the instance is as `request` says, only plan that, delete it, or nothing."""

    verb: Literal["EnsureInstance", "PlanInstance", "DeleteInstance", "Nothing"]
    request: InstanceRequest | None = None
    why: str = ""


def namespace_of(body: dict[str, Any]) -> str:
    return str(body["metadata"].get("namespace") or DEFAULT_PROJECT)


def key_of_resource(body: dict[str, Any]) -> str:
    """The key of what a resource stands for: its name, in the project that is called like its namespace."""
    return key_of(namespace_of(body), body["metadata"]["name"])


def key_in(body: dict[str, Any], name: str, field: str) -> str:
    """The key of what a resource refers to. Raises InvalidField for what is not its namespace's."""
    key = resolve(name, namespace_of(body))
    if project_of(key) != namespace_of(body):
        raise InvalidField(f"{name!r} is not of namespace {namespace_of(body)!r}", field=field)
    return key


def desired_instance(body: dict[str, Any]) -> InstanceRequest:
    """The request that a CloudMatrixInstance stands for, in the project of its namespace; its labels travel along.
    Raises InvalidField where it refers to what is not its namespace's, and for what its definition let pass all the
    same: that may be an older one than the operator's."""
    metadata = body["metadata"]
    for side in ("affinity", "antiAffinity"):
        for other in (body["spec"].get(side) or {}).get("instances") or ():
            key_in(body, other, f"spec.{side}.instances")
    labels = {**(metadata.get("labels") or {}), SOURCE_LABEL: metadata.get("namespace", "default")}
    shape = {key: value for key, value in body["spec"].items() if key != "dryRun"}
    try:
        return InstanceRequest.model_validate({**shape, "project": namespace_of(body), "labels": labels})
    except ValidationError as wrong:
        first = wrong.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        raise InvalidField(first["msg"].removeprefix("Value error, "), field=field or None) from wrong


def desired_nodes(body: dict[str, Any]) -> int:
    """How many nodes a CloudMatrixInstance asks for."""
    return int(body["spec"]["nodes"])


def lease_over(body: dict[str, Any]) -> bool:
    """Whether a resource's instance had a lease: once that is gone with it, it is not made again for the same spec."""
    reported = body.get("status") or {}
    same = reported.get("observedGeneration") == body["metadata"].get("generation", 1)
    return same and bool(reported.get("expiresAt")) and body["spec"].get("leaseS") is not None


def cancelled_change(body: dict[str, Any], observed: InstanceView | None) -> CancelledChange | None:
    """The change that the spec still asks for and somebody has cancelled; None where there is none, or where the spec
    has changed since that was seen, if only to what it was."""
    cancelled = observed.cancelled if observed is not None else None
    if cancelled is None or cancelled.shape != _shape(desired_instance(body)):
        return None
    seen = (body.get("status") or {}).get("cancelled") or {}
    earlier = seen.get("generation", 0) < body["metadata"].get("generation", 1)
    return None if seen.get("operation") == cancelled.operation and earlier else cancelled


def _shape(request: InstanceRequest) -> InstanceShape:
    return InstanceShape.model_validate(request.model_dump(exclude={"labels"}))


def next_action(body: dict[str, Any], observed: InstanceView | None) -> Action:
    """What brings the instance nearer to what its resource says."""
    if body["metadata"].get("deletionTimestamp"):
        if observed is None or (body["spec"].get("dryRun") and SOURCE_LABEL not in observed.labels):
            return Action("Nothing", why="it has no instance: one that it only planned with is somebody else's")
        return Action("DeleteInstance", why="the resource is being deleted")
    request = desired_instance(body)
    if body["spec"].get("dryRun"):
        planned = ((body.get("status") or {}).get("plan") or {}).get("generation")
        if planned == body["metadata"].get("generation", 1):
            return Action("Nothing", why="planned already")
        return Action("PlanInstance", request, "only a plan is asked for")
    if observed is None and lease_over(body):
        return Action("Nothing", why="its lease has ended; another spec begins a new one")
    if observed is None:
        return Action("EnsureInstance", request, "there is no such instance")
    if observed.state == "Deleting":
        return Action("Nothing", why="an instance of that name is still being deleted")
    if cancelled_change(body, observed) is not None:
        return Action("Nothing", why="the change was cancelled; another spec asks again")
    if observed.request() != request:
        return Action("EnsureInstance", request, "the shape has changed")
    return Action("Nothing", why="as specified")
