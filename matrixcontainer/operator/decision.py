"""next_action: decide what to do for one CloudMatrixInstance from its spec and the observed instance. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.resource_key import DEFAULT_PROJECT, key_of, project_of, resolve
from matrixcommon.model.validation import validation_message
from matrixcompute.contract import CancelledChange, InstanceRequest, InstanceShape, InstanceView

MANAGED_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "cloudmatrix-operator"
INSTANCE_LABEL = "cloudmatrix.io/instance"
SOURCE_LABEL = "cloudmatrix.io/namespace"


@dataclass(frozen=True)
class Action:
    """The next step: make the instance match `request`, only plan that, delete it, or do nothing."""

    verb: Literal["EnsureInstance", "PlanInstance", "DeleteInstance", "Nothing"]
    request: InstanceRequest | None = None
    reason: str = ""


def namespace_of(body: dict[str, Any]) -> str:
    return str(body["metadata"].get("namespace") or DEFAULT_PROJECT)


def key_of_resource(body: dict[str, Any]) -> str:
    """The key of the object behind a resource: the resource's name, in the project named after its namespace."""
    return key_of(namespace_of(body), body["metadata"]["name"])


def key_in(body: dict[str, Any], name: str, field: str) -> str:
    """The key of an object that a resource refers to. Raises InvalidField if it is in another namespace."""
    key = resolve(name, namespace_of(body))
    if project_of(key) != namespace_of(body):
        raise InvalidField(f"{name!r} is not in namespace {namespace_of(body)!r}", field=field)
    return key


def desired_instance(body: dict[str, Any]) -> InstanceRequest:
    """The request to MatrixCompute for a CloudMatrixInstance, in the project of its namespace and with its labels.

    Raises InvalidField if it refers to another namespace, or if the spec is invalid although the CRD accepted it: the
    installed CRD may be older than the operator."""
    metadata = body["metadata"]
    for rule in ("affinity", "antiAffinity"):
        for other in (body["spec"].get(rule) or {}).get("instances") or ():
            key_in(body, other, f"spec.{rule}.instances")
    labels = {**(metadata.get("labels") or {}), SOURCE_LABEL: metadata.get("namespace", "default")}
    shape = {key: value for key, value in body["spec"].items() if key != "dryRun"}
    try:
        return InstanceRequest.model_validate({**shape, "project": namespace_of(body), "labels": labels})
    except ValidationError as wrong:
        first = wrong.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        raise InvalidField(validation_message(first), field=field or None) from wrong


def desired_nodes(body: dict[str, Any]) -> int:
    """How many nodes a CloudMatrixInstance asks for."""
    return int(body["spec"]["nodes"])


def lease_ended(body: dict[str, Any]) -> bool:
    """Whether the instance of this generation of the spec had a lease. Once it is gone, its lease has ended and it is
    not created again for the same spec."""
    reported = body.get("status") or {}
    same_generation = reported.get("observedGeneration") == body["metadata"].get("generation", 1)
    return same_generation and bool(reported.get("expiresAt")) and body["spec"].get("leaseS") is not None


def cancelled_change(body: dict[str, Any], observed: InstanceView | None) -> CancelledChange | None:
    """The cancelled change, if the spec still asks for it; None if the spec was written again after the cancellation
    was seen, even with the same content, which retries it."""
    cancelled = observed.cancelled if observed is not None else None
    if cancelled is None or cancelled.shape != _shape(desired_instance(body)):
        return None
    reported = (body.get("status") or {}).get("cancelled") or {}
    spec_is_newer = reported.get("generation", 0) < body["metadata"].get("generation", 1)
    return None if reported.get("operation") == cancelled.operation and spec_is_newer else cancelled


def _shape(request: InstanceRequest) -> InstanceShape:
    return InstanceShape.model_validate(request.model_dump(exclude={"labels"}))


def next_action(body: dict[str, Any], observed: InstanceView | None) -> Action:
    """Return the step that brings the instance closer to its resource's spec."""
    if body["metadata"].get("deletionTimestamp"):
        if observed is None or (body["spec"].get("dryRun") and SOURCE_LABEL not in observed.labels):
            return Action(
                "Nothing", reason="the resource has no instance; one that it only planned with is not its own"
            )
        return Action("DeleteInstance", reason="the resource is being deleted")
    request = desired_instance(body)
    if body["spec"].get("dryRun"):
        planned = ((body.get("status") or {}).get("plan") or {}).get("generation")
        if planned == body["metadata"].get("generation", 1):
            return Action("Nothing", reason="already planned")
        return Action("PlanInstance", request, "dryRun is set")
    if observed is None and lease_ended(body):
        return Action("Nothing", reason="the lease has ended; change the spec to start a new one")
    if observed is None:
        return Action("EnsureInstance", request, "the instance does not exist")
    if observed.state == "Deleting":
        return Action("Nothing", reason="an instance of the same name is still being deleted")
    if cancelled_change(body, observed) is not None:
        return Action("Nothing", reason="the change was cancelled; change the spec to retry")
    if observed.request() != request:
        return Action("EnsureInstance", request, "the spec has changed")
    return Action("Nothing", reason="as specified")
