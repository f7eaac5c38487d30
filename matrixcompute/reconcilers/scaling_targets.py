"""What keeps a scaling policy from sizing its target: it cannot be decided about, or what was decided was refused."""

from __future__ import annotations

from matrixcommon.model.resource_key import name_of
from matrixcompute.autoscaling.policy import Reason
from matrixcompute.store.store import InstanceRow

SCALABLE = ("Active", "Updating", "Repairing")
"""States of an instance whose size may be changed."""


def unable(instance: InstanceRow | None, parked: bool) -> Reason | None:
    """Why nothing can be decided about a target now."""
    if instance is None:
        return Reason.TARGET_NOT_FOUND
    if parked and instance.shape.suspend:
        return None  # what is scaled to zero can be brought back at any time
    suspended = instance.shape.suspend or instance.shape.power == "Off"
    return Reason.TARGET_NOT_READY if suspended or instance.state not in SCALABLE else None


def refusal(instance: InstanceRow | None) -> tuple[str, str] | None:
    """Reason and message, where a target was asked for another shape and has not got it: it is tried again."""
    if instance is None or instance.state != "Active" or instance.last_active is None:
        return None
    present, desired = instance.last_active.nodes, instance.shape.nodes
    found = instance.find_condition("Progressing")
    if present == desired or found is None or found["status"] != "False" or found["reason"] == "Settled":
        return None
    text = f"{name_of(instance.name)} has {present} of the {desired} nodes that were asked for: {found['message']}"
    return found["reason"], text
