"""The states of an allocation: what one owner holds, from reservation to release."""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine

ALLOCATION_STATES = StateMachine(
    "allocation",
    start="Reserved",
    states=[
        State("Reserved", "nodes are held; nothing is asked of their agents yet"),
        State("Binding", "agents are deploying the members and preparing the spares", 3600),
        State("Bound", "every member's agent has reported it active"),
        State("Degraded", "bound, but a member is lost or unhealthy"),
        State("Releasing", "agents are cleaning; the nodes are still held", 3600),
    ],
    moves={
        "Reserved": ["Binding", "Releasing"],
        "Binding": ["Bound", "Degraded", "Releasing"],
        "Bound": ["Binding", "Degraded", "Releasing"],
        "Degraded": ["Bound", "Binding", "Releasing"],
        "Releasing": [],
    },
)
