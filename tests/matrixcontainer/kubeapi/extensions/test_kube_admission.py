"""What mutating admission may not do to a new object, and answers of webhooks that are none."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.api_session import WIDGETS, Answer, ApiSession, a_widget
from tests.matrixcontainer.kubeapi.hooks import CONFIGURATIONS, Hooks, hook_server, patch


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[Hooks]:
    async with hook_server(tmp_path) as found:
        yield found


async def configure(session: ApiSession, kind: str, hook: dict[str, Any]) -> None:
    body = {"metadata": {"name": "tests"}, "webhooks": [hook]}
    assert (await session.post(f"{CONFIGURATIONS}/{kind}webhookconfigurations", body)).code == 201


async def made_with(session: ApiSession, hooks: Hooks, *operations: dict[str, Any]) -> Answer:
    await configure(session, "mutating", hooks.hook("/change", patch(*operations)))
    return await session.post(WIDGETS, a_widget())


async def test_admission_cannot_change_the_namespace(widgets: ApiSession, hooks: Hooks) -> None:
    moved = await made_with(widgets, hooks, {"op": "replace", "path": "/metadata/namespace", "value": "kube-system"})
    assert (moved.code, moved.body["reason"]) == (400, "BadRequest")
    assert (await widgets.get(WIDGETS)).body["items"] == []


async def test_admission_cannot_remove_server_fields(widgets: ApiSession, hooks: Hooks) -> None:
    operations = [
        {"op": "remove", "path": "/metadata/namespace"},
        {"op": "remove", "path": "/metadata/uid"},
        {"op": "add", "path": "/metadata/deletionTimestamp", "value": "2026-01-01T00:00:00Z"},
        {"op": "add", "path": "/metadata/deletionGracePeriodSeconds", "value": 5},
        {"op": "add", "path": "/status", "value": {"size": 7}},
    ]
    made = await made_with(widgets, hooks, *operations)
    assert made.code == 201
    meta = made.body["metadata"]
    assert meta["namespace"] == "default"
    assert meta["uid"] == hooks.seen["/change"][0]["object"]["metadata"]["uid"]
    assert "deletionTimestamp" not in meta
    assert "status" not in made.body
    assert (await widgets.get(f"{WIDGETS}/one")).body == made.body


@pytest.mark.parametrize(
    "part",
    [
        {"warnings": 5},
        {"warnings": "odd"},
        {"status": "denied", "allowed": False},
        {"status": {"message": ["denied"]}, "allowed": False},
        {"status": {"details": 5}, "allowed": False},
        {"allowed": "false"},
        {"patch": 5, "patchType": "JSONPatch"},
    ],
)
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_mistyped_webhook_response_is_a_failed_call(
    widgets: ApiSession, hooks: Hooks, part: dict[str, Any], policy: str
) -> None:
    odd = hooks.hook("/odd", lambda request: {"allowed": True} | part, failurePolicy=policy)
    await configure(widgets, "mutating", odd)
    made = await widgets.post(WIDGETS, a_widget())
    if policy == "Ignore":
        assert (made.code, made.warnings) == (201, [])
    else:
        assert made.code == 500
        assert "couldn't decode the answer: response." in made.body["message"]


async def test_nulls_in_a_webhook_response_count_as_absent(widgets: ApiSession, hooks: Hooks) -> None:
    nulls = {"status": None, "warnings": None, "patch": None, "patchType": None, "auditAnnotations": None}
    await configure(widgets, "mutating", hooks.hook("/nulls", lambda request: {"allowed": True} | nulls))
    assert (await widgets.post(WIDGETS, a_widget())).code == 201
