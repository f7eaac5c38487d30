"""next_action: what to do about one resource, decided on the spec and what is observed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from matrixcompute.contract import InstanceRequest, InstanceView

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


def desired_instance(body: dict[str, Any]) -> InstanceRequest:
    """The request that a CloudMatrixInstance stands for; its labels and namespace travel along."""
    metadata = body["metadata"]
    labels = {**(metadata.get("labels") or {}), SOURCE_LABEL: metadata.get("namespace", "default")}
    shape = {key: value for key, value in body["spec"].items() if key != "dryRun"}
    return InstanceRequest.model_validate({**shape, "labels": labels})


def desired_nodes(body: dict[str, Any]) -> int:
    """How many nodes a CloudMatrixInstance asks for."""
    return int(body["spec"]["nodes"])


def lease_over(body: dict[str, Any]) -> bool:
    """Whether a resource's instance had a lease: once that is gone with it, it is not made again for the same spec."""
    reported = body.get("status") or {}
    same = reported.get("observedGeneration") == body["metadata"].get("generation", 1)
    return same and bool(reported.get("expiresAt")) and body["spec"].get("leaseS") is not None


def next_action(body: dict[str, Any], observed: InstanceView | None) -> Action:
    """What brings the instance nearer to what its resource says."""
    if body["metadata"].get("deletionTimestamp"):
        return Action("DeleteInstance" if observed is not None else "Nothing", why="the resource is being deleted")
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
    if observed.request() != request:
        return Action("EnsureInstance", request, "the shape has changed")
    return Action("Nothing", why="as specified")
