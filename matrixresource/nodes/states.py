"""The node state machine: states, transitions, and what causes each.

A node's state is derived, not set: from what is requested (its holder, and the state that an administrator or a rule
wants) and from what its agent reports. `schedulable`, `power`, `health` and `agent` are separate from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrixcommon.model.state_machine import State, StateMachine, Verb

REPORT, ALLOCATOR, RULE = "report", "allocator", "rule"
"""What moves a node besides verbs: its agent's reports or silence, the allocator, a rule of this service."""

AVAILABLE, MANAGEABLE, SERVICING, QUARANTINED, RETIRED = (
    "Available",
    "Manageable",
    "Servicing",
    "Quarantined",
    "Retired",
)
"""The states that can be requested for a node; Available means that allocations may have it."""

STAGE_FAILED = "StageFailed"
"""The reason for a node whose agent could not finish its work; the message names the stage."""
STAGE_TOLERATED = "StageFailedTolerated"
"""Why a node with a failed stage is not quarantined: its domain has reached its limit of nodes out of service."""

ALLOCATED = ("Reserved", "Deploying", "Spare", "Active", "Stopping")
PREPARATION_STATES = ("Enrolled", "Verifying", "Inspecting", "Cleaning")
"""States after which a node becomes Available, if nothing else was requested."""
TASK_STATES = {"verify": "Verifying", "inspect": "Inspecting", "clean": "Cleaning", "update": "Servicing"}
"""The state of a node while it does a task."""


def _edges(after: str, *before: str) -> dict[str, str]:
    return dict.fromkeys(before, after)


NODE_STATES = StateMachine(
    "node",
    start="Enrolled",
    states=[
        State("Enrolled", "known from the topology; its agent has not reported yet"),
        State("Verifying", "its agent proves the node's identity and that its parts work", 600),
        State("Inspecting", "its agent compares what it finds with what is expected", 1200),
        State("Manageable", "verified, and out of service until it is cleaned or recovered"),
        State("Available", "clean, powered and free to be allocated"),
        State("Reserved", "held by an allocation that is not using it: not bound yet, or switched off"),
        State("Stopping", "held; its work is being stopped, then it is switched off", 600),
        State("Deploying", "its image is written, then it boots and joins the planes", 1800),
        State("Spare", "deployed and idle, held by an allocation to replace a member"),
        State("Active", "serving its allocation"),
        State("Draining", "waiting for its holder to leave before it is serviced", 7200),
        State("Cleaning", "being wiped after use", 1800),
        State("Servicing", "out of service for maintenance"),
        State("Quarantined", "out of service: lost, faulty, flapping, or not proven to work"),
        State("Retired", "removed from the capacity; its record is kept"),
    ],
    moves={
        "Enrolled": dict.fromkeys(
            ("Verifying", "Inspecting", "Available", *ALLOCATED, "Cleaning", "Quarantined", "Manageable"), REPORT
        ),
        "Verifying": dict.fromkeys(("Inspecting", "Available", "Manageable", "Cleaning", "Quarantined"), REPORT),
        "Inspecting": dict.fromkeys(("Available", "Manageable", "Cleaning", "Quarantined"), REPORT),
        "Manageable": {"Quarantined": REPORT},
        "Available": {"Reserved": ALLOCATOR, "Cleaning": REPORT, "Deploying": REPORT, "Active": REPORT}
        | {"Quarantined": REPORT, "Verifying": REPORT, "Inspecting": REPORT},
        "Reserved": dict.fromkeys(("Deploying", "Spare", "Active", "Stopping", "Quarantined"), REPORT)
        | {"Available": ALLOCATOR, "Cleaning": ALLOCATOR},
        "Deploying": dict.fromkeys(("Spare", "Active", "Stopping", "Reserved", "Available", "Quarantined"), REPORT)
        | {"Cleaning": ALLOCATOR},
        # After a release it may be seen again only once it is clean: reports in between can be lost.
        "Spare": dict.fromkeys(("Active", "Deploying", "Stopping", "Reserved", "Available", "Quarantined"), REPORT)
        | {"Cleaning": ALLOCATOR},
        "Active": dict.fromkeys(("Stopping", "Deploying", "Reserved", "Available", "Quarantined"), REPORT)
        | {"Cleaning": ALLOCATOR},
        "Stopping": dict.fromkeys(("Reserved", "Deploying", "Active", "Available", "Quarantined"), REPORT)
        | {"Cleaning": ALLOCATOR},
        "Draining": {"Servicing": ALLOCATOR, "Quarantined": REPORT},
        "Cleaning": dict.fromkeys(("Available", "Reserved", "Deploying", "Active", "Quarantined", "Verifying"), REPORT),
        # If recovery was requested while its agent was away, it is wiped first; a shared node was never given up.
        "Quarantined": {"Verifying": RULE} | dict.fromkeys(("Cleaning", "Deploying", "Active", "Available"), REPORT),
    },
    verbs=[
        Verb("enrol", "Return a retired node: it reports, is verified and is Available", _edges("Enrolled", "Retired")),
        Verb(
            "verify",
            "Take it out of service and have its agent verify its identity and parts; then it is Manageable",
            _edges("Verifying", "Available", "Manageable"),
        ),
        Verb(
            "inspect",
            "Take it out of service and have its agent report its inventory again; then it is Manageable",
            _edges("Inspecting", "Available", "Manageable"),
        ),
        Verb("clean", "Wipe a Manageable node; then it is Available", _edges("Cleaning", "Manageable")),
        Verb(
            "service",
            "Take it out of service for maintenance. It is Draining until its holder has moved away",
            _edges("Draining", *ALLOCATED) | _edges("Servicing", "Available", "Manageable", "Cleaning", "Quarantined"),
        ),
        Verb(
            "update",
            "Have its agent write the given firmware while it is serviced; `:recover` then has it checked",
            _edges("Servicing", "Servicing"),
        ),
        Verb(
            "quarantine",
            "Take it out of service at once, until a check by its agent has passed",
            _edges(
                "Quarantined", "Enrolled", "Verifying", "Inspecting", "Manageable", "Available", *ALLOCATED, "Draining",
                "Cleaning", "Servicing",
            ),
            "its holder loses it, with all data that is only there, and replaces it as a lost node",
        ),
        Verb(
            "recover",
            "Return it to service: its agent verifies it, and it is Available once that has passed; if it fails, it is "
            "Quarantined. A Draining node continues as before",
            _edges("Verifying", "Manageable", "Servicing", "Quarantined") | {"Draining": "Active"},
        ),
        Verb(
            "retire",
            "Remove it from the capacity permanently; its record is kept",
            _edges(
                "Retired", "Enrolled", "Manageable", "Available", *ALLOCATED, "Draining", "Cleaning", "Servicing",
                "Quarantined", "Verifying", "Inspecting",
            ),
            "its holder loses it, with all data that is only there, and replaces it as a lost node",
        ),
    ],
)  # fmt: skip

_STATE_BY_STATUS = {
    "Verifying": "Verifying",
    "Inspecting": "Inspecting",
    "Preparing": "Deploying",
    "Deploying": "Deploying",
    "Spare": "Spare",
    "Active": "Active",
    "Stopping": "Stopping",
    "Off": "Reserved",
    "Cleaning": "Cleaning",
    "Updating": "Verifying",  # recovered meanwhile: the write is finished, then the node is checked
    "Failed": "Quarantined",
}

_HOLDER_STATUSES = {"Preparing", "Deploying", "Spare", "Active", "Stopping", "Off"}
"""Statuses that serve a holder. One may continue for a stage after the node was released; the node is then on its way
to being cleaned."""


def node_state(
    *,
    allocated: bool,
    agent: str,
    health: str,
    status: str | None,
    in_sync: bool,
    parts: Sequence[str] = (),
    shared: bool = False,
    desired: str = AVAILABLE,
    task: str | None = None,
    tolerated: bool = False,
) -> str:
    """The state of a node.

    `allocated`: to an allocation, or `shared` by several; `agent`: Connected, Stale or Lost; `health`: Healthy,
    SubHealthy or Unhealthy; `status`: as last reported (None: never); `in_sync`: the report answers the newest spec;
    `parts`: the agent's progress with each allocation's part; `desired`: the requested state, and `task` what the agent
    was asked to do for it; `tolerated`: a failed stage does not take the node out of service. A held node keeps its
    last state while its agent is away: whether to give it up is MatrixCompute's decision.
    """
    if desired == RETIRED:
        return RETIRED
    if status is None and desired != QUARANTINED:
        return "Enrolled"
    if desired == SERVICING and (allocated or shared):
        return "Draining"
    if desired in (SERVICING, QUARANTINED) or status is None:
        return desired
    if not allocated and (agent == "Lost" or health == "Unhealthy"):
        return QUARANTINED
    if task is not None and not allocated and not in_sync:
        return TASK_STATES[task]
    if status == "Failed" and tolerated:
        return TASK_STATES[task] if task is not None and not allocated else "Deploying" if allocated else "Cleaning"
    if status == "Clean" and parts and not allocated and in_sync:
        return "Active" if "Active" in parts else "Deploying"
    if status == "Clean":
        return "Reserved" if allocated else desired if in_sync else "Cleaning"
    if not allocated and (not in_sync or status in _HOLDER_STATUSES):
        return "Cleaning"
    return _STATE_BY_STATUS[status]
