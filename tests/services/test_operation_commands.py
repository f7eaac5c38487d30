"""Operations of several services on the command line: one table, each verb where the operation is, and the operation
that a verb of an instance points at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from services.link.main import LinkSettings
from services.link.main import build as build_link
from services.resource.main import ResourceSettings
from services.resource.main import build as build_resource
from tests.clocks import StandingClock
from tests.matrixlink.fleet import LinkStack
from tests.matrixresource.test_defragmentations import ScatteredMachine
from tests.services.matrixctl.inprocess import connect_matrixctl, run_line_normalised


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ScatteredMachine:
    """A MatrixLink and a MatrixResource, with an operation each that nobody carries on."""
    for folder in ("link", "resource"):
        (tmp_path / folder).mkdir()
    links = LinkStack(tmp_path / "link")
    machine = ScatteredMachine(tmp_path / "resource")
    link = build_link(LinkSettings(state=tmp_path), links.standing, links.database)
    resource = build_resource(ResourceSettings(state=tmp_path), StandingClock(machine.clock), machine.database)
    clients = {"link": TestClient(link), "resource": TestClient(resource)}
    connect_matrixctl(monkeypatch, clients)
    assert clients["link"].put("/v1/drains/d1", json={"elements": ["sn0-l2p3-k11"]}).status_code == 200
    machine.approve()
    return machine


def test_operations_of_all_services_are_one_table(here: ScatteredMachine, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_line_normalised(capsys, "get operations")
    assert code == 0
    assert "link d1 drain-elements Running reroute_slices" in out
    assert "resource p defragment Running keep_room" in out
    code, out, _ = run_line_normalised(capsys, "get operations -o json")
    names = {view["service"]: view["name"] for view in json.loads(out)["items"]}
    for service, name in names.items():
        code, out, _ = run_line_normalised(capsys, f"describe operation {name}")
        assert (code, f"service: {service}" in out) == (0, True)
        code, out, _ = run_line_normalised(capsys, f"operation cancel {name}")
        assert (code, f"{name} is Undoing: Cancelled: " in out) == (0, True)
    code, _, text = run_line_normalised(capsys, "operation cancel nobody")
    assert (code, "NotFound" in text) == (1, True)


def test_operations_are_drained_everywhere_or_of_one_service(
    here: ScatteredMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_line_normalised(capsys, "operation drain upgrade --grace 60 --reason release-8")
    assert (code, out) == (0, "link: upgrade is Draining resource: upgrade is Draining")
    code, out, _ = run_line_normalised(capsys, "get workflow-drains")
    assert "upgrade link Draining 0 0 0 release-8" in out
    assert run_line_normalised(capsys, "operation undrain upgrade --service link")[:2] == (0, "link: upgrade is gone")
    code, out, _ = run_line_normalised(capsys, "get workflow-drains")
    assert ("link" in out, "upgrade resource Draining" in out) == (False, True)


def test_a_drain_is_deleted_wherever_it_is(here: ScatteredMachine, capsys: pytest.CaptureFixture[str]) -> None:
    run_line_normalised(capsys, "operation drain upgrade")
    run_line_normalised(capsys, "operation drain other --service resource")
    assert run_line_normalised(capsys, "delete workflow-drains upgrade other")[:2] == (
        0,
        "upgrade is gone other is gone",
    )
    assert json.loads(run_line_normalised(capsys, "get workflow-drains -o json")[1]) == {"items": []}
    code, _, err = run_line_normalised(capsys, "delete workflow-drains upgrade")
    assert (code, err.startswith("NotFound")) == (1, True)


@pytest.mark.parametrize(
    ("shown", "out"),
    [
        ({"state": "Starting"}, "one is Starting; follow it with `matrixctl get operations start-one --watch`"),
        ({"state": "Active"}, "one is Active"),
        (
            {"state": "Active", "generation": 3, "conditions": [{"type": "Progressing", "message": "no room"}]},
            "one is Active; its change waits: no room",
        ),
        (
            {"state": "Suspended", "generation": 3},
            "one is Suspended: it has neither nodes nor slices until `suspend` is false",
        ),
    ],
)
def test_a_verb_of_an_instance_points_at_an_operation_only_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shown: dict[str, Any], out: str
) -> None:
    view = {"name": "one", "generation": 2, "observedGeneration": 2, "operation": "start-one"} | shown
    changing = httpx.MockTransport(lambda request: httpx.Response(202, json=view))
    connect_matrixctl(monkeypatch, {"compute": httpx.Client(transport=changing, base_url="http://compute")})
    assert run_line_normalised(capsys, "instance start one")[:2] == (0, out)
