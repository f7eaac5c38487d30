"""What a maintenance does next, as tables: one look at what the neighbours show, and what it comes to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from matrixcommon.model.quantities import timestamp
from matrixcompute.maintenance.decision import Observations, SwitchDrain, plan_maintenance
from matrixcompute.maintenance.spec import MaintenanceRequest, MaintenanceSpec, MaintenanceUnit
from matrixcompute.maintenance.states import MAINTENANCE_STATES
from matrixresource.contract.nodes import NodeView

NOW = 1_000_000.0
OURS = "maintenance-fw"
N0, N1, N2 = "sn0-c00-n0", "sn0-c00-n1", "sn0-c01-n0"


def spec(**more: Any) -> MaintenanceSpec:
    given = {"target": {"supernode": "sn0"}, "action": "Firmware", "firmware": "b"}
    return MaintenanceSpec.model_validate(given | more)


def serviced(**more: Any) -> MaintenanceSpec:
    return spec(action="Service", firmware=None, **more)


def node_view(name: str = N0, state: str = "Available", **more: Any) -> NodeView:
    plain = {
        "name": name, "state": state, "supernode": "sn0", "cabinet": name[:7], "npus": 8, "cpus": 4,
        "schedulable": True, "power": "On", "health": "Healthy", "agent": "Connected", "epoch": 1,
        "desired_role": "Clean", "assignment_generation": 1, "observed_generation": 1, "firmware": "a",
        "desired_state": "Servicing" if state in ("Servicing", "Draining") else "Available",
    }  # fmt: skip
    return NodeView.model_validate(plain | more)


def unit(name: str = N0, state: str = "Pending", since: float = NOW - 100, **more: Any) -> MaintenanceUnit:
    begun = None if state == "Pending" else timestamp(since)
    return MaintenanceUnit.model_validate({"name": name, "state": state, "since": begun} | more)


def plan_units(
    what: MaintenanceSpec, units: list[MaintenanceUnit], nodes: list[NodeView], state: str = "Running", **more: Any
) -> tuple[list[tuple[str, str]], list[tuple[str, str]], str, str]:
    """What becomes of each unit, what is asked for, the state of the whole and the reason."""
    observed = Observations({node.name: node for node in nodes}, **more)
    plan = plan_maintenance(OURS, what, state, units, observed, NOW)
    assert plan.state == state or plan.state in MAINTENANCE_STATES.moves[state]
    return (
        [(each.state, each.reason) for each in plan.units],
        [(ask.action.value, ask.target) for ask in plan.requests],
        plan.state,
        plan.reason,
    )


BEGIN = [("cordon", N0), ("service", N0)]
MINE = [OURS]


@pytest.mark.parametrize(
    ("sentence", "what", "before", "node", "after", "asks"),
    [
        ("a free node is cordoned and serviced", spec(), unit(), node_view(), "Draining", BEGIN),
        ("so is one that is held", spec(), unit(), node_view(state="Active", allocation="one"), "Draining", BEGIN),
        ("what has the firmware already is left", spec(), unit(), node_view(firmware="b"), "Skipped", []),
        ("what others keep out is left", spec(), unit(), node_view(state="Retired", desired_state="Retired"), "Skipped", []),
        ("what others service is waited for", spec(), unit(), node_view(state="Servicing"), "Pending", []),
        ("a silent one is waited for", spec(), unit(), node_view(agent="Stale"), "Pending", []),
        ("one in a check is waited for", spec(), unit(), node_view(state="Verifying"), "Pending", []),
        ("parts are not moved", spec(), unit(), node_view(state="Active", shared_by=2), "Pending", []),
        ("not to be moved: it keeps newcomers off", spec(movable=False), unit(), node_view(state="Active", allocation="one"), "Cordoned", BEGIN[:1]),
        ("and begins when it is left", spec(movable=False), unit(state="Cordoned"), node_view(cordoned_by=MINE), "Draining", BEGIN[1:]),
        ("kept out meanwhile, it is free of the cordon", spec(movable=False), unit(state="Cordoned"), node_view(state="Quarantined", desired_state="Quarantined", cordoned_by=MINE), "Cordoned", [("uncordon", N0)]),
        ("and then left to whoever keeps it out", spec(movable=False), unit(state="Cordoned"), node_view(state="Quarantined", desired_state="Quarantined"), "Skipped", []),
        ("back before that, it is waited for again", spec(movable=False), unit(state="Cordoned", reason="KeptOut"), node_view(state="Active", allocation="one"), "Cordoned", BEGIN[:1] * 2),
        ("one that drains is not taken from them either", spec(), unit(state="Draining"), node_view(state="Quarantined", desired_state="Quarantined", cordoned_by=MINE), "Returning", [("uncordon", N0)]),
        ("and has failed without the cordon", spec(), unit(state="Returning"), node_view(state="Retired", desired_state="Retired"), "Failed", []),
        ("asked again after a crash", spec(), unit(state="Draining"), node_view(), "Draining", BEGIN),
        ("a member that moves is awaited", spec(), unit(state="Draining"), node_view(state="Draining", allocation="one", cordoned_by=MINE), "Draining", []),
        ("left, it is in service", spec(), unit(state="Draining"), node_view(state="Servicing", cordoned_by=MINE), "InService", []),
        ("its firmware is written", spec(), unit(state="InService"), node_view(state="Servicing", cordoned_by=MINE), "InService", [("update", N0)]),
        ("which is awaited", spec(), unit(state="InService"), node_view(state="Servicing", task="update"), "InService", []),
        ("written, it is checked", spec(), unit(state="InService"), node_view(state="Servicing", firmware="b"), "Returning", [("recover", N0)]),
        ("one that fails is open to who recovers it", spec(), unit(state="InService"), node_view(state="Servicing", state_reason="StageFailed", cordoned_by=MINE), "InService", [("uncordon", N0)]),
        ("and has failed", spec(), unit(state="InService"), node_view(state="Servicing", state_reason="StageFailed"), "Failed", []),
        ("the check is awaited", spec(), unit(state="Returning", worked=True), node_view(state="Verifying", firmware="b"), "Returning", []),
        ("then only the own cordon goes", spec(), unit(state="Returning", worked=True), node_view(firmware="b", cordoned_by=["admin", OURS]), "Returning", [("uncordon", N0)]),
        ("and that is all", spec(), unit(state="Returning", worked=True), node_view(firmware="b", cordoned_by=["admin"]), "Done", []),
        ("a check that fails is the end", spec(), unit(state="Returning", worked=True), node_view(state="Quarantined", desired_state="Quarantined"), "Failed", []),
        ("silent meanwhile, it is awaited", spec(), unit(state="Returning", worked=True), node_view(state="Quarantined", agent="Lost"), "Returning", []),
        ("kept out for a time", serviced(service_s=300), unit(state="InService"), node_view(state="Servicing"), "InService", []),
        ("that passes", serviced(service_s=60), unit(state="InService"), node_view(state="Servicing"), "Returning", [("recover", N0)]),
        ("or until somebody recovers it", serviced(), unit(state="InService"), node_view(state="Verifying"), "Returning", []),
        ("one that is gone has failed", spec(), unit(state="Draining"), node_view(N1), "Failed", []),
    ],
)  # fmt: skip
def test_unit_transitions(sentence, what, before, node, after, asks):
    units, asked, _, _ = plan_units(what, [before], [node])
    assert (units[0][0], asked) == (after, asks), sentence


@pytest.mark.parametrize(
    ("sentence", "before", "node", "after", "asks"),
    [
        ("what was not begun is left", unit(), node_view(), "Skipped", []),
        ("who has it stays", unit(state="Draining"), node_view(state="Draining", allocation="one", cordoned_by=MINE), "Returning", [("recover", N0)]),
        ("and is free of the cordon", unit(state="Returning"), node_view(state="Active", allocation="one", cordoned_by=MINE), "Returning", [("uncordon", N0)]),
        ("then left as it was", unit(state="Returning"), node_view(state="Active", allocation="one"), "Skipped", []),
        ("a cordon alone is taken back", unit(state="Cordoned"), node_view(state="Active", allocation="one", cordoned_by=MINE), "Returning", [("uncordon", N0)]),
        ("what is written is written to its end", unit(state="InService"), node_view(state="Servicing", task="update"), "InService", []),
        ("what is only serviced comes back", unit(state="InService"), node_view(state="Servicing"), "Returning", [("recover", N0)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("state", ["Aborting", "Expiring"])
def test_ending_maintenance_returns_all_nodes(state, sentence, before, node, after, asks):
    units, asked, _, _ = plan_units(spec(), [before], [node], state)
    assert (units[0][0], asked) == (after, asks), sentence


UNITS = [unit(N0), unit(N1), unit(N2)]
TWO = {"budget": {"maxUnavailable": 2}}


@pytest.mark.parametrize(
    ("sentence", "what", "units", "nodes", "begun"),
    [
        ("one at once", spec(), UNITS, [node_view(N0), node_view(N1), node_view(N2)], [N0]),
        ("two", spec(**TWO), UNITS, [node_view(N0), node_view(N1), node_view(N2)], [N0, N1]),
        ("free ones first", spec(), UNITS, [node_view(N0, "Active", allocation="one"), node_view(N1), node_view(N2)], [N1]),
        ("one in a cabinet", spec(budget={"maxUnavailable": 9, "maxUnavailablePerCabinet": 1}), UNITS, [node_view(N0), node_view(N1), node_view(N2)], [N0, N2]),
        ("who is out already counts", spec(**TWO), UNITS, [node_view(N0), node_view(N1), node_view(N2, "Quarantined", agent="Lost")], [N0]),
        ("and may use the budget up", spec(), UNITS, [node_view(N0), node_view(N1), node_view(N2, "Quarantined")], []),
        ("one that failed counts", spec(), [unit(N0, "Failed"), *UNITS[1:]], [node_view(N0, "Servicing"), node_view(N1), node_view(N2)], []),
        ("members of one instance together", spec(**TWO), UNITS, [node_view(n, "Active", allocation="one") for n in (N0, N1, N2)], [N0, N1]),
    ],
)  # fmt: skip
def test_budget_limits_begun_units(sentence, what, units, nodes, begun):
    _, asked, state, _ = plan_units(what, units, nodes)
    assert sorted(of for action, of in asked if action == "service") == begun, sentence
    assert state == "Running"


def test_members_of_incomplete_instances_are_not_drained():
    nodes = [node_view(N0, "Active", allocation="one")]
    why = {"one": ("BelowFloor", "instance one has 1 of 2 members ready")}
    units, asked, state, reason = plan_units(spec(), [unit()], nodes, unmovable=why)
    assert (units, asked, state, reason) == ([("Pending", "BelowFloor")], [], "Running", "BelowFloor")


@pytest.mark.parametrize("why", ["NoRoom", "InstanceChanging", "InstanceFailed"])
def test_blocked_holder_is_named(why):
    nodes = [node_view(N0, "Draining", allocation="one", cordoned_by=MINE)]
    units, asked, _, reason = plan_units(
        spec(), [unit(state="Draining")], nodes, blocked={"one": (why, "it does not go")}
    )
    assert (units, asked, reason) == ([("Draining", why)], [], why)


@pytest.mark.parametrize(
    ("sentence", "state", "what", "units", "after"),
    [
        ("its time has not come", "Running", spec(notBefore=timestamp(NOW + 60)), [unit()], "Scheduled"),
        ("its time has come", "Scheduled", spec(notBefore=timestamp(NOW - 60)), [unit()], "Running"),
        ("its deadline has passed", "Running", spec(deadline=timestamp(NOW - 1)), [unit()], "Expiring"),
        ("also while it is paused", "Paused", spec(deadline=timestamp(NOW - 1)), [unit()], "Expiring"),
        ("nothing is left of it", "Expiring", spec(deadline=timestamp(NOW - 1)), [unit(state="Skipped")], "Expired"),
        ("aborted", "Aborting", spec(), [unit(state="Done")], "Aborted"),
        ("paused, it begins with nothing", "Paused", spec(), [unit()], "Paused"),
        ("everything is done", "Running", spec(), [unit(state="Done"), unit(N1, "Skipped")], "Completed"),
        ("something failed", "Running", spec(), [unit(state="Done"), unit(N1, "Failed", reason="x")], "Failed"),
    ],
)
def test_maintenance_state(sentence, state, what, units, after):
    assert plan_units(what, units, [node_view(N0), node_view(N1)], state)[2] == after, sentence


def test_paused_maintenance_shows_no_old_reasons_for_waiting():
    waiting = unit(reason="NoBudget", message="1 of at most 1 nodes are out: sn0-c00-n1 Servicing")
    occupied = unit(N1, "Cordoned", reason="InUse", message="one holds it")
    nodes = [node_view(N0), node_view(N1, "Active", allocation="one", cordoned_by=MINE)]
    units, asked, state, _ = plan_units(serviced(movable=False), [waiting, occupied], nodes, "Paused")
    assert (units, asked, state) == ([("Pending", ""), ("Cordoned", "InUse")], [], "Paused")


SWITCH = serviced(target={"switch": "sn0-l2p4-k11"}, service_s=60)
CHIP = "sn0-l2p4-k11"


@pytest.mark.parametrize(
    ("sentence", "before", "drain", "after", "asks"),
    [
        ("routes are led around it", unit(CHIP), None, "Draining", [("drain", CHIP)]),
        ("refused, it is asked for again", unit(CHIP, "Draining"), None, "Draining", [("drain", CHIP)]),
        ("agents are awaited", unit(CHIP, "Draining"), SwitchDrain(False), "Draining", []),
        ("no route crosses it", unit(CHIP, "Draining"), SwitchDrain(True), "InService", []),
        ("its time passes", unit(CHIP, "InService"), SwitchDrain(True), "Returning", [("restore", CHIP)]),
        ("it is in use again", unit(CHIP, "Returning", worked=True), None, "Done", []),
        ("somebody ended the drain", unit(CHIP, "InService", since=NOW), None, "Done", []),
    ],
)
def test_switch_transitions(sentence, before, drain, after, asks):
    units, asked, _, _ = plan_units(SWITCH, [before], [], drain=drain)
    assert (units[0][0], asked) == (after, asks), sentence


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("target", {"target": {}}),
        ("target", {"target": {"node": N0, "cabinet": "sn0-c00"}}),
        ("target.node", {"target": {"node": "n1"}}),
        ("firmware", {"firmware": None}),
        ("firmware", {"action": "Service"}),
        ("serviceS", {"serviceS": 5}),
        ("action", {"target": {"switch": CHIP}}),
        ("notBefore", {"notBefore": "tomorrow"}),
        ("deadline", {"deadline": "2026-01-31T08:00:00"}),
        ("deadline", {"notBefore": "2026-02-01T00:00:00Z", "deadline": "2026-01-31T08:00:00Z"}),
        ("budget.maxUnavailable", {"budget": {"maxUnavailable": 0}}),
    ],
)
def test_invalid_spec_is_refused_with_its_field(field, change):
    with pytest.raises(ValidationError) as refused:
        MaintenanceRequest.model_validate({**spec().wire(), **change})
    assert ".".join(map(str, refused.value.errors()[0]["loc"])) == field


def test_refused_switch_drain_is_shown():
    refused = unit(CHIP, "Draining", reason="InsufficientBandwidth", message="without it 2 slices would have less")
    units, asked, state, reason = plan_units(SWITCH, [refused], [])
    assert (units, asked) == ([("Draining", "InsufficientBandwidth")], [("drain", CHIP)])
    assert (state, reason) == ("Running", "InsufficientBandwidth")
