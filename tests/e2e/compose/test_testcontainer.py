"""The Testcontainers class on a real engine: a stack in one container, a fault, and what Kubernetes shows of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from services.matrixctl.clients.kubernetes import Cluster
from services.testing.containers import CloudMatrixContainer
from tests.e2e.compose.engine import engine, images, run, wheels
from tests.e2e.conftest import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
TIMEOUT_WALL_S = 120.0


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with engine():
        wheels()
        base = images()["CLOUDMATRIX_BASE"]
        run(
            "docker",
            "build",
            "-t",
            "cloudmatrix:testcontainer",
            "--build-arg",
            f"BASE={base}",
            ".",
            DOCKER_BUILDKIT="0",
        )
        yield "cloudmatrix:testcontainer"


def test_a_stack_in_a_container(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")  # which would be another image to fetch
    with CloudMatrixContainer(image) as stack:
        (tmp_path / "kubeconfig").write_text(stack.get_kubeconfig())
        cluster = Cluster(tmp_path / "kubeconfig")
        eventually(lambda: len(cluster.items("/api/v1/nodes")) == 48, "every node has enrolled", TIMEOUT_WALL_S)
        headers = {"Authorization": f"Bearer {stack.get_token()}"}
        fault = stack.inject("node-down", "sn0-c00-n1")
        node = f"{stack.get_url('resource')}/v1/nodes/sn0-c00-n1"
        lost = lambda: httpx.get(node, headers=headers).json()["agent"] == "Lost"  # noqa: E731
        eventually(lost, "the lost node is noticed", TIMEOUT_WALL_S)
        stack.repair(fault)
