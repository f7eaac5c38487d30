"""The states of an instance, what each means, and the table of allowed transitions."""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine

INSTANCE_STATES = StateMachine(
    "instance",
    start="Pending",
    states=[
        State(
            "Pending",
            "accepted; its nodes are not allocated, or were revoked, and the condition Scheduled says why",
        ),
        State("Provisioning", "nodes and slices are committed; agents deploy the nodes and program routes", 3600),
        State("Active", "every member and route has been reported ready"),
        State("Updating", "changing to a new shape, or restarting; what was there keeps running", 3600),
        State("Repairing", "a member is lost or faulty and is being repaired or replaced", 3600),
        State("Stopping", "its nodes stop their work and are switched off", 1800),
        State("Stopped", "its nodes are switched off; it keeps them and its guaranteed bandwidth"),
        State("Starting", "its nodes are switched on, boot and join again", 3600),
        State(
            "Suspending",
            "its slices are withdrawn, which ends their peerings, and its nodes are cleaned and released",
            1800,
        ),
        State("Suspended", "it has neither nodes nor slices until `suspend` is false"),
        State(
            "Failed",
            "its spec cannot be satisfied: `:retry`, change or delete it; or it has fewer members left than its floor, "
            "keeps those, and is repaired when nodes come free",
        ),
        State("Deleting", "routes are cleared, nodes cleaned, and everything is released", 3600),
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
"""States in which an instance has its nodes; if it has none, they were lost."""

UNREADY = ("Pending", "Suspending", "Suspended", "Failed", "Deleting")
"""States in which it does not serve, whatever it still has."""


def settled_state(power: str) -> str:
    """The stable state of an instance whose nodes are powered as specified."""
    return "Stopped" if power == "Off" else "Active"
