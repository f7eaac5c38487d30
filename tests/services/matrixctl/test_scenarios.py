"""`matrixctl scenario`: list, preview and run, against a stack in this process and its virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from matrixcommon.model.clock import Clock
from matrixcompute.scenarios.service_clients import ServiceClients
from services.matrixctl.clients.api_client import ApiClient
from services.matrixctl.scenarios import host
from services.matrixctl.supervisor.process_lock import ProcessLock
from tests.clocks import virtual_loop
from tests.matrixcompute.scenarios.example import changed
from tests.services.matrixctl.inprocess import run_matrixctl
from tests.small_stack import SmallStack

NEVER: list[str] = ["scenario", "run", "nothing-of-the-kind"]


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What matrixctl reaches: with each command a new stack, whose time is virtual."""
    folders = count()

    @asynccontextmanager
    async def reached(client: ApiClient) -> AsyncIterator[tuple[ServiceClients, Clock]]:
        folder = tmp_path / f"stack-{next(folders)}"
        folder.mkdir()
        async with SmallStack(folder) as stack:
            yield ServiceClients(stack.http), stack.clock

    def complete(awaited: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=virtual_loop) as runner:
            return runner.run(awaited)

    monkeypatch.setattr(host, "connected", reached)
    monkeypatch.setattr(host, "run_async", complete)
    state = SimpleNamespace(path=tmp_path, admin_token=lambda: "")
    monkeypatch.setattr(ApiClient, "of", lambda folder, project=None: ApiClient(state, SimpleNamespace(children={})))


def file(tmp_path: Path, path: str = "", value: Any = None) -> str:
    written = tmp_path / "rehearsal.yaml"
    written.write_text(yaml.safe_dump(changed(path, value)))
    return str(written)


def test_the_library_is_listed_with_what_each_shows(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_matrixctl(capsys, "scenario", "list")
    assert code == 0
    assert "node-loses-power" in out
    code, out, _ = run_matrixctl(capsys, "scenario", "list", "-o", "json")
    items = {each["name"]: each for each in json.loads(out)["items"]}
    assert items["node-loses-power"]["faults"] == "node-down"


def test_a_run_says_what_happens_and_ends_by_its_verdict(
    stack: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_matrixctl(capsys, "scenario", "run", file(tmp_path))
    assert (code, err) == (0, "")
    assert "PASS: every expectation was met" in out
    assert f"replay: matrixctl scenario run {tmp_path}/rehearsal.yaml --seed 7" in out
    code, out, _ = run_matrixctl(
        capsys, "scenario", "run", file(tmp_path, "expect.1.count", 2), "-o", "json", "--seed", "3"
    )
    report = json.loads(out)
    assert (code, report["verdict"], report["seed"]) == (1, "FAIL", 3)
    assert [each["passed"] for each in report["expectations"]] == [True, False, True]


def test_verdicts_that_prove_nothing_have_exit_codes_of_their_own(
    stack: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run_matrixctl(
        capsys, "scenario", "run", file(tmp_path, "method.0.verify.where", {"powered": "perhaps"})
    )
    assert code == 5
    assert "INVALID: dark had no effect" in out


def test_a_preview_changes_nothing(stack: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_matrixctl(capsys, "scenario", "preview", file(tmp_path))
    assert code == 0
    assert "creates instance demo on sn0-c0" in out
    assert "at 10s: node-down on sn0-c0" in out
    assert "nothing was changed" in out
    code, out, _ = run_matrixctl(capsys, "scenario", "preview", "node-loses-power", "-o", "json")
    assert len(json.loads(out)["given"]["scenario-demo"]) == 4


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("stopConditions", None, "stopConditions"),
        ("targets.victim.select.names", ["sn0-c99-n0"], "targets.victim.select"),
        ("method.0.fault", "gremlin", "method[0].fault"),
    ],
)
def test_bad_input_is_refused_by_its_field(
    stack: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, value: Any, field: str
) -> None:
    code, _, err = run_matrixctl(capsys, "scenario", "run", file(tmp_path, path, value))
    assert code == 1
    assert f"[field {field}]" in err


def test_one_run_at_a_time(stack: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class LockedByAnother(ProcessLock):
        def _try_lock(self) -> int | None:
            return None

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(host, "ProcessLock", LockedByAnother)
        code, _, err = run_matrixctl(capsys, "scenario", "run", file(tmp_path))
    assert code == 1
    assert "only one can run at a time" in err


def test_what_is_neither_file_nor_name_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_matrixctl(capsys, *NEVER)
    assert code == 2
    assert "scenario list" in err
