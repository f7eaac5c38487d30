"""What the journals say is what REST shows: projects are charged alike by both."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from matrixcommon.model.quantities import timestamp
from tests.accounting import Acknowledged, audit
from tests.rest_lists import LISTS, fetch
from tests.simulation.whole_stack.journals import Journals
from tests.small_stack import SmallStack


@pytest.mark.looptime
async def test_reservation_is_charged_at_once_and_kept_under_a_lower_quota(tmp_path):
    async with SmallStack(tmp_path) as stack:
        journals = Journals(tmp_path)
        resource = stack.http["resource"]

        async def judged() -> tuple[float, list[str]]:
            """(NPUs that the project is charged, what is broken), by REST and by the journals alike."""
            journals.follow("resource")
            shown = await fetch(stack.http, ["resource"])
            (by_rest,), (by_journals,) = shown["quotas"], journals.lists["quotas"]
            assert by_rest["usedNpus"] == by_journals["usedNpus"]
            return by_rest["usedNpus"], [*audit(shown), *journals.broken(Acknowledged())]

        starts = timestamp(stack.clock.now() + 30)
        later = {"nodes": 2, "npusPerNode": 4, "spares": 1, "startsAt": starts, "durationS": 1000}
        for path, body in (
            ("quotas/default", {"npus": 40}),
            ("allocations/now", {"nodes": 1}),
            ("reservations/later", later),
            ("quotas/default", {"npus": 8}),
        ):
            assert (await resource.put(f"/v1/{path}", json=body)).status_code == 200
        assert await judged() == (24, [])

        async def has_begun() -> bool:
            return (await resource.get("/v1/reservations/later")).json()["state"] == "Active"

        await stack.until(has_begun, "the reservation is held")
        assert await judged() == (24, [])
        refused = await resource.put("/v1/allocations/more", json={"npus": 1})
        assert refused.json()["reason"] == "QuotaExceeded"
        taken = await resource.put("/v1/allocations/job", json={"nodes": 2, "npusPerNode": 4, "reservation": "later"})
        assert taken.status_code == 200, taken.text
        assert await judged() == (24, [])
        journals.close()


QUOTA: dict[str, Any] = {"name": "default", "npus": 8}
ALLOCATED: dict[str, Any] = {
    "name": "a",
    "project": "default",
    "state": "Reserved",
    "nodes": 2,
    "members": [{"node": f"sn0-c00-n{rank}", "role": "member", "rank": rank} for rank in range(2)],
}
LOWERED = [
    ("quota", "ADDED", QUOTA),
    ("quota", "DELETED", QUOTA),
    ("allocation", "ADDED", ALLOCATED),
    ("quota", "ADDED", QUOTA),
]
WITH_A_SPARE = {**ALLOCATED, "spares": 1}
REPLENISHED = [
    ("allocation", "ADDED", WITH_A_SPARE),
    ("quota", "ADDED", QUOTA),
    (
        "allocation",
        "MODIFIED",
        {**WITH_A_SPARE, "members": [*ALLOCATED["members"], {"node": "sn0-c00-n2", "role": "spare"}]},
    ),
]
MOVES = {**ALLOCATED, "members": [ALLOCATED["members"][0], {"node": "sn0-c00-n1", "role": "successor", "rank": 1}]}
GRANTED = [
    ("quota", "ADDED", {**QUOTA, "npus": 40}),
    ("allocation", "ADDED", MOVES),
    ("quota", "MODIFIED", QUOTA),
    ("allocation", "MODIFIED", ALLOCATED),
    ("quota", "DELETED", QUOTA),
]
MOVED_BEYOND = [
    ("quota", "ADDED", QUOTA),
    ("allocation", "ADDED", MOVES),
    ("allocation", "MODIFIED", ALLOCATED),
    ("quota", "MODIFIED", {**QUOTA, "npus": 40}),
]
EXCEEDED = [("quota", "ADDED", QUOTA), ("allocation", "ADDED", ALLOCATED), ("quota", "MODIFIED", {**QUOTA, "npus": 40})]


@pytest.mark.parametrize(
    ("changes", "exceeds"),
    [(LOWERED, False), (REPLENISHED, False), (GRANTED, False), (EXCEEDED, True), (MOVED_BEYOND, True)],
)
def test_quota_is_checked_against_usage_at_its_change(
    tmp_path: Path, changes: list[tuple[str, str, dict[str, Any]]], exceeds: bool
) -> None:
    """Also where all of it comes between two looks, as from a service that stood still and works off what waited."""
    databases = {name: sqlite3.connect(tmp_path / f"{name}.db") for name in LISTS}
    for database in databases.values():
        database.execute("CREATE TABLE changes (rv INTEGER, kind TEXT, name TEXT, type TEXT, body TEXT)")
    journals = Journals(tmp_path)

    def judged(since: int, upto: int) -> list[str]:
        for rv, (kind, type_, body) in enumerate(changes[since:upto], since + 1):
            row = (rv, kind, body["name"], type_, json.dumps(body))
            databases["resource"].execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?)", row)
        databases["resource"].commit()
        journals.follow("resource")
        return [each for each in journals.broken(Acknowledged()) if " npus of " in each]

    assert judged(0, 1) == []
    assert judged(1, len(changes)) == ["project default holds 16.0 npus of 8"] * exceeds
    journals.close()
    for database in databases.values():
        database.close()
