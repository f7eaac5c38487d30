"""News of a member that has just failed are told from all others, once each."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcommon.api.client import WatchEvent
from matrixcompute.reconcilers.member_failures import MemberFailures


def allocation_event(*members: dict[str, Any], name: str = "one", type: str = "MODIFIED") -> WatchEvent:
    view = {"project": "default", "name": name, "members": list(members)}
    return WatchEvent(type, 1, view)


HEALTHY, LOST = {"node": "a", "agent": "Connected"}, {"node": "a", "agent": "Lost"}
STALE, FAULTY = {"node": "a", "agent": "Stale"}, {"node": "b", "agent": "Connected", "health": "Unhealthy"}

CASES: list[tuple[str, list[WatchEvent | None], list[bool]]] = [
    ("a member that is well, or only late", [allocation_event(HEALTHY), allocation_event(STALE)], [False, False]),
    (
        "one that is lost, once",
        [allocation_event(STALE), allocation_event(LOST), allocation_event(LOST)],
        [False, True, False],
    ),
    (
        "one that is faulty beside one that is lost",
        [allocation_event(LOST), allocation_event(LOST, FAULTY)],
        [True, True],
    ),
    (
        "one of two that is well again",
        [allocation_event(LOST, FAULTY), allocation_event(HEALTHY, FAULTY)],
        [True, False],
    ),
    (
        "one that is lost again",
        [allocation_event(LOST), allocation_event(HEALTHY), allocation_event(LOST)],
        [True, False, True],
    ),
    (
        "of an allocation that is gone",
        [allocation_event(LOST), allocation_event(LOST, type="DELETED"), allocation_event(LOST)],
        [True, False, True],
    ),
    ("of another allocation", [allocation_event(LOST), allocation_event(LOST, name="two")], [True, True]),
    ("nothing, after a break", [allocation_event(LOST), None, allocation_event(LOST)], [True, False, False]),
]


@pytest.mark.parametrize(("sentence", "events", "urgent"), CASES, ids=[each[0] for each in CASES])
def test_new_member_failure_is_detected_once(sentence, events, urgent):
    failures = MemberFailures()
    assert [failures.observe(event) for event in events] == urgent
    assert failures.pop_new_failure() is any(urgent)
    assert failures.pop_new_failure() is False, "it was looked at since"
