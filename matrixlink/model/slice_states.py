"""The states of a network slice, from a promise to programmed routes in every member's switches, and to its withdrawal.

A slice is a share of one plane for one instance. Its generation counts its specs and its routes; agents acknowledge a
generation, and only when all members have is the slice Active. `next_state` derives the state from agents' reports.
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
        State(PROGRAMMING, "The members' agents are programming its present generation.", 120),
        State(
            ACTIVE, "Every member's agent has acknowledged the present generation, and all its links work at full rate."
        ),
        State(DEGRADED, "Programmed everywhere, but some of its links, or part of its floor, are lost."),
        State(REROUTING, "Links were lost or came back; the agents are programming routes around or over them.", 60),
        State(FAILED, "An agent could not program it; a new spec or another attempt leads out of this state."),
        State(WITHDRAWING, "Reachable agents are clearing it; its floors stay booked until they have.", 120),
        State(WITHDRAWN, "Cleared wherever an agent could be reached, fenced elsewhere; its key and floors are free."),
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
"""The only place that defines a slice's transitions; README.md shows the diagram."""


def next_state(state: str, programmed: int, members: int, failed: int, whole: bool) -> str:
    """The state of a requested slice, from its agents' reports. `whole`: all links work and the whole floor is kept.

    A slice in progress (Programming, Rerouting) stays so until all members have acknowledged; one that lost an
    acknowledgement is Programming again.
    """
    if failed:
        return FAILED
    if programmed < members:
        return state if state in (PROGRAMMING, REROUTING) else PROGRAMMING
    return ACTIVE if whole else DEGRADED
