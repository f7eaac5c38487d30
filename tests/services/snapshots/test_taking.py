"""Taking a snapshot of a stack: one at a time, and with the time that the stack itself would go on from."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import MetaData

from matrixcommon.model.errors import Conflict
from services.chassis.database import Migrations
from services.matrixctl.snapshots import snapshot
from services.matrixctl.snapshots.process_freeze import frozen
from services.matrixctl.snapshots.snapshot import LOCK, reset, restore, take_snapshot
from services.matrixctl.supervisor.process_lock import Holder, started_at
from services.matrixctl.supervisor.state_folder import Stack, StackTime, StateFolder
from services.process_faults.process_faults import ProcessFaults
from services.snapshots import archive

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import sys
from pathlib import Path
from services.matrixctl.supervisor.process_lock import ProcessLock
ProcessLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    """Of a stack that does not run, with one database."""
    made = StateFolder(tmp_path / "state")
    made.prepare()
    made.write(Stack.from_names(("agents",), StackTime(1.0, 1.8e9, 1.8e9, 1.8e9 + 60), None))
    with closing(sqlite3.connect(made.path / "agents.db")) as database:
        database.execute("CREATE TABLE documents (n INTEGER)")
    return made


@contextmanager
def locked_by_another_process(file: Path) -> Iterator[None]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate()


def test_of_two_at_once_one_is_refused_and_takes_nothing_of_the_other(
    folder: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    halted: list[StateFolder] = []
    monkeypatch.setattr(snapshot, "stop_stack", halted.append)
    take_snapshot(folder, tmp_path / "before.snapshot")
    under_way = folder.path / ".snapshot-of-the-other"
    under_way.mkdir()
    with locked_by_another_process(folder.path / LOCK):
        with pytest.raises(Conflict, match="is in progress; only one can run at a time"):
            take_snapshot(folder, tmp_path / "second.snapshot")
        with pytest.raises(Conflict, match="is in progress"):
            restore(folder, tmp_path / "before.snapshot")
        with pytest.raises(Conflict, match="is in progress"):
            reset(folder)
    assert (under_way.is_dir(), halted) == (True, [])
    assert not (tmp_path / "second.snapshot").exists()
    take_snapshot(folder, tmp_path / "second.snapshot")
    assert archive.read_manifest(tmp_path / "second.snapshot").databases.keys() == {"agents"}
    assert not under_way.exists()


def test_no_emulated_time_passes_while_a_stack_is_stopped(folder: StateFolder, tmp_path: Path) -> None:
    stopped = StackTime(scale=60.0, anchor_wall=1.7e9, anchor_emulated=1.8e9, stopped_wall=1.7e9 + 100)
    folder.write(Stack.from_names(("agents",), stopped, None))
    manifest = take_snapshot(folder, tmp_path / "stopped.snapshot").manifest
    assert manifest.emulated_s == 1.8e9 + 100 * 60
    _, request = restore(StateFolder(tmp_path / "other"), tmp_path / "stopped.snapshot")
    there = StateFolder(tmp_path / "other").read()
    assert (request.scale, there and there.time.reached(2e9)) == (60.0, 1.8e9 + 100 * 60)


def test_who_stood_still_before_a_standstill_does_so_after_it() -> None:
    with subprocess.Popen(["sleep", "60"]) as paused, subprocess.Popen(["sleep", "60"]) as running:
        paused.send_signal(signal.SIGSTOP)
        os.waitpid(paused.pid, os.WUNTRACED)
        with frozen({str(each.pid): Holder(each.pid, started_at(each.pid) or "") for each in (paused, running)}):
            os.waitpid(running.pid, os.WUNTRACED)
        os.waitpid(running.pid, os.WCONTINUED)
        assert os.waitpid(paused.pid, os.WCONTINUED | os.WNOHANG) == (0, 0)
        for each in (paused, running):
            each.kill()


@pytest.mark.parametrize("into", ["the same folder", "another"])
async def test_a_fault_on_a_database_is_no_part_of_what_is_known(
    folder: StateFolder, tmp_path: Path, into: str
) -> None:
    """Faults are on the processes of a stack. A snapshot is of what they know, and its databases take writes."""
    stack = folder.read()
    assert stack is not None
    with closing(sqlite3.connect(folder.path / "compute.db")) as database:
        database.execute("CREATE TABLE documents (n INTEGER)")
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES (?)", Migrations("compute", MetaData()).revisions()[1:])
        database.commit()
    struck = ProcessFaults(folder, stack)
    await struck.inject("a", "database-readonly", "compute", {})
    take_snapshot(folder, tmp_path / "struck.snapshot")
    assert not (await struck.observe("compute"))["writable"], "the stack itself is struck as before"
    target = folder if into == "the same folder" else StateFolder(tmp_path / "other")
    restore(target, tmp_path / "struck.snapshot")
    with closing(sqlite3.connect(target.path / "compute.db")) as database:
        database.execute("INSERT INTO documents VALUES (1)")
    after = ProcessFaults(target, stack)
    assert (await after.injected(), (await after.observe("compute"))["writable"]) == ([], True)


async def test_what_strikes_a_stack_ends_with_its_reset(folder: StateFolder) -> None:
    stack = folder.read()
    assert stack is not None
    (folder.path / "agents.db").rename(folder.path / "compute.db")
    await ProcessFaults(folder, stack).inject("a", "database-readonly", "compute", {})
    reset(folder)
    assert await ProcessFaults(folder, stack).injected() == []
