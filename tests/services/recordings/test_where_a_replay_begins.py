"""On which folders a replay on real processes is refused: where something would be lost, or nothing could be
compared."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from matrixcommon.model.errors import Conflict
from services.catalogue import PROCESSES
from services.chassis.database import Migrations
from services.matrixctl.replays import initial_state
from services.matrixctl.replays.initial_state import prepare_stack
from services.matrixctl.supervisor.state_folder import Stack, StackTime, StateFolder
from services.recordings.recording import About
from services.snapshots import archive
from services.snapshots.archive import Manifest

ABOUT = About(exact=False, seed=4, time_scale=60, began_s=0, length_s=60)
STACK = Stack(PROCESSES, StackTime(1, 0, 0, 0))
RECORDED = "v3-0123456789ab"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """What a recording begins with: a MatrixResource whose topology has that version."""
    database, newest = tmp_path / "recorded.db", Migrations("resource", None).revisions()[1]  # type: ignore[arg-type]
    with closing(sqlite3.connect(database)) as made:
        made.execute("CREATE TABLE alembic_version (version_num TEXT)")
        made.execute("INSERT INTO alembic_version VALUES (?)", (newest,))
        made.execute("CREATE TABLE topology_head (name TEXT)")
        made.execute("INSERT INTO topology_head VALUES (?)", (RECORDED,))
        made.execute("CREATE TABLE journal_head (rv INTEGER, floor INTEGER)")
        made.execute("INSERT INTO journal_head VALUES (7, 0)")
        made.commit()
    manifest = Manifest(
        version="0.2.0", taken_wall_s=0, emulated_s=0, time_scale=1, processes=("resource",), topology="atlas-950"
    )
    archive.write(tmp_path / "a.recording", manifest, {"resource": database})
    return tmp_path / "a.recording"


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    made = StateFolder(tmp_path / "state")
    made.prepare()
    return made


def running(monkeypatch: pytest.MonkeyPatch, folder: StateFolder, lists: Callable[[str], list[dict[str, Any]]]) -> None:
    """As far as is asked, a stack runs in that folder, and its services list that."""
    folder.write(STACK)
    monkeypatch.setattr(folder, "supervisor", lambda: SimpleNamespace(pid=1))
    here = SimpleNamespace(
        stack=SimpleNamespace(children=dict.fromkeys(process.name for process in PROCESSES)),
        list=lambda service, path: lists(path.rpartition("/")[2]),
    )
    monkeypatch.setattr(initial_state.ApiClient, "of", lambda folder: here)
    monkeypatch.setattr(initial_state, "restore", lambda *_: pytest.fail("nothing is changed where it is refused"))


@pytest.mark.parametrize("changes", [{"contained": True}, {"database": "postgresql://me@host/cm_{service}"}])
def test_not_on_a_stack_that_keeps_its_state_elsewhere(
    file: Path, folder: StateFolder, changes: dict[str, Any]
) -> None:
    folder.write(replace(STACK, **changes))
    with pytest.raises(Conflict, match=r"a replay reads SQLite files, and the stack in .* has none"):
        prepare_stack(folder, file, ABOUT)


def test_not_on_a_stack_that_does_not_run_and_may_hold_anything(file: Path, folder: StateFolder) -> None:
    (folder.path / "compute.db").touch()
    with pytest.raises(Conflict, match=r"has the state of a stopped stack: empty it with `matrixctl reset --state"):
        prepare_stack(folder, file, ABOUT)


@pytest.mark.parametrize("kind", ["instances", "allocations", "slices", "deployments", "faults"])
def test_not_on_a_stack_in_use(file: Path, folder: StateFolder, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    running(monkeypatch, folder, lambda asked: [{"name": "a"}] if asked == kind else [])
    with pytest.raises(Conflict, match="is not empty: empty it with `matrixctl reset --state") as refused:
        prepare_stack(folder, file, ABOUT)
    assert refused.value.blocking == [{"kind": kind.removesuffix("s"), "name": "a"}]


@pytest.mark.parametrize(("here", "shown"), [("v3-ba9876543210", "v3-ba9876543210"), ("", "none")])
def test_not_on_a_stack_of_another_topology(
    file: Path, folder: StateFolder, here: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(monkeypatch, folder, lambda asked: [{"topologyVersion": here}] if asked == "supernodes" and here else [])
    with pytest.raises(Conflict, match=rf"has another topology \({shown}\) than the recording \({RECORDED}"):
        prepare_stack(folder, file, ABOUT)


def test_a_new_folder_becomes_what_was_recorded_its_machine_too(file: Path, tmp_path: Path) -> None:
    new = StateFolder(tmp_path / "new")
    request, since = prepare_stack(new, file, ABOUT)
    assert (request.topology, request.scale, request.seed) == ("atlas-950", 60, 4)
    assert since == dict.fromkeys(since, 0) | {"resource": 7}
    assert (new.path / "resource.db").is_file()
