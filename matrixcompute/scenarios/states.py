"""The states of a scenario's run in MatrixCompute, each with its sentence; its verdict is a field beside them."""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine, Verb

SCENARIO_RUN_STATES = StateMachine(
    "scenario run",
    start="Pending",
    states=[
        State("Pending", "waits for its turn: one runs at a time"),
        State("Running", "its faults are injected, and what is expected is watched"),
        State("Stopping", "somebody has stopped it: what it did is being rolled back", 7200),
        State("RollingBack", "it was cut short, or could not undo all: what it did is being rolled back", 7200),
        State("Completed", "it has its verdict, and everything that it did is rolled back"),
    ],
    moves={
        "Pending": ["Running"],
        "Running": ["Pending", "RollingBack", "Completed"],
        "Stopping": ["RollingBack", "Completed"],
        "RollingBack": ["Completed"],
    },
    verbs=[
        Verb("stop", "End it as STOPPED and roll it back", {"Pending": "Completed", "Running": "Stopping"}),
    ],
)

BEGUN = ("Running", "Stopping", "RollingBack")
"""States in which something of it may be in the world."""
