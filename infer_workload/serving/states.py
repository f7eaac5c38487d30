"""The states of a serving deployment and the moves between them."""

from __future__ import annotations

from matrixcommon.model.state_machine import State, StateMachine

PENDING, LOADING, SERVING = "Pending", "Loading", "Serving"
DEGRADED, UNAVAILABLE, IDLE = "Degraded", "Unavailable", "Idle"

DEPLOYMENT_STATES = StateMachine(
    "deployment",
    PENDING,
    [
        State(PENDING, "its instance has no slices yet, or too few nodes for a layout"),
        State(LOADING, "executors are starting, weights and graphs are loading", deadline_s=900.0),
        State(SERVING, "requests are served by the pools as laid out"),
        State(
            DEGRADED,
            "it serves, or will again in seconds: ranks are being rebuilt or new nodes are loading",
            deadline_s=900.0,
        ),
        State(UNAVAILABLE, "what is left of its instance cannot serve; requests get 503 with Retry-After"),
        State(IDLE, "its pools are scaled to zero; new requests wait and bring them back"),
    ],
    {
        PENDING: [LOADING, UNAVAILABLE, IDLE],
        LOADING: [SERVING, UNAVAILABLE, IDLE],
        SERVING: [DEGRADED, UNAVAILABLE, IDLE],
        DEGRADED: [SERVING, UNAVAILABLE, IDLE],
        UNAVAILABLE: [LOADING, IDLE],
        IDLE: [PENDING, UNAVAILABLE],
    },
)
