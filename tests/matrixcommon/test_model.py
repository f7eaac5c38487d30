"""Names, states, quantities, errors and filters, as tables."""

from __future__ import annotations

import pytest
from pydantic import Field

from matrixcommon.api.filters import parse_filter
from matrixcommon.model.clock import ScaledClock
from matrixcommon.model.errors import (
    Conflict,
    InsufficientCapacity,
    InternalError,
    InvalidField,
    NotFound,
    Unavailable,
    from_problem,
)
from matrixcommon.model.hardware_names import DieName, NodeName, validate_resource_name
from matrixcommon.model.quantities import format_duration, parse_timestamp, pluralized, timestamp
from matrixcommon.model.resource_model import ApiModel, set_condition
from matrixcompute.model.states import INSTANCE_STATES


def test_a_node_name_gives_its_location_and_parts():
    node = NodeName("sn0-c03-n2")
    assert (node.supernode, node.cabinet, node.part("node")) == ("sn0", "sn0-c03", 2)
    assert DieName("sn0-c03-n2-npu5-die1").npu == node.npu(5)
    assert node.npu(5).node == node


def test_names_sort_in_physical_order():
    names = [NodeName(f"sn0-c{cabinet:02d}-n{node}") for cabinet in range(12) for node in range(4)]
    assert sorted(names, reverse=True)[::-1] == names


@pytest.mark.parametrize(
    "text", ["", "sn0", "sn0-c3-n2", "sn0-c03-n2-npu5", "sn0-c03-n2\n", "SN0-c03-n2", "sn0-c03-n10"]
)
def test_invalid_node_names_are_refused(text):
    with pytest.raises(InvalidField):
        NodeName(text)


@pytest.mark.parametrize("name", ["a", "a-b", "a1", "1a", "a" * 63])
def test_resource_names_are_dns_labels(name):
    assert validate_resource_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a.b", "a" * 64, "ä", "a b", "a\n"])
def test_invalid_resource_names_are_refused_with_their_field(name):
    with pytest.raises(InvalidField) as refused:
        validate_resource_name(name)
    assert refused.value.field == "name"


def test_timestamps_round_trip():
    assert parse_timestamp(timestamp(1_750_000_000.25)) == 1_750_000_000.25


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250ms"), (12.34, "12.3s"), (190, "3m10s"), (7500, "2h05m"), (0.9996, "1.0s"), (59.97, "1m00s")],
)
def test_durations_are_formatted_for_people(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 spares"), (1, "1 spare"), (1.0, "1 spare"), (0.5, "0.5 spares"), (3, "3 spares")]
)
def test_counts_of_one_are_singular(count, text):
    assert pluralized(count, "spare") == text


def test_errors_round_trip_as_problem_documents():
    refused = InsufficientCapacity("no room", field="nodes", blocking=[{"domain": "sn0-c00", "free": 0}])
    back = from_problem(refused.problem(), 409)
    assert (type(back), back.message, back.field, back.blocking) == (
        InsufficientCapacity, refused.message, refused.field, refused.blocking,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFound), (409, Conflict), (500, InternalError), (503, Unavailable), (502, Unavailable)]
)
def test_a_response_without_a_reason_maps_to_an_error_by_status(status, kind):
    assert type(from_problem({}, status)) is kind


def test_an_illegal_transition_is_refused_with_the_legal_ones():
    with pytest.raises(Conflict, match=r"^an instance that is Pending .*may become: Deleting, Provisioning"):
        INSTANCE_STATES.check("Pending", "Active")
    assert INSTANCE_STATES.check("Active", "Active") == "Active"


def test_a_transitional_state_is_overdue_past_its_deadline():
    assert not INSTANCE_STATES.stuck("Repairing", 0, 3600)
    assert INSTANCE_STATES.stuck("Repairing", 0, 3601)
    assert not INSTANCE_STATES.stuck("Active", 0, 1e9)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        (None, True),
        ("state=Active", True),
        ("state!=Active", False),
        ("state=Active AND agent.status=Lost", True),
        ('nodes=4 AND ready=true AND state="Active"', True),
        ("missing=", True),
        ("missing=x", False),
        ("labels.team=a", True),
        ("labels.app=web", True),
        ("labels.app.kubernetes.io/name=search", True),
        ("labels.app.kubernetes.io/name!=search", False),
        ("labels.app.kubernetes.io/part-of=", True),
        ("labels.team.lead=a", False),
        ("holders=b", True),
        ("holders=c", False),
        ("holders!=b", False),
        ("spares=", True),
        ("members.node=sn0-c00-n1", True),
        ("members.node=sn0-c00-n2", False),
        ("members.ports.plane=UB", True),
    ],
)
def test_filters(text, matches):
    view = {
        "state": "Active",
        "agent": {"status": "Lost"},
        "nodes": 4,
        "ready": True,
        "labels": {"team": "a", "app": "web", "app.kubernetes.io/name": "search"},
        "holders": ["a", "b"],
        "spares": [],
        "members": [
            {"node": "sn0-c00-n0", "ports": []},
            {"node": "sn0-c00-n1", "ports": [{"plane": "UB"}, {"plane": "RDMA"}]},
        ],
    }
    assert parse_filter(text)(view) is matches


INVALID_FILTERS = (
    "state", "=x", "cabinet=sn0-c00,state!=Active", "a=b, c=d", "a=b and c.d=e", "a=b && c=d",
    "a=b OR c=d", "a=b or c.d!=e", "a=b || c=d", "a=b AND", 'a="b" AND', 'a="b', 'a="',
)  # fmt: skip


@pytest.mark.parametrize("text", INVALID_FILTERS)
def test_invalid_filters_are_refused(text):
    """Joined otherwise than by AND it would be one long value, which nothing has."""
    with pytest.raises(InvalidField, match="field=value"):
        parse_filter(text)


def test_a_quoted_value_may_look_like_terms():
    assert parse_filter('message="a=b, c=d"')({"message": "a=b, c=d"})
    assert parse_filter("message=one, two")({"message": "one, two"})
    assert parse_filter("message=now or never")({"message": "now or never"})
    assert parse_filter('message="a=b OR c=d"')({"message": "a=b OR c=d"})
    assert parse_filter('message=""')({"message": ""})


def test_a_condition_keeps_its_transition_time_while_the_status_is_unchanged():
    one = set_condition([], "Ready", False, "Waiting", "0 of 2", generation=1, now=0)
    two = set_condition(one, "Ready", False, "Waiting", "1 of 2", generation=1, now=10)
    three = set_condition(two, "Ready", True, "Ready", "2 of 2", generation=2, now=20)
    assert [c[0]["lastTransitionTime"] for c in (one, two, three)] == [timestamp(0), timestamp(0), timestamp(20)]
    assert one[0]["message"] == "0 of 2", "the earlier list is left as it was"


def test_a_scaled_clock_keeps_floors_in_wall_time():
    clock = ScaledClock(60.0)
    assert clock.at_least_wall(30.0, 2.0) == 120.0
    assert ScaledClock(1.0).at_least_wall(30.0, 2.0) == 30.0


def test_a_schema_without_prose_changes_only_with_what_is_accepted():
    def schema(wording, most=9):
        class Part(ApiModel):
            description: int = Field(1, le=most, description=wording)

        class Whole(ApiModel):
            parts: list[Part] = Field(default=[Part()], description=wording)

        Part.__doc__ = wording
        Whole.model_rebuild(force=True, _types_namespace={"Part": Part})
        return Whole.schema_without_prose()

    assert schema("one") == schema("another")
    assert schema("one") != schema("one", most=8)
    part = schema("one")["$defs"]["Part"]
    assert part["properties"]["description"]["default"] == 1, "a field of that name is not prose"
    assert schema("one")["properties"]["parts"]["default"] == [{"description": 1}]
