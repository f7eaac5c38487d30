"""What a CloudMatrixInstance shows of an instance whose changed spec is refused: the instance, and the refusal."""

from __future__ import annotations

from typing import Any

import pytest

from matrixcommon.model.errors import InvalidField
from matrixcommon.model.resource_model import Condition
from matrixcompute.contract import InstanceRequest, InstanceView
from matrixcontainer.operator.instances import InstanceReconciler
from matrixcontainer.operator.scale_in import MemberDrain
from tests.matrixcontainer.test_reconcilers import OneResource
from tests.matrixcontainer.test_scale_in_decisions import NODES, a_view

NEAR_ANOTHERS = {"nodes": 2, "affinity": {"instances": ["red/a"]}}
PROMISES_NOTHING = {"nodes": 2, "network": {"ub": {"qosClass": "BestEffort", "floorGbpsPerNpu": 40.0}}}


class Compute:
    """MatrixCompute with an instance that serves, if there is one; `refuses` any other shape."""

    def __init__(self, view: InstanceView | None) -> None:
        self.view = view
        self.refuses = True

    async def find_instance(self, key: str) -> InstanceView | None:
        return self.view

    async def ensure_instance(self, key: str, request: InstanceRequest, leaving: Any = ()) -> InstanceView:
        if self.refuses:
            raise InvalidField("nodes is 1, and minNodes 2: fewer go with another minNodes", field="nodes")
        assert self.view is not None
        self.view = self.view.model_copy(update={"nodes": request.nodes})
        return self.view

    async def drain_leaving_members(self, *_: Any) -> MemberDrain:
        return MemberDrain()


def serving(nodes: list[str]) -> InstanceView:
    ready = Condition(type="Ready", status="True", reason="Ready", message="serves")
    return a_view(nodes, conditions=[ready], readyNodes=len(nodes))


def conditions(kube: OneResource) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in kube.body["status"]["conditions"]}


def reconciler(kube: OneResource, compute: Compute) -> InstanceReconciler:
    return InstanceReconciler(kube, compute, compute, lambda: 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"nodes": 1}, "spec.nodes: nodes is 1"),
        (NEAR_ANOTHERS, "is not in namespace 'default'"),
        (PROMISES_NOTHING, "spec.network.ub: BestEffort promises nothing"),
    ],
)
async def test_serving_instance_is_reported_while_its_new_spec_is_refused(spec, message):
    kube, compute = OneResource(), Compute(serving(NODES[:2]))
    kube._moved(spec=spec)
    assert await reconciler(kube, compute).reconcile("one") is None
    status = kube.body["status"]
    assert (status["state"], status["readyNodes"], status["observedGeneration"]) == ("Active", 2, 0)
    assert conditions(kube) == {"Ready": ("True", "Ready"), "Synced": ("False", "InvalidField")}
    assert message in next(each["message"] for each in status["conditions"] if each["type"] == "Synced")

    compute.view = serving(NODES[:1])
    await reconciler(kube, compute).reconcile("one")
    assert kube.body["status"]["readyNodes"] == 1, "what becomes of it is followed"
    assert [(each["type"], each["reason"]) for each in kube.events] == [("Warning", "InvalidField")]

    kube._moved(spec={"nodes": 2})
    compute.refuses = False
    await reconciler(kube, compute).reconcile("one")
    assert conditions(kube) == {"Ready": ("True", "Ready")}


async def test_refused_instance_that_was_never_created():
    kube = OneResource()
    await reconciler(kube, Compute(None)).reconcile("one")
    assert (kube.body["status"]["state"], conditions(kube)) == ("Refused", {"Ready": ("False", "InvalidField")})
