"""Applies of one object at one moment: whoever comes second changes what the first has made, as if it came later."""

from collections.abc import Awaitable
from typing import Any

from tests.matrixcontainer.kubeapi.api_session import WIDGETS, Answer, ApiSession, a_widget

ONE = f"{WIDGETS}/one"


def during_admission(session: ApiSession, verb: str, first: Awaitable[Answer]) -> list[Answer]:
    """While the next write of this verb is admitted, something else comes first; what it was answered."""
    answers: list[Answer] = []
    running: list[str] = []

    async def interfere(resource: Any, current: str, *_: Any) -> None:
        if resource.custom and current == verb and not running:
            running.append(current)
            answers.append(await first)

    session.api.core.verbs.writer.mutating.append(interfere)
    return answers


async def test_two_concurrent_first_applies_both_succeed(widgets: ApiSession) -> None:
    mine, yours = (a_widget(spec={"size": 3, "labels": {key: "v"}}) for key in ("a", "b"))
    earlier = during_admission(widgets, "CREATE", widgets.apply(ONE, yours, "you"))
    answer = await widgets.apply(ONE, mine, "me")
    assert [earlier[0].code, answer.code] == [201, 200]
    found = (await widgets.get(ONE)).body
    assert found["spec"]["labels"] == {"a": "v", "b": "v"}
    assert {entry["manager"] for entry in found["metadata"]["managedFields"]} == {"me", "you"}


async def test_apply_recreates_a_concurrently_deleted_object(widgets: ApiSession) -> None:
    await widgets.apply(ONE, a_widget(), "me")
    earlier = during_admission(widgets, "UPDATE", widgets.delete(ONE))
    answer = await widgets.apply(ONE, a_widget(spec={"size": 4}), "me")
    assert [earlier[0].code, answer.code] == [200, 201]
    assert (await widgets.get(ONE)).body["spec"]["size"] == 4


async def test_status_apply_to_a_concurrently_deleted_object_fails(widgets: ApiSession) -> None:
    await widgets.apply(ONE, a_widget(), "me")
    during_admission(widgets, "UPDATE", widgets.delete(ONE))
    answer = await widgets.apply(f"{ONE}/status", a_widget(status={"size": 1}), "me")
    assert (answer.code, answer.body["reason"]) == (404, "NotFound")
