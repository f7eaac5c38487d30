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
        State("Updating", "moving to a changed shape; what was there keeps running", 3600),
        State("Repairing", "a member is lost or faulty and is being replaced", 3600),
        State("Deleting", "routes are cleared, nodes cleaned, everything is given back", 3600),
    ],
    moves={
        "Pending": ["Provisioning", "Deleting"],
        "Provisioning": ["Active", "Pending", "Deleting"],
        "Active": ["Pending", "Updating", "Repairing", "Deleting"],
        "Updating": ["Active", "Pending", "Repairing", "Deleting"],
        "Repairing": ["Active", "Pending", "Updating", "Deleting"],
        "Deleting": [],
    },
)
