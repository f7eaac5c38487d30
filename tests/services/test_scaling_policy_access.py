"""Who may say how an instance is scaled: its project's editors and admins, field by field, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcompute.autoscaling.policy import ScalingPolicySpec
from tests.stack import Stack

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]

PATH = "/v1/scaling-policies/follow"
SPEC = {"project": "blue", "scaleTargetRef": {"name": "b"}, "minReplicas": 2, "maxReplicas": 8}
CHANGES: dict[str, Any] = {
    "minReplicas": 3,
    "maxReplicas": 48,
    "cooldownPeriod": 10,
    "block": 2,
    "metrics": [{"type": "Object", "object": {
        "describedObject": {"kind": "CloudMatrixInfer", "name": "chat"},
        "metric": {"name": "queued"}, "target": {"type": "AverageValue", "averageValue": 2.0}}}],
    "pools": {"prefill": {"minReplicas": 1}, "decode": {"minReplicas": 1, "maxReplicas": 4}},
    "objective": {"tpotSeconds": 0.02},
    "behavior": {"scaleDown": {"selectPolicy": "Disabled"}},
    "schedules": [{"name": "day", "start": "08:00", "end": "18:00", "minReplicas": 5}],
    "warmSpares": 4,
    "predictive": "Preview",
}  # fmt: skip
"""Of every field another value than it has."""
KEPT = {"project", "scaleTargetRef"}
"""Fields that nobody may change, whoever it is."""
STRANGERS: dict[str, tuple[str, str]] = {
    "a viewer": ("viewer", "blue"),
    "another project's editor": ("editor", "red"),
    "another project's viewer": ("viewer", "red"),
    "who may only ask models": ("user", "blue"),
    "an agent": ("agent", "blue"),
    "an agent of all nodes": ("agent", "*"),
}


def test_no_field_is_left_out() -> None:
    named = {info.alias or name for name, info in ScalingPolicySpec.model_fields.items()}
    assert named == CHANGES.keys() | KEPT


def whole(document: Any, asked: Any) -> bool:
    """Whether what was asked for is there, beside defaults."""
    if isinstance(asked, dict):
        return isinstance(document, dict) and all(
            name in document and whole(document[name], value) for name, value in asked.items()
        )
    if isinstance(asked, list):
        return len(document) == len(asked) and all(map(whole, document, asked))
    return bool(document == asked)


async def test_every_field_is_its_projects_editors_and_nobody_elses(tmp_path):
    async with Stack(tmp_path, tokens=True, infer=True) as stack:
        compute = stack.http["compute"]
        editor = {"Authorization": f"Bearer {stack.token('editor', 'blue')}"}
        strangers = {
            who: {"Authorization": f"Bearer {stack.token(role, project, '*' if role == 'agent' else '')}"}
            for who, (role, project) in STRANGERS.items()
        }
        assert (await compute.put(PATH, json=SPEC, headers=editor)).status_code == 200

        async def shown() -> dict[str, Any]:
            view = (await compute.get(PATH, headers=editor)).json()
            return {name: view.get(name) for name in (*CHANGES, *KEPT, "generation")}

        before = await shown()
        for field, value in CHANGES.items():
            assert not whole(before, {field: value}), f"{field} has that value already: nothing would show"
            for who, headers in strangers.items():
                for params in ({"project": "blue"}, {}, {"project": "blue", "validateOnly": "true"}):
                    answer = await compute.put(PATH, json=SPEC | {field: value}, params=params, headers=headers)
                    assert answer.status_code in (403, 404), f"{who} sets {field}: {answer.status_code} {answer.text}"
                    assert await shown() == before, f"{who} has set {field}"
        for who, headers in strangers.items():
            answer = await compute.delete(PATH, params={"project": "blue"}, headers=headers)
            assert answer.status_code in (403, 404), f"{who} deletes it: {answer.text}"
            of_ours = {"scaleTargetRef": {"name": "blue/b"}, "maxReplicas": 48}
            answer = await compute.put("/v1/scaling-policies/mine", json=of_ours, headers=headers)
            assert answer.status_code in (403, 404, 422), f"{who} scales what is blue's: {answer.text}"
        assert await shown() == before
        for field, value in CHANGES.items():  # so that no refusal above was for another reason
            answer = await compute.put(PATH, json=SPEC | {field: value}, headers=editor)
            assert answer.status_code == 200, f"{field}: {answer.text}"
            assert whole(await shown(), {field: value}), field
