"""What mutating admission may not do to a new object, and answers of webhooks that are none."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.matrixcontainer.kubeapi.hooks import CONFIGURATIONS, Hooks, hook_server, patch
from tests.matrixcontainer.kubeapi.talk import WIDGETS, Answer, Talk, a_widget


@pytest.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[Hooks]:
    async with hook_server(tmp_path) as found:
        yield found


async def configure(talk: Talk, kind: str, hook: dict[str, Any]) -> None:
    body = {"metadata": {"name": "tests"}, "webhooks": [hook]}
    assert (await talk.post(f"{CONFIGURATIONS}/{kind}webhookconfigurations", body)).code == 201


async def made_with(talk: Talk, hooks: Hooks, *operations: dict[str, Any]) -> Answer:
    await configure(talk, "mutating", hooks.hook("/change", patch(*operations)))
    return await talk.post(WIDGETS, a_widget())


async def test_admission_moves_no_object_to_another_namespace(widgets: Talk, hooks: Hooks) -> None:
    moved = await made_with(widgets, hooks, {"op": "replace", "path": "/metadata/namespace", "value": "kube-system"})
    assert (moved.code, moved.body["reason"]) == (400, "BadRequest")
    assert (await widgets.get(WIDGETS)).body["items"] == []


async def test_admission_takes_nothing_of_the_servers_away(widgets: Talk, hooks: Hooks) -> None:
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
