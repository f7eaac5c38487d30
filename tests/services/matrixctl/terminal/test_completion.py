"""Completion: names as they are now, nothing where anything is amiss, and never a word on standard error."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from services.matrixctl.clients import api_client
from services.matrixctl.commands.help import completion
from services.resource.main import ResourceSettings, build
from tests.matrixresource.test_defragmentations import ScatteredMachine
from tests.services.matrixctl.inprocess import connect_matrixctl


def asked(noun: str, incomplete: str, state: Path | None = None) -> list[str]:
    context: Any = SimpleNamespace(params={"noun": noun, "state": state})
    return completion.complete_resources(context, incomplete)


def test_names_of_the_running_stack_are_offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = ScatteredMachine(tmp_path)
    app = build(ResourceSettings(state=tmp_path), machine.clock, machine.database)
    connect_matrixctl(monkeypatch, {"resource": TestClient(app)})
    assert asked("node", "sn0-c03-") == ["sn0-c03-n0", "sn0-c03-n1", "sn0-c03-n2", "sn0-c03-n3"]
    assert asked("nodes", "sn9") == []


def test_without_a_stack_nothing_is_offered_and_nothing_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked("nodes", "", tmp_path / "none") == []
    assert asked("no-such-kind", "", tmp_path) == []
    assert asked("", "") == []
    assert capsys.readouterr() == ("", "")


def test_a_service_that_does_not_answer_is_not_waited_for_longer_than_its_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[float] = []

    class Silent(api_client.ApiClient):
        def _client(self, service: str) -> Any:
            given.append(self.deadline_wall_s)

            def away(*args: Any, **more: Any) -> Any:
                raise httpx.ReadTimeout("silent")

            return contextlib.nullcontext(SimpleNamespace(request=away))

        def url(self, service: str) -> str:
            return "http://none"

    stack: Any = SimpleNamespace(children={"resource": None})
    monkeypatch.setattr(api_client.ApiClient, "of", lambda folder, project=None: Silent(folder, stack))
    began = time.monotonic()
    assert asked("nodes", "", tmp_path) == []
    assert given == [completion.DEADLINE_WALL_S]  # asked once, and not again for as long as commands do
    assert time.monotonic() >= began


def test_words_that_can_be_explained_and_fields_inside_kinds_are_offered() -> None:
    assert "InsufficientCapacity" in completion.complete_words("insuff")
    assert "instances" in completion.complete_words("inst")
    assert completion.complete_words("instances.readyN") == ["instances.readyNodes"]
    assert completion.complete_words("instances.conditions.re") == ["instances.conditions.reason"]
    assert completion.complete_words("no.such") == []


def test_kinds_scenarios_and_faults_are_offered() -> None:
    assert completion.complete_kinds("scenario") == ["scenarios", "scenario-runs"]
    assert "node-down" in completion.fault_kinds("node")
    assert "node-loses-power" in completion.scenarios("node-l")
