"""Take and restore snapshots: a whole stack as one file, running or not.

Taking one copies the raw databases while all processes are stopped, as a crash would leave them, and makes consistent
files of the copies afterwards. Restoring unpacks and checks everything first, then stops the stack, switches its folder
in one step (`supervisor/restored_state.py`) and starts it again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from matrixcommon.model.errors import Conflict, InvalidField, MatrixError
from services.chassis.version import version
from services.matrixctl.output.screen import NotRunning
from services.matrixctl.snapshots.process_freeze import frozen, stack_processes
from services.matrixctl.supervisor.machine import store_machine_file
from services.matrixctl.supervisor.machine_check import check_readable
from services.matrixctl.supervisor.process_lock import LockUnavailable, ProcessLock
from services.matrixctl.supervisor.restored_state import RESTORING, STACK_FILE, activate_pending_state
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import Stack, StackTime, StateFolder, write_atomically
from services.matrixctl.supervisor.up import stop_stack
from services.process_faults.database_faults import allow_writes
from services.snapshots import archive
from services.snapshots.archive import Manifest, UnknownSnapshot
from services.snapshots.server_databases import dump, load, service_url

REPLACED = "replaced.snapshot"
"""File in the state folder with the state that a restore replaced, so that it can be undone."""
LOCK = "snapshot.lock"
"""Lock in the state folder, held while a snapshot is taken or its state is replaced."""


@dataclass(frozen=True)
class SnapshotResult:
    """`stopped_wall_s`: how long the processes were stopped."""

    manifest: Manifest
    stopped_wall_s: float
    took_wall_s: float


def take_snapshot(folder: StateFolder, file: Path, while_stopped: Callable[[], None] = lambda: None) -> SnapshotResult:
    """Write the stack's state to a file that only its owner may read; `while_stopped` is called while all processes are
    stopped. Raises NotRunning if there never was a stack, Conflict if it runs in containers, InvalidField if the file
    cannot be written."""
    began, stack = time.monotonic(), _existing_stack(folder)
    target = file.expanduser().absolute()
    if not target.parent.is_dir() or target.is_dir():
        raise InvalidField(f"there is no directory {target.parent}, or {target} is a directory", field="FILE")
    with _work_folder(folder) as work:
        with frozen(stack_processes(folder)) as at_wall:
            stopped = time.monotonic()
            if stack.database:
                _dump(stack, work)
            _copy(folder.path, work)
            while_stopped()
            stopped_wall_s = time.monotonic() - stopped
        manifest = _pack(target, work, stack, at_wall, folder)
    return SnapshotResult(manifest, stopped_wall_s, time.monotonic() - began)


def restore(folder: StateFolder, file: Path, keep: bool = True) -> tuple[Manifest, StackRequest]:
    """Stop the stack in that folder, if any, and replace the folder's state by the snapshot; returns how to start it.

    With `keep` the replaced state is kept as a snapshot in the folder. Tokens, keys and ports of the folder stay.
    Raises InvalidField, UnknownSnapshot, or Conflict (a stack in containers), each before anything is changed."""
    manifest = archive.read_manifest(file)
    archive.check_schemas(manifest)
    before = folder.read()
    _check_not_contained(folder, before)
    folder.prepare()
    with _work_folder(folder) as work:
        archive.extract(file, work)
        _make_consistent(work)
        _check_machine(manifest, work)
        stack = _stack_of_manifest(manifest, before)
        write_atomically(work / STACK_FILE, folder.to_json(stack))
        stop_stack(folder)
        if keep and before is not None:
            with suppress(MatrixError, OSError):  # an unreadable state need not prevent its replacement
                _save_replaced(folder, before)
        if stack.database:
            load(stack.database, work)
        _activate(folder, work)
    return manifest, request_of(stack)


def reset(folder: StateFolder) -> StackRequest:
    """Stop the stack and delete its state: the next start is empty, with the same processes, settings, tokens and keys.
    Raises NotRunning, Conflict."""
    stack = _existing_stack(folder)
    with _work_folder(folder) as work:
        stop_stack(folder)
        now = time.time()
        emulated = stack.time.next_run(stack.time.scale, now)
        write_atomically(work / STACK_FILE, folder.to_json(replace(stack, time=emulated, supervisor_pid=0)))
        if stack.database:
            load(stack.database, work)
        _activate(folder, work)
    return request_of(stack)


def request_of(stack: Stack) -> StackRequest:
    """The request that starts the same stack again."""
    return StackRequest(
        stack.processes,
        stack.time.scale,
        seed=stack.seed,
        database=stack.database,
        topology=stack.topology,
        host=stack.host,
    )


def _existing_stack(folder: StateFolder) -> Stack:
    stack = folder.read()
    if stack is None:
        raise NotRunning(f"there is no stack in {folder.path}; create one with `matrixctl up --state {folder.path}`")
    _check_not_contained(folder, stack)
    return stack


def _check_not_contained(folder: StateFolder, stack: Stack | None) -> None:
    if stack is not None and stack.contained:
        raise Conflict(f"the stack in {folder.path} runs in containers; copy their volumes with the container engine")


@contextmanager
def _work_folder(folder: StateFolder) -> Iterator[Path]:
    """A private work folder on the same disk; leftovers of earlier runs are removed. Raises Conflict while another
    process uses the lock, whose work folder must not be removed, and because two concurrent replacements would destroy
    both states."""
    lock = ProcessLock(folder.path / LOCK)
    try:
        lock.acquire()
    except LockUnavailable as taken:
        raise Conflict(
            f"another snapshot, restore or reset in {folder.path} is in progress; only one can run at a time"
        ) from taken
    try:
        for old in folder.path.glob(".snapshot-*"):
            shutil.rmtree(old, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=".snapshot-", dir=folder.path))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
    finally:
        lock.release()


def _copy(source: Path, target: Path) -> None:
    """Copy the databases with their write-ahead logs, byte by byte, without the shared memory files of the stopped
    processes."""
    for file in sorted(source.glob("*.db")):
        for part in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-journal")):
            if part.exists():
                shutil.copyfile(part, target / part.name)


def _dump(stack: Stack, work: Path) -> None:
    for process in stack.processes:
        if process.has_database:
            dump(process.name, service_url(stack.database, process.name), work / f"{process.name}.db")


def _make_consistent(work: Path) -> None:
    """Make consistent files of copied databases, and remove faults that a scenario has injected into them."""
    for database in work.glob("*.db"):
        archive.make_consistent(database)
        allow_writes(database)


def _pack(target: Path, work: Path, stack: Stack, at_wall: float, folder: StateFolder) -> Manifest:
    _make_consistent(work)
    manifest = Manifest(
        version=version(),
        taken_wall_s=at_wall,
        emulated_s=stack.time.reached(at_wall),
        time_scale=stack.time.scale,
        seed=stack.seed,
        processes=tuple(process.name for process in stack.processes),
        topology=store_machine_file(stack.topology, folder),
    )
    databases = {name: work / f"{name}.db" for name in archive.database_names(work)}
    return archive.write(target, manifest, databases, folder.path / (manifest.machine_file or ""))


def _stack_of_manifest(manifest: Manifest, before: Stack | None) -> Stack:
    """The stack record of the snapshot; its time continues from there, as after any stop."""
    when = StackTime(manifest.time_scale, manifest.taken_wall_s, manifest.emulated_s, manifest.taken_wall_s)
    if before is None:
        stack = Stack.from_names(manifest.processes, when, manifest.seed)
    else:
        stack = replace(before, time=when, seed=manifest.seed, supervisor_pid=0)
    return stack if manifest.topology is None else replace(stack, topology=manifest.topology)


def _check_machine(manifest: Manifest, work: Path) -> None:
    """Raises UnknownSnapshot if this version cannot build the snapshot's machine."""
    machine = manifest.topology
    if machine:
        try:
            check_readable(str(work / machine) if manifest.machine_file else machine)
        except MatrixError as wrong:
            raise UnknownSnapshot(f"its machine cannot be built: {wrong.message}") from wrong


def _save_replaced(folder: StateFolder, before: Stack) -> None:
    stopped = before.time.stopped_wall
    with _second_work_folder(folder) as work:
        if before.database:
            _dump(before, work)
        _copy(folder.path, work)
        _pack(folder.path / REPLACED, work, before, time.time() if stopped is None else stopped, folder)


@contextmanager
def _second_work_folder(folder: StateFolder) -> Iterator[Path]:
    """A second one."""
    with tempfile.TemporaryDirectory(prefix=".replaced-", dir=folder.path) as name:
        yield Path(name)


def _activate(folder: StateFolder, work: Path) -> None:
    for old in folder.path.glob(RESTORING):
        shutil.rmtree(old)
    os.rename(work, folder.path / RESTORING)
    activate_pending_state(folder)
