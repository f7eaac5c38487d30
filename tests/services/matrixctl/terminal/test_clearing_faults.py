"""`matrixctl fault clear` says which faults come back, who injects them again, and how to be rid of them."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from matrixcommon.model.hardware_names import NodeName
from services.chassis.app import create_app
from services.matrixctl.clients import kubernetes as kubernetes_client
from services.matrixctl.clients.kubernetes import Cluster
from services.node_agent.access import ACCESS
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.main import all_routes
from tests.clocks import FixedClock
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised
from tests.services.matrixctl.test_traffic import InMemoryFleetStore

NODE = "sn0-c00-n0"
MATRIX_FAULTS = [
    {"metadata": {"name": "declared"}},
    {"metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
]
AGAIN = "its MatrixFault injects fault declared again; delete that instead: kubectl delete matrixfault declared\n"


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fleet:
    """Emulated nodes with three faults."""
    fleet = Fleet([NodeName(NODE)], InMemoryFleetStore(), FixedClock(), 1)
    agents = TestClient(create_app("agents", "Emulated nodes", all_routes(fleet, tmp_path), ACCESS))
    for name in ("declared", "going", "typed"):
        agents.put(f"/v1/faults/{name}", json={"kind": "node-down", "target": NODE}).raise_for_status()
    monkeypatch.setenv("CLOUDMATRIX_STATE", str(tmp_path))
    connect_matrixctl(monkeypatch, {"agents": agents})
    return fleet


def kubernetes(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/apis/cloudmatrix.io/v1alpha1/matrixfaults"
        return httpx.Response(status, json={"items": MATRIX_FAULTS} if status == 200 else {"kind": "Status"})

    cluster = Cluster(Path("none"))
    cluster.__dict__["http"] = httpx.Client(transport=httpx.MockTransport(answer), base_url="https://kube")
    monkeypatch.setattr(kubernetes_client, "stack_cluster", lambda folder: cluster)


def test_what_a_matrix_fault_injects_again_is_named_with_the_command_to_use(fleet, monkeypatch, capsys):
    kubernetes(monkeypatch, 200)
    code, out, error = run_line_normalised(capsys, "fault clear --all")
    assert (code, out) == (0, "fault declared cleared fault going cleared fault typed cleared")
    assert error == AGAIN
    assert fleet.faults == {}


@pytest.mark.parametrize(("name", "warning"), [("declared", AGAIN), ("typed", ""), ("going", "")])
def test_one_fault_is_cleared_likewise(fleet, monkeypatch, capsys, name: str, warning: str):
    kubernetes(monkeypatch, 200)
    assert run_line_normalised(capsys, f"fault clear {name}") == (0, f"fault {name} cleared", warning)


def test_without_kubernetes_nothing_is_injected_again(fleet, capsys):
    assert run_line_normalised(capsys, "fault clear typed") == (0, "fault typed cleared", "")


def test_if_kubernetes_does_not_answer_faults_are_cleared_and_it_is_said(fleet, monkeypatch, capsys):
    kubernetes(monkeypatch, 503)
    code, out, error = run_line_normalised(capsys, "fault clear typed")
    assert (code, out) == (0, "fault typed cleared")
    assert error.startswith("a fault declared by a MatrixFault is injected again; there is no telling: ")
