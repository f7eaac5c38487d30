"""The states of an instance: few, external, each with its sentence. The table of moves is the only way between them."""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine

INSTANCE_STATES = StateMachine(
    "instance",
    start="Pending",
    states=[
        State(
            "Pending",
            "accepted; its nodes are not committed (or were revoked), and the condition Scheduled says why",
        ),
        State("Provisioning", "nodes and slices are committed; agents deploy and program", 3600),
        State("Active", "every member and route has been reported ready"),
        State("Updating", "moving to a changed shape, or restarting; what was there keeps running", 3600),
        State("Repairing", "a member is lost or faulty and is being replaced", 3600),
        State("Stopping", "its nodes stop their work and are switched off", 1800),
        State("Stopped", "its nodes are switched off and kept, and so is what links promise it"),
        State("Starting", "its nodes are switched on, boot and join again", 3600),
        State("Suspending", "its slices are withdrawn, and its nodes are cleaned and given back", 1800),
        State("Suspended", "it has neither nodes nor slices, until `suspend` ends"),
        State(
            "Failed",
            "it cannot be had as it is specified: `:retry`, change or delete it; or has fewer members left than its "
            "floor, keeps those, and continues when there are nodes",
        ),
        State("Deleting", "routes are cleared, nodes cleaned, everything is given back", 3600),
    ],
    moves={
        "Pending": ["Provisioning", "Suspending", "Deleting"],
        "Provisioning": ["Active", "Stopped", "Pending", "Failed", "Suspending", "Deleting"],
        "Active": ["Pending", "Updating", "Repairing", "Stopping", "Suspending", "Deleting"],
        "Updating": ["Active", "Stopped", "Pending", "Repairing", "Stopping", "Starting", "Suspending", "Deleting"],
        "Repairing": ["Active", "Stopped", "Pending", "Updating", "Stopping", "Failed", "Deleting"],
        "Stopping": ["Stopped", "Active", "Pending", "Updating", "Starting", "Deleting"],
        "Stopped": ["Starting", "Updating", "Pending", "Suspending", "Deleting"],
        "Starting": ["Active", "Stopped", "Pending", "Updating", "Repairing", "Stopping", "Deleting"],
        "Suspending": ["Suspended", "Deleting"],
        "Suspended": ["Provisioning", "Deleting"],
        "Failed": ["Provisioning", "Pending", "Updating", "Repairing", "Stopping", "Suspending", "Deleting"],
        "Deleting": [],
    },
)

SETTLED = ("Active", "Stopped")
"""Stable states in which an instance has its nodes."""

HOLDING = ("Active", "Updating", "Repairing", "Stopping", "Stopped", "Starting")
"""States in which an instance has its nodes; who finds none then has lost them."""

UNREADY = ("Pending", "Suspending", "Suspended", "Failed", "Deleting")
"""States in which it serves nobody, whatever of it is still there."""


def settled_state(power: str) -> str:
    """The stable state of an instance whose nodes stand as they are to."""
    return "Stopped" if power == "Off" else "Active"
