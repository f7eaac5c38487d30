"""The states of a maintenance and of what it works on, each with its sentence."""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine, Verb

MAINTENANCE_STATES = StateMachine(
    "maintenance",
    start="Scheduled",
    states=[
        State("Scheduled", "announced to whom it concerns; nothing is touched before `notBefore`"),
        State("Running", "one after another is drained, worked on and checked, as many at once as the budget allows"),
        State("Paused", "nothing more is begun; what is under way comes to its end"),
        State("Aborting", "nothing more is begun; what is under way is brought back", 7200),
        State("Expiring", "its deadline has passed: nothing more is begun; what is under way is brought back", 7200),
        State("Completed", "everything was worked on and has passed its check, or was kept out by somebody else"),
        State("Failed", "everything was begun, and some did not come back; those are named"),
        State("Aborted", "stopped by somebody; what had been done stays done"),
        State("Expired", "stopped by its deadline; what had been done stays done"),
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
            "Begin with nothing more; what is under way comes to its end",
            dict.fromkeys(("Scheduled", "Running"), "Paused"),
        ),
        Verb("resume", "Have a paused one continue", {"Paused": "Running"}),
        Verb(
            "abort",
            "Bring back what is under way, lift its cordons, and end",
            dict.fromkeys(("Scheduled", "Running", "Paused"), "Aborting"),
        ),
    ],
)

OPEN = ("Scheduled", "Running", "Paused", "Aborting", "Expiring")
"""States of maintenances that are not over."""
ENDING = ("Aborting", "Expiring")

SETTLED = ("Done", "Failed", "Skipped")
"""States of what a maintenance has no more to do with."""
UNDER_WAY = ("Draining", "InService", "Returning")
"""States that count against the budget."""
