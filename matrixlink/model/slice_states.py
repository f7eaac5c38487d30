"""The states of a network slice: from a promise to routes in every member's switches, and back to nothing.

A slice is a share of one plane for one instance. Its generation counts its specs and its routes; agents acknowledge a
generation, and only when all members have is the slice Active. `stands` reads the state off what the agents reported.
"""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine

ADMITTED, PROGRAMMING, ACTIVE, DEGRADED = "Admitted", "Programming", "Active", "Degraded"
REROUTING, FAILED, WITHDRAWING, WITHDRAWN = "Rerouting", "Failed", "Withdrawing", "Withdrawn"

SLICE_STATES = StateMachine(
    "slice",
    ADMITTED,
    [
        State(ADMITTED, "Its floors are booked on every link; no agent has been asked to program it yet."),
        State(PROGRAMMING, "The members' agents are asked to program its present generation.", 120),
        State(ACTIVE, "Every member's agent has acknowledged the present generation, and all its links are whole."),
        State(DEGRADED, "Programmed everywhere, but links it could use are lost, or part of its floor."),
        State(
            REROUTING, "Links were lost or came back; the agents are asked to program routes around or over them.", 60
        ),
        State(FAILED, "An agent could not program it; the next spec or a new attempt leads out."),
        State(WITHDRAWING, "Reachable agents are clearing it; its floors stay booked until they have.", 120),
        State(WITHDRAWN, "Cleared wherever an agent could be reached, fenced where not; its key and floors are free."),
    ],
    {
        ADMITTED: [PROGRAMMING, WITHDRAWING],
        PROGRAMMING: [ACTIVE, DEGRADED, REROUTING, FAILED, ADMITTED, WITHDRAWING],
        ACTIVE: [DEGRADED, REROUTING, PROGRAMMING, ADMITTED, FAILED, WITHDRAWING],
        DEGRADED: [ACTIVE, REROUTING, PROGRAMMING, ADMITTED, FAILED, WITHDRAWING],
        REROUTING: [ACTIVE, DEGRADED, PROGRAMMING, FAILED, ADMITTED, WITHDRAWING],
        FAILED: [PROGRAMMING, REROUTING, ACTIVE, DEGRADED, ADMITTED, WITHDRAWING],
        WITHDRAWING: [WITHDRAWN],
        WITHDRAWN: [],
    },
)
"""The only place where a slice's moves are allowed; README.md shows its picture."""


def next_state(state: str, programmed: int, members: int, failed: int, whole: bool) -> str:
    """The state of a slice that has been asked for, from what its agents say. `whole`: all links up, all floor kept.

    A slice on its way (Programming, Rerouting) stays so until everybody has acknowledged; one that was there and lost
    an acknowledgement is Programming again.
    """
    if failed:
        return FAILED
    if programmed < members:
        return state if state in (PROGRAMMING, REROUTING) else PROGRAMMING
    return ACTIVE if whole else DEGRADED
