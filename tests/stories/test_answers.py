"""The answer to a PUT is the resource as it is from then on: its etag is good for the next If-Match."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stack import Stack

pytestmark = pytest.mark.looptime

ASKED: dict[str, dict[str, Any]] = {
    "resource /v1/quotas/default": {"npus": 80},
    "resource /v1/reservations/later": {"nodes": 2, "startsAt": "2100-01-01T00:00:00Z", "durationS": 3600},
    "link /v1/drains/swap": {"elements": ["sn0-l2p3-k11"]},
    "compute /v1/scaling-policies/p": {"scaleTargetRef": {"name": "one"}, "maxReplicas": 4},
    "compute /v1/recovery-policies/p": {"instance": "one"},
    "compute /v1/disruption-budgets/p": {"nodes": "10%"},
    "compute /v1/maintenances/later": {
        "target": {"node": "sn0-c00-n0"},
        "notBefore": "2100-01-01T00:00:00Z",
    },
    "infer /v1/usage-limits/few": {"requestsPerMinute": 5},
    "infer /v1/reports/mine": {"experiment": "run", "title": "t", "document": {"finished": 1}},
}


async def test_put_returns_the_resource_as_stored(tmp_path):
    async with Stack(tmp_path, infer=True) as stack:
        for asked, body in ASKED.items():
            service, path = asked.split()
            answer = await stack.http[service].put(path, json=body)
            assert answer.is_success, answer.text
            seen = (await stack.get(service, path)).json()
            for field in ("createdAt", "updatedAt", "etag", "generation"):
                assert answer.json()[field] == seen[field], (asked, field)
            again = await stack.http[service].put(path, json=body, headers={"If-Match": answer.json()["etag"]})
            assert again.is_success, again.text
