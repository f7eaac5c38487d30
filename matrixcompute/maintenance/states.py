"""The states of a maintenance and of its units, and what each state means."""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine, Verb

MAINTENANCE_STATES = StateMachine(
    "maintenance",
    start="Scheduled",
    states=[
        State("Scheduled", "announced to the instances concerned; nothing is touched before `notBefore`"),
        State("Running", "nodes are drained, worked on and checked, as many at once as the budget allows"),
        State("Paused", "no new node is begun; those under way are finished"),
        State("Aborting", "no new node is begun; those under way are brought back", 7200),
        State("Expiring", "its deadline has passed: no new node is begun, those under way are brought back", 7200),
        State("Completed", "everything was worked on and has passed its check, or was kept out by somebody else"),
        State("Failed", "everything was begun, and some nodes did not come back; the message names them"),
        State("Aborted", "aborted by request; finished work stays done"),
        State("Expired", "ended by its deadline; finished work stays done"),
    ],
    moves={
        "Scheduled": ["Running", "Expiring"],
        "Running": ["Scheduled", "Completed", "Failed", "Expiring"],
        "Paused": ["Completed", "Failed", "Expiring"],
        "Aborting": ["Aborted"],
        "Expiring": ["Expired"],
    },
    verbs=[
        Verb(
            "pause",
            "Begin no new node; finish those under way",
            dict.fromkeys(("Scheduled", "Running"), "Paused"),
        ),
        Verb("resume", "Continue a paused maintenance", {"Paused": "Running"}),
        Verb(
            "abort",
            "Bring back the nodes under way, lift its cordons, and end",
            dict.fromkeys(("Scheduled", "Running", "Paused"), "Aborting"),
        ),
    ],
)

OPEN = ("Scheduled", "Running", "Paused", "Aborting", "Expiring")
"""States of maintenances that have not ended."""
ENDING = ("Aborting", "Expiring")

SETTLED = ("Done", "Failed", "Skipped")
"""States of units that are finished."""
UNDER_WAY = ("Draining", "InService", "Returning")
"""States of units that count against the budget."""
