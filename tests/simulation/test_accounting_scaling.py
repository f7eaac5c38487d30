"""What the accountant says of scaling policies: nothing where nothing is wrong, and each thing that is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.accounting_scaling import scale_owners, within_bounds
from tests.rest_lists import Lists

DECIDES = [{"type": "ScalingActive", "status": "True"}, {"type": "AbleToScale", "status": "True"}]


def listed(policies: list[dict[str, Any]] | None = None, **instance: Any) -> Lists:
    one = {"project": "red", "name": "one", "state": "Active", "nodes": 4, "scalingPolicy": "follow"}
    given = [policy()] if policies is None else policies
    return Lists({"instances": [one | instance], "scaling-policies": given})


def policy(name: str = "follow", **more: Any) -> dict[str, Any]:
    spec = {"scaleTargetRef": {"name": "one"}, "minReplicas": 2, "maxReplicas": 6, "message": "why"}
    return {"project": "red", "name": name, "conditions": DECIDES} | spec | more


@pytest.mark.parametrize(
    ("sentence", "lists", "found"),
    [
        ("all is well", listed(), []),
        ("nobody lists policies", Lists({"instances": listed()["instances"]}), []),
        ("a policy may come before its target", listed([policy(scaleTargetRef={"name": "later"})], scalingPolicy=None), []),
        ("another project's instance of that name is none of it", listed([policy(project="blue")], scalingPolicy=None), []),
        ("two own it", listed([policy(), policy("other")]), [
            "scaling policies red/follow and red/other both own the scale of red/one"]),
        ("it does not know", listed(scalingPolicy=None), [
            "instance red/one says it is scaled by None, policies say by red/follow"]),
        ("its policy is gone", listed([]), ["instance red/one says it is scaled by red/follow, policies say by None"]),
        ("too many", listed(nodes=7), ["red/one has 7 nodes, and red/follow allows 2 to 6: why"]),
        ("too few", listed(nodes=1), ["red/one has 1 nodes, and red/follow allows 2 to 6: why"]),
        ("it is not there yet", listed(nodes=7, state="Updating"), []),
        ("the policy knows nothing to decide by", listed([policy(conditions=[])], nodes=7), []),
        ("what it decided before does not fit", listed([policy(conditions=[DECIDES[0], {"type": "AbleToScale", "status": "False"}])], nodes=7),
         ["red/one has 7 nodes, and red/follow allows 2 to 6: why"]),
    ],
)  # fmt: skip
def test_owners_and_bounds(sentence: str, lists: Lists, found: list[str]) -> None:
    assert [*scale_owners(lists), *within_bounds(lists)] == found, sentence
