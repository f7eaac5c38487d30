"""What a CloudMatrixInfer shows once nothing of it is on any node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from matrixcontainer.client.client import INFER, POD, Kind
from matrixcontainer.operator.infers import InferReconciler, progress
from tests.matrixcontainer.test_reconcilers import OneResource


class Kubernetes(OneResource):
    """With the pods that a deployment had."""

    def __init__(self) -> None:
        super().__init__()
        metrics = {"num_requests_running": "40"}
        self._moved(
            kind=INFER.kind, spec={"instance": "one"}, status={"state": "Serving", "pods": 1, "metrics": metrics}
        )
        self.pods = ["one-decode-sn0-c00-n0"]

    async def list(self, kind: Kind, *_: Any) -> tuple[list[dict[str, Any]], str]:
        assert kind == POD
        return [{"metadata": {"name": name, "uid": name}} for name in self.pods], ""

    async def delete(self, kind: Kind, name: str, *_: Any, **__: Any) -> bool:
        self.pods.remove(name)
        return True


class Services:
    """There is no instance; the deployment, if there is one, is on no node."""

    def __init__(self, deployment: dict[str, Any] | None) -> None:
        self._deployment = deployment

    async def find_instance(self, key: str) -> None:
        return None

    async def find(self, name: str) -> dict[str, Any] | None:
        return self._deployment

    async def ensure(self, name: str, spec: dict[str, Any]) -> dict[str, Any] | None:
        return self._deployment

    async def undrain_unneeded(self, *_: Any) -> None: ...


@pytest.mark.parametrize(
    ("sentence", "deployment", "state"),
    [
        ("scaled to zero", {"state": "Idle", "roles": {}}, "Idle"),
        ("deleted over REST, and its instance is not there", None, "Pending"),
    ],
)
async def test_deployment_without_nodes_has_no_pods_or_metrics(sentence, deployment, state):
    kube, services = Kubernetes(), Services(deployment)
    await InferReconciler(kube, services, services, services, lambda: 0.0, "").reconcile("one")  # type: ignore[arg-type]
    status = kube.body["status"]
    assert (kube.pods, status["pods"], status["metrics"], status["state"]) == ([], 0, None, state), sentence


NO_SLICES = "instance default/one has no network slices"


@pytest.mark.parametrize(
    ("instance", "deployment", "ready", "progressing"),
    [
        (None, "Unavailable", "there is no instance one", "there is no instance one"),
        ("Stopped", "Unavailable", "instance one is Stopped", "instance one is Stopped"),
        ("Ready", "Unavailable", NO_SLICES, NO_SLICES),
        ("Repairing", "Degraded", NO_SLICES, "instance one is Repairing"),
        (None, None, "waiting: there is no instance one", "waiting: there is no instance one"),
        ("Provisioning", None, "waiting: instance one is Provisioning", "waiting: instance one is Provisioning"),
    ],
)
async def test_unavailability_is_explained_by_the_instance(instance, deployment, ready, progressing):
    """CloudMatrix-Infer knows no more of an instance than its slices."""

    class OnAnInstance(Services):
        async def find_instance(self, key: str) -> Any:
            reported = SimpleNamespace(type="Ready", status=str(instance == "Ready"))
            return instance and SimpleNamespace(state=instance, conditions=[reported])

    reported_both = [
        {"type": type, "status": "False", "reason": "NoLayout", "message": NO_SLICES}
        for type in ("Ready", "Progressing")
    ]
    there = deployment and {"state": deployment, "roles": {}, "conditions": reported_both}
    kube, services = Kubernetes(), OnAnInstance(there)
    await InferReconciler(kube, services, services, services, lambda: 0.0, "").reconcile("one")  # type: ignore[arg-type]
    conditions = {each["type"]: each["message"] for each in kube.body["status"]["conditions"]}
    assert (conditions["Ready"], conditions["Progressing"]) == (ready, progressing)


@pytest.mark.parametrize(
    ("reported", "progressing"),
    [
        (("True", "Loading", "weights load"), (True, ("Loading", "weights load"))),
        (("False", "NoLayout", "it does not fit"), (False, ("NoLayout", "it does not fit"))),
        (("False", "Settled", ""), (False, ("Settled", "everything is as specified"))),
    ],
)
def test_only_a_settled_deployment_is_reported_as_specified(reported, progressing):
    status, reason, message = reported
    condition = {"type": "Progressing", "status": status, "reason": reason, "message": message}
    assert progress({"conditions": [condition]}) == progressing
