"""The states of a node, and how the state follows from what is requested and what its agent reported.

Nobody sets a node's state: it is read off. `schedulable`, `power`, `health` and `agent` stand beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrixcommon.model.state_machine import State, StateMachine

NODE_STATES = StateMachine(
    "node",
    start="Enrolled",
    states=[
        State("Enrolled", "known from the topology; its agent has not reported yet"),
        State("Verifying", "the agent is there and proves which node it is", 600),
        State("Inspecting", "the agent compares what it finds with what was expected", 1200),
        State("Available", "clean, powered and free to be allocated"),
        State("Reserved", "held by an allocation that does not use it now: not yet, or switched off"),
        State("Stopping", "held; its work is stopped and it is switched off", 600),
        State("Deploying", "the image continues, the node boots and joins", 1800),
        State("Spare", "deployed and idle, held beside an allocation to step in"),
        State("Active", "serving its allocation"),
        State("Cleaning", "being wiped after use", 1800),
        State("Quarantined", "kept out: lost, faulty, or not yet proven clean"),
    ],
    moves={
        "Enrolled": [
            "Verifying", "Inspecting", "Available", "Reserved", "Deploying",
            "Spare", "Active", "Stopping", "Cleaning", "Quarantined",
        ],
        "Verifying": ["Inspecting", "Available", "Quarantined"],
        "Inspecting": ["Available", "Reserved", "Quarantined"],
        "Available": ["Reserved", "Deploying", "Active", "Cleaning", "Quarantined", "Verifying", "Inspecting"],
        "Reserved": ["Deploying", "Spare", "Active", "Stopping", "Available", "Cleaning", "Quarantined", "Inspecting"],
        "Deploying": ["Spare", "Active", "Stopping", "Cleaning", "Available", "Reserved", "Quarantined"],
        "Spare": ["Active", "Deploying", "Stopping", "Cleaning", "Available", "Reserved", "Quarantined"],
        "Active": ["Stopping", "Cleaning", "Deploying", "Available", "Reserved", "Spare", "Quarantined"],
        "Stopping": ["Reserved", "Deploying", "Spare", "Active", "Available", "Cleaning", "Quarantined"],
        "Cleaning": ["Available", "Reserved", "Deploying", "Quarantined"],
        "Quarantined": [
            "Verifying", "Inspecting", "Available", "Reserved", "Deploying", "Spare", "Active", "Stopping", "Cleaning",
        ],
    },
)  # fmt: skip

_SEEN = {
    "Verifying": "Verifying",
    "Inspecting": "Inspecting",
    "Preparing": "Deploying",
    "Deploying": "Deploying",
    "Spare": "Spare",
    "Active": "Active",
    "Stopping": "Stopping",
    "Off": "Reserved",
    "Cleaning": "Cleaning",
    "Failed": "Quarantined",
}


def node_state(
    *, current: bool, agent: str, health: str, status: str | None, caught_up: bool, parts: Sequence[str] = ()
) -> str:
    """The state of a node.

    `held` by an allocation; `agent` Connected, Stale or Lost; `health` Healthy, SubHealthy or Unhealthy; `status` as
    last reported (None: never); `caught_up` when the report answers the newest spec; `parts` how far the agent is with
    what several allocations have of it. A held node keeps the state it was
    last seen in while its agent is away: whether to give it up is MatrixCompute's decision, not an appearance.
    """
    if status is None:
        return "Enrolled"
    if not current and (agent == "Lost" or health == "Unhealthy"):
        return "Quarantined"
    if status == "Clean" and parts and not current and caught_up:
        return "Active" if "Active" in parts else "Deploying"
    if status == "Clean":
        return "Reserved" if current else "Available" if caught_up else "Cleaning"
    if not current and not caught_up:
        return "Cleaning"
    return _SEEN[status]
