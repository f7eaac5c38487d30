"""domain, supernode and the versions they make, on the command line against MatrixResource itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from services.chassis.database import DatabaseEngine
from services.node_agent.fleet.fleet import Fleet
from services.node_agent.fleet.store import FleetStore
from services.node_agent.main import AgentSettings, node_names
from services.node_agent.main import build as build_agents
from services.resource.main import MIGRATIONS, ResourceSettings, build
from tests.clocks import FixedClock
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TestClient:
    """matrixctl's way to the services ends in an application of this process."""
    database = DatabaseEngine(f"sqlite:///{tmp_path / 'resource.db'}")
    database.migrate(MIGRATIONS)
    client = TestClient(build(ResourceSettings(state=tmp_path), FixedClock(), database))

    settings = AgentSettings(state=tmp_path)
    fleet = Fleet(node_names(settings), FleetStore(None), FixedClock(), 1)
    clients = {"resource": client, "agents": TestClient(build_agents(fleet, settings))}

    connect_matrixctl(monkeypatch, clients)
    return client


def test_a_node_is_cordoned_and_uncordoned(here: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_line(capsys, "node cordon sn0-c03-n1") == (0, "sn0-c03-n1 is cordoned by admin\n")
    assert run_line(capsys, "node uncordon sn0-c03-n1") == (0, "sn0-c03-n1 is not cordoned\n")
    assert run_line(capsys, "node cordon sn0-c99-n1")[0] == 1


def test_a_cabinet_and_a_supernode_on_the_command_line(here: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_line(capsys, "domain close sn0-c03 --drain --reason pump") == (
        0,
        "sn0-c03 is Drained; nothing is placed there\n",
    )
    assert run_line(capsys, "domain open sn0-c03") == (0, "sn0-c03 is Open\n")
    assert run_line(capsys, "supernode add sn1") == (
        0,
        "sn1 has 48 nodes and 384 NPUs; its nodes start one after another\n",
    )
    assert run_line(capsys, "supernode remove sn1") == (
        0,
        "sn1 is removed from the inventory; its cabinets are stopped\n",
    )
    code, text = run_line(capsys, "supernode remove sn1")
    assert code == 1
    assert "NotFound" in text
    code, text = run_line(capsys, "get topology-versions")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert [line.partition("-")[0] for line in lines[-5:]] == ["v1", "v2", "v3", "v4", "v5"]
    assert "Superseded DomainClosed sn0-c03 anyone" in lines[-4]
    assert "Current SupernodeRemoved sn1 anyone" in lines[-1]
    code, text = run_line(capsys, "get domains sn0-c03 -o json")
    assert (code, '"state": "Open"' in text) == (0, True)


def test_cabinets_that_the_stack_was_started_with_run_on(here: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_line(capsys, "supernode remove sn0") == (
        0,
        "sn0 is removed from the inventory; its cabinets run on, as the stack was started with them: `supernode add sn0`"
        " enrols them again\n",
    )
    assert run_line(capsys, "supernode add sn0")[0] == 0
    assert run_line(capsys, "get nodes -o name")[1].count("sn0-") == 48


def test_an_npu_that_failed_often_is_revoked(here: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    report = {"node": "sn0-c03-n2", "epoch": 1, "leaseS": 60, "status": "Clean", "generation": 1}
    often = [{"code": "80E39200", "component": "npu3"}]
    for sequence, faults in enumerate((often, [], often, [])):
        reported = {**report, "sequence": sequence, "faults": faults}
        (answer,) = here.post("/v1/node-reports", json={"reports": [reported]}).json()["answers"]
        assert answer["accepted"]
    code, text = run_line(capsys, "get npus sn0-c03-n2-npu3 -o json")
    assert (code, '"raisedBy": "Frequency"' in text) == (0, True)
    assert run_line(capsys, "npu release sn0-c03-n2-npu3") == (0, "sn0-c03-n2-npu3 is Healthy\n")
    code, text = run_line(capsys, "npu release sn9-c03-n2-npu3")
    assert (code, "NotFound" in text) == (1, True)


def test_a_node_is_taken_out_and_had_back_on_the_command_line(
    here: TestClient, capsys: pytest.CaptureFixture[str]
) -> None:
    report = {"node": "sn0-c03-n2", "epoch": 1, "sequence": 1, "leaseS": 60, "status": "Clean", "generation": 1}
    here.post("/v1/node-reports", json={"reports": [report]})
    assert run_line(capsys, "node service sn0-c03-n2 --reason fan") == (
        0,
        "sn0-c03-n2 is Servicing: anyone asked to service: fan\n",
    )
    code, text = run_line(capsys, "node clean sn0-c03-n2")
    assert (code, ":recover" in text) == (1, True)
    assert run_line(capsys, "node recover sn0-c03-n2")[1].startswith("sn0-c03-n2 is Verifying")
    code, text = run_line(capsys, "describe node sn0-c03-n2")
    assert (code, "anyone asked to service: fan" in text) == (0, True), "with its events"
    assert here.put("/v1/allocations/a", json={"nodes": 1}).status_code == 409, "it is not free yet"
    here.post("/v1/node-reports", json={"reports": [report | {"sequence": 2, "generation": 2}]})
    assert here.put("/v1/allocations/a", json={"nodes": 1}).status_code == 200
    code, text = run_line(capsys, "node retire sn0-c03-n2")
    assert (code, "replaces it as a lost node" in text) == (1, True), "the refusal says what force risks"
    assert run_line(capsys, "node retire sn0-c03-n2 --force") == (
        0,
        "sn0-c03-n2 is Retired: anyone asked to retire; forced: its holder lost it\n",
    )
