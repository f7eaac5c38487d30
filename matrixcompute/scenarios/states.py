"""The states of a scenario run, and what each means. The verdict is a separate field."""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine, Verb

SCENARIO_RUN_STATES = StateMachine(
    "scenario run",
    start="Pending",
    states=[
        State("Pending", "queued: one run at a time"),
        State("Running", "its faults are injected and its expectations checked"),
        State("Stopping", "it was stopped by request and is being rolled back", 7200),
        State("RollingBack", "it was interrupted, or its rollback was incomplete; it is being rolled back", 7200),
        State("Completed", "it has its verdict, and everything it did is rolled back"),
    ],
    moves={
        "Pending": ["Running"],
        "Running": ["Pending", "RollingBack", "Completed"],
        "Stopping": ["RollingBack", "Completed"],
        "RollingBack": ["Completed"],
    },
    verbs=[
        Verb("stop", "End the run as STOPPED and roll it back", {"Pending": "Completed", "Running": "Stopping"}),
    ],
)

BEGUN = ("Running", "Stopping", "RollingBack")
"""States in which its faults or instances may still exist."""
