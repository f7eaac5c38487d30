"""What keeps a scaling policy from sizing its target: nothing can be decided, or the decided size was refused."""

from __future__ import annotations

from typing import NamedTuple

from matrixcommon.model.resource_key import name_of
from matrixcompute.autoscaling.policy import Reason
from matrixcompute.store.store import InstanceRow

SCALABLE_STATES = ("Active", "Updating", "Repairing")
"""States of an instance whose size may be changed."""


class Undecidable(NamedTuple):
    """Why there is no decision this time."""

    reason: Reason
    message: str


def check_scalable(target: str, instance: InstanceRow | None, scaled_to_zero: bool) -> Undecidable | None:
    """Why nothing can be decided about a target now; None if it can."""
    name = name_of(target)
    if instance is None:
        return Undecidable(Reason.TARGET_NOT_FOUND, f"there is no instance {name}")
    if scaled_to_zero and instance.shape.suspend:
        return None  # a target scaled to zero can be brought back at any time
    if instance.shape.suspend or instance.shape.power == "Off":
        requested = "suspended" if instance.shape.suspend else "switched off"
        return Undecidable(
            Reason.TARGET_NOT_READY, f"instance {name} is {requested} by its spec; it is sized once it is Active again"
        )
    if instance.state not in SCALABLE_STATES:
        return Undecidable(
            Reason.TARGET_NOT_READY, f"instance {name} is {instance.state}; it is sized once it is Active"
        )
    return None


def refusal(instance: InstanceRow | None) -> tuple[str, str] | None:
    """Reason and message, if a target's changed size was refused and is being retried; else None."""
    if instance is None or instance.state != "Active" or instance.last_active is None:
        return None
    present, desired = instance.last_active.nodes, instance.shape.nodes
    found = instance.find_condition("Progressing")
    if present == desired or found is None or found["status"] != "False" or found["reason"] == "Settled":
        return None
    text = f"{name_of(instance.name)} has {present} of {desired} requested nodes: {found['message']}"
    return found["reason"], text
