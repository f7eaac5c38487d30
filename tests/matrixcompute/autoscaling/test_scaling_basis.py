"""From what a scaling policy decides, as a table over what one look found."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcompute.autoscaling.decision import Observation
from matrixcompute.autoscaling.policy import PoolSizes, Reason, ScalingPolicyRequest
from matrixcompute.autoscaling.pools import PoolsObservation
from matrixcompute.reconcilers.scaling_basis import Situation, decision_basis
from matrixcompute.reconcilers.scaling_targets import Undecidable

WORK = {
    "nodes": 2.0, "backlogNodeSeconds": 5.0, "startS": 60.0, "staysS": 8.0, "decodeNodesMin": 1, "prefillNodes": 0.5,
    "prefillBacklogNodeSeconds": 1.0, "prefillInstanceNodes": 1, "promptS": 2.0, "decodeNodes": 1.5, "cachingNodes": 3,
}  # fmt: skip
LAID_OUT = {"roles": {"n0": "prefill", "n1": "decode", "n2": "decode"}}
NOT_READY = Undecidable(Reason.TARGET_NOT_READY, "instance one is Pending; it is sized once it is Active")


def situation(pools: bool = False, **found: Any) -> Situation:
    """A target of three nodes, two of them ready, on which one deployment is served."""
    body: dict[str, Any] = {"scaleTargetRef": {"name": "one"}, "maxReplicas": 8}
    policy = ScalingPolicyRequest.model_validate(body | ({"pools": {}} if pools else {}))
    instance = Observation(3, 2, least=2, returns_to=3, spares=1)
    usual: dict[str, Any] = {"served": {"chat": LAID_OUT}, "statistics": {"chat": {"work": WORK}}}
    return Situation(**{"target": "one", "policy": policy, "sizes": None, "draining": None, "not_scalable": None,
                        "instance": instance} | usual | found)  # fmt: skip


@pytest.mark.parametrize(
    ("sentence", "seen", "expected"),
    [
        ("a target that is not ready", situation(not_scalable=NOT_READY), NOT_READY),
        ("not ready comes before unavailable", situation(not_scalable=NOT_READY, unavailable="away"), NOT_READY),
        ("without CloudMatrix-Infer only the size counts", situation(unavailable="away"), Observation(3, 2, least=2)),
        ("nor are its pools known", situation(pools=True, unavailable="away"), Observation(3, 2, least=2)),
        (
            "pools of none",
            situation(pools=True, served={}, statistics={}),
            Undecidable(Reason.METRIC_UNAVAILABLE, "pools need exactly one deployment on one, which has 0"),
        ),
        (
            "pools of two",
            situation(pools=True, served={"a": LAID_OUT, "b": LAID_OUT}),
            Undecidable(Reason.REFUSED, "pools need exactly one deployment on one, which has 2"),
        ),
        (
            "pools that are not laid out",
            situation(pools=True, served={"chat": {"roles": {}}}),
            Undecidable(Reason.METRIC_UNAVAILABLE, "deployment chat has no pools yet, because it has no layout"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_decision_basis(sentence: str, seen: Situation, expected: object) -> None:
    assert decision_basis(seen) == expected, sentence


def test_load_of_the_whole_target() -> None:
    found = decision_basis(situation())
    assert isinstance(found, Observation)
    assert (found.members, found.load, found.backlog, found.spares, found.returns_to) == (3, 2.0, 5.0, 1, 3)


@pytest.mark.parametrize(
    ("sizes", "prefill", "decode"),
    [(None, 1, 2), (PoolSizes(prefill=2, decode=1), 2, 1), (PoolSizes(prefill=4, decode=1), 1, 2)],
    ids=["as laid out", "as decided", "a decision for another size is out of date"],
)
def test_pools_of_the_only_deployment(sizes: PoolSizes | None, prefill: int, decode: int) -> None:
    found = decision_basis(situation(pools=True, sizes=sizes))
    assert isinstance(found, PoolsObservation)
    assert (found.prefill.members, found.decode.members) == (prefill, decode)


def test_target_at_zero_has_no_pools() -> None:
    found = decision_basis(situation(pools=True, instance=Observation(0, 0, returns_to=3)))
    assert isinstance(found, Observation)
    assert (found.members, found.returns_to) == (0, 3)
