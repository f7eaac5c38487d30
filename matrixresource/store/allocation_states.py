"""The states of an allocation, from reservation to release."""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine

ALLOCATION_STATES = StateMachine(
    "allocation",
    start="Reserved",
    states=[
        State("Reserved", "its nodes are held; their agents have not been asked for anything yet"),
        State("Binding", "agents are deploying the members and preparing the spares", 3600),
        State("Bound", "every member's agent has reported it active"),
        State("Degraded", "bound, but a member is lost or unhealthy"),
        State("Releasing", "agents are cleaning its nodes, which are held until then", 3600),
    ],
    moves={
        "Reserved": ["Binding", "Releasing"],
        "Binding": ["Bound", "Degraded", "Releasing"],
        "Bound": ["Binding", "Degraded", "Releasing"],
        "Degraded": ["Bound", "Binding", "Releasing"],
        "Releasing": [],
    },
)
