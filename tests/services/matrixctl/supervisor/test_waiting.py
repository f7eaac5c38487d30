"""Whoever waits for a stack is told why it will not become ready."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from services.matrixctl.output.screen import NotAccessible, NotRunning
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import Child, Stack, StackTime
from services.matrixctl.supervisor.up import describe_unready, start_supervisor, stop_stack, watch_until_ready
from tests.services.matrixctl.conftest import SupervisedStack


def test_who_waits_for_a_stack_that_is_taken_down_is_told_so(
    supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDMATRIX_STANDIN_BETA", "exit")
    supervisor = start_supervisor(
        supervised_stack.folder, StackRequest(supervised_stack.processes, shared=()).to_json()
    )
    waiting = watch_until_ready(supervised_stack.folder, supervisor, 60.0)
    next(waiting)
    stop_stack(supervised_stack.folder)
    with pytest.raises(NotRunning, match="was stopped while it started"):
        list(waiting)


def test_who_waits_for_a_stack_on_a_full_disk_is_told_so_at_once(
    supervised_stack: SupervisedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDMATRIX_STANDIN_BETA", "exit")
    request = StackRequest(supervised_stack.processes, shared=()).to_json()
    waiting = watch_until_ready(supervised_stack.folder, start_supervisor(supervised_stack.folder, request), 600.0)
    next(waiting)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=0))
    with pytest.raises(NotAccessible, match="is full"):
        list(waiting)


def test_process_that_ends_by_itself_is_told_with_its_last_words(supervised_stack: SupervisedStack) -> None:
    folder = supervised_stack.folder
    folder.logs.mkdir(parents=True, exist_ok=True)
    (folder.logs / "resource.log").write_text("resource: resource.db: file is not a database\n")
    damaged = Child("resource", state="Starting", waiting_for="not listening yet", restarts=4, last_exit="exit 1")
    killed = Child("link", state="Starting", waiting_for="not listening yet", restarts=1, last_exit="killed by SIGKILL")
    children = {each.name: each for each in (damaged, killed)}
    text = describe_unready(folder, Stack(supervised_stack.processes, StackTime(1.0, 0.0, 0.0), children=children))
    assert text.startswith("resource (exit 1 4 times: resource: resource.db: file is not a database; log ")
    assert "; link (not listening yet; log " in text
