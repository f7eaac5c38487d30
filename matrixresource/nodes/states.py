"""The states of a node: one table of them, of the moves between them and of who makes each.

A node's state is read off: from what is requested (who holds it, and the state that an administrator or a rule wants it
in), and from what its agent reported. `schedulable`, `power`, `health` and `agent` stand beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrixcommon.model.state_machine import State, StateMachine, Verb

REPORT, ALLOCATOR, RULE = "report", "allocator", "rule"
"""Who moves a node besides verbs: its agent's report or silence, who takes and gives back nodes, a rule of ours."""

AVAILABLE, MANAGEABLE, SERVICING, QUARANTINED, RETIRED = (
    "Available",
    "Manageable",
    "Servicing",
    "Quarantined",
    "Retired",
)
"""The states that a node can be wanted in; whoever wants it Available lets allocations have it."""

STAGE_FAILED = "StageFailed"
"""The reason of a node whose agent could not finish its work; the words name the stage."""
STAGE_TOLERATED = "StageFailedTolerated"
"""Why a node whose stage failed is not quarantined: as many of its domain are out as may be."""

ALLOCATED = ("Reserved", "Deploying", "Spare", "Active", "Stopping")
PASSING = {"verify": "Verifying", "inspect": "Inspecting", "clean": "Cleaning", "update": "Servicing"}
"""The state of a node that does a task."""


def _to(after: str, *before: str) -> dict[str, str]:
    return dict.fromkeys(before, after)


NODE_STATES = StateMachine(
    "node",
    start="Enrolled",
    states=[
        State("Enrolled", "known from the topology; its agent has not reported yet"),
        State("Verifying", "its agent proves which node it is, and that what it has works", 600),
        State("Inspecting", "the agent compares what it finds with what was expected", 1200),
        State("Manageable", "verified, and kept out until it is cleaned or recovered"),
        State("Available", "clean, powered and free to be allocated"),
        State("Reserved", "held by an allocation that does not use it now: not yet, or switched off"),
        State("Stopping", "held; its work is stopped and it is switched off", 600),
        State("Deploying", "the image is written, the node boots and joins", 1800),
        State("Spare", "deployed and idle, held beside an allocation to step in"),
        State("Active", "serving its allocation"),
        State("Draining", "to be serviced; whoever has it is to leave first", 7200),
        State("Cleaning", "being wiped after use", 1800),
        State("Servicing", "kept out for somebody to work on it"),
        State("Quarantined", "kept out: lost, faulty, flapping, or not proven to work"),
        State("Retired", "no part of the capacity any more; the record is kept"),
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
        # Released, it may be seen again only once it is clean: reports in between can be lost.
        "Spare": dict.fromkeys(("Active", "Deploying", "Stopping", "Reserved", "Available", "Quarantined"), REPORT)
        | {"Cleaning": ALLOCATOR},
        "Active": dict.fromkeys(("Stopping", "Deploying", "Reserved", "Available", "Quarantined"), REPORT)
        | {"Cleaning": ALLOCATOR},
        "Stopping": dict.fromkeys(("Reserved", "Deploying", "Active", "Available", "Quarantined"), REPORT)
        | {"Cleaning": ALLOCATOR},
        "Draining": {"Servicing": ALLOCATOR, "Quarantined": REPORT},
        "Cleaning": dict.fromkeys(("Available", "Reserved", "Deploying", "Active", "Quarantined", "Verifying"), REPORT),
        # Asked to recover while its agent was away, it is wiped first; one that is shared has never been given up.
        "Quarantined": {"Verifying": RULE} | dict.fromkeys(("Cleaning", "Deploying", "Active", "Available"), REPORT),
    },
    verbs=[
        Verb("enrol", "Have a retired node again: it reports, is verified and Available", _to("Enrolled", "Retired")),
        Verb(
            "verify",
            "Take it out and have its agent prove which node it is and that what it has works; then it is Manageable",
            _to("Verifying", "Available", "Manageable"),
        ),
        Verb(
            "inspect",
            "Take it out and have its agent report what it finds anew; then it is Manageable",
            _to("Inspecting", "Available", "Manageable"),
        ),
        Verb("clean", "Wipe a node that is Manageable; then it is Available", _to("Cleaning", "Manageable")),
        Verb(
            "service",
            "Keep it out for somebody to work on it. Whoever has it moves away first: until then it is Draining",
            _to("Draining", *ALLOCATED) | _to("Servicing", "Available", "Manageable", "Cleaning", "Quarantined"),
        ),
        Verb(
            "update",
            "Have its agent write the firmware that is named, while it is serviced; then `:recover` has it checked",
            _to("Servicing", "Servicing"),
        ),
        Verb(
            "quarantine",
            "Keep it out at once, until a check by its agent has passed",
            _to(
                "Quarantined", "Enrolled", "Verifying", "Inspecting", "Manageable", "Available", *ALLOCATED, "Draining",
                "Cleaning", "Servicing",
            ),
            "whoever has it loses it, with what is only there, and has it replaced as a lost node",
        ),
        Verb(
            "recover",
            "Have it back: its agent verifies it, and only when that has passed it is Available; one that fails is "
            "Quarantined. One that is Draining stays as it was",
            _to("Verifying", "Manageable", "Servicing", "Quarantined") | {"Draining": "Active"},
        ),
        Verb(
            "retire",
            "Take it out of the capacity for good; its record is kept",
            _to(
                "Retired", "Enrolled", "Manageable", "Available", *ALLOCATED, "Draining", "Cleaning", "Servicing",
                "Quarantined", "Verifying", "Inspecting",
            ),
            "whoever has it loses it, with what is only there, and has it replaced as a lost node",
        ),
    ],
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
    "Updating": "Verifying",  # recovered meanwhile: what is being written is written, then it is checked
    "Failed": "Quarantined",
}

_FOR_A_HOLDER = {"Preparing", "Deploying", "Spare", "Active", "Stopping", "Off"}
"""What an agent does for whoever holds the node. It may go on for a stage after nobody does: the node is then on its
way to being cleaned."""


def node_state(
    *,
    current: bool,
    agent: str,
    health: str,
    status: str | None,
    caught_up: bool,
    parts: Sequence[str] = (),
    shared: bool = False,
    desired: str = AVAILABLE,
    task: str | None = None,
    tolerated: bool = False,
) -> str:
    """The state of a node.

    `current`: held by an allocation, or `shared` by several; `agent` Connected, Stale or Lost; `health` Healthy,
    SubHealthy or Unhealthy; `status` as last reported (None: never); `caught_up` when the report answers the newest
    spec; `parts` how far the agent is with what several allocations have of it; `desired` the state it is wanted in,
    and `task` what its agent was asked to do for that; `tolerated`: a stage that failed is no reason to keep it out. A
    held node keeps the state it was last seen in while its agent is away: whether to give it up is MatrixCompute's
    decision, not an appearance.
    """
    if desired == RETIRED:
        return RETIRED
    if status is None and desired != QUARANTINED:
        return "Enrolled"
    if desired == SERVICING and (current or shared):
        return "Draining"
    if desired in (SERVICING, QUARANTINED) or status is None:
        return desired
    if not current and (agent == "Lost" or health == "Unhealthy"):
        return QUARANTINED
    if task is not None and not current and not caught_up:
        return PASSING[task]
    if status == "Failed" and tolerated:
        return PASSING[task] if task is not None and not current else "Deploying" if current else "Cleaning"
    if status == "Clean" and parts and not current and caught_up:
        return "Active" if "Active" in parts else "Deploying"
    if status == "Clean":
        return "Reserved" if current else desired if caught_up else "Cleaning"
    if not current and (not caught_up or status in _FOR_A_HOLDER):
        return "Cleaning"
    return _SEEN[status]
