"""Somebody else's operator, written after Kopf's tutorial, tested on the embedded Kubernetes API by the `kubernetes` fixture."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kopf.testing import KopfRunner

from examples.operators.scratch_volumes import DEFINITION
from services.testing.kubernetes import KubernetesApi

pytestmark = pytest.mark.e2e

OPERATOR = Path(__file__).resolve().parents[3] / "examples" / "operators" / "scratch_volumes.py"
VOLUMES = "/apis/example.com/v1/namespaces/default/scratchvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
TIMEOUT_WALL_S = 30.0


def eventually(what: Callable[[], Any], message: str) -> Any:
    until = time.monotonic() + TIMEOUT_WALL_S
    while not (seen := what()):
        assert time.monotonic() < until, message
        time.sleep(0.05)
    return seen


@pytest.fixture
def operated(kubernetes: KubernetesApi, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    """The API with the operator at work on it."""
    kubernetes.apply(DEFINITION)
    eventually(lambda: kubernetes.client.read(VOLUMES) is not None, "the kind is not served")
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig))
    with KopfRunner(["run", "--all-namespaces", "--standalone", str(OPERATOR)], timeout=20) as runner:
        yield kubernetes
    assert runner.exit_code == 0, runner.output


def volume(gibibytes: int) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "ScratchVolume",
        "metadata": {"name": "weights", "namespace": "default"},
        "spec": {"gibibytes": gibibytes},
    }


def claimed(kubernetes: KubernetesApi) -> str:
    claim = kubernetes.client.read(f"{CLAIMS}/weights")
    return claim["spec"]["resources"]["requests"]["storage"] if claim else ""


def test_a_claim_follows_its_volume(operated: KubernetesApi) -> None:
    operated.apply(volume(10))
    eventually(lambda: claimed(operated) == "10Gi", "no claim was made")
    operated.apply(volume(20))
    eventually(lambda: claimed(operated) == "20Gi", "the claim did not grow")

    operated.apply(volume(5))
    refused = eventually(
        lambda: (operated.client.read(f"{VOLUMES}/weights") or {}).get("status", {}).get("refused"),
        "nothing was said of a volume that shrinks",
    )
    assert (refused, claimed(operated)) == ("cannot shrink from 20 to 5 GiB", "20Gi")

    operated.client.send("DELETE", f"{VOLUMES}/weights")
    eventually(lambda: claimed(operated) == "", "the claim outlives its volume")


def test_a_kubernetes_of_ones_own_is_new(kubernetes: KubernetesApi) -> None:
    assert kubernetes.client.read(VOLUMES) is None
    kubernetes.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "c"}})
    found = kubernetes.client.read("/api/v1/namespaces/default/configmaps/a")
    assert json.dumps(found["data"] if found else {}) == '{"b": "c"}'
