"""News of a member that has just failed are told from all others, once each."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcommon.api.client import WatchEvent
from matrixcompute.reconcilers.member_failures import MemberFailures


def news(*members: dict[str, Any], name: str = "one", type: str = "MODIFIED") -> WatchEvent:
    view = {"project": "default", "name": name, "members": list(members)}
    return WatchEvent(type, 1, view)


WELL, LOST = {"node": "a", "agent": "Connected"}, {"node": "a", "agent": "Lost"}
STALE, FAULTY = {"node": "a", "agent": "Stale"}, {"node": "b", "agent": "Connected", "health": "Unhealthy"}

HEARD: list[tuple[str, list[WatchEvent | None], list[bool]]] = [
    ("a member that is well, or only late", [news(WELL), news(STALE)], [False, False]),
    ("one that is lost, once", [news(STALE), news(LOST), news(LOST)], [False, True, False]),
    ("one that is faulty beside one that is lost", [news(LOST), news(LOST, FAULTY)], [True, True]),
    ("one of two that is well again", [news(LOST, FAULTY), news(WELL, FAULTY)], [True, False]),
    ("one that is lost again", [news(LOST), news(WELL), news(LOST)], [True, False, True]),
    ("of an allocation that is gone", [news(LOST), news(LOST, type="DELETED"), news(LOST)], [True, False, True]),
    ("of another allocation", [news(LOST), news(LOST, name="two")], [True, True]),
    ("nothing, after a break", [news(LOST), None, news(LOST)], [True, False, False]),
]


@pytest.mark.parametrize(("sentence", "events", "urgent"), HEARD, ids=[each[0] for each in HEARD])
def test_new_member_failure_is_detected_once(sentence, events, urgent):
    heard = MemberFailures()
    assert [heard.observe(event) for event in events] == urgent
    assert heard.pop_new_failure() is any(urgent)
    assert heard.pop_new_failure() is False, "it was looked at since"
