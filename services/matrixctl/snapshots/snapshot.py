"""Take and restore: a whole stack as one file, while it runs or not.

Taking copies the databases raw while everybody stands still, as they would be found after a crash, and makes whole
files of the copies afterwards. Restoring unpacks and checks everything first, then ends the stack, changes its folder
over in one step (`supervisor/restored_state.py`) and starts it again.
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
from services.matrixctl.snapshots.standstill import processes_of, standstill
from services.matrixctl.supervisor.machine import kept
from services.matrixctl.supervisor.machine_numbers import check_readable
from services.matrixctl.supervisor.process_lock import ProcessLock, SeatTaken
from services.matrixctl.supervisor.restored_state import RESTORING, STACK_FILE, change_over
from services.matrixctl.supervisor.state_folder import Folder, Stack, StackTime, write
from services.matrixctl.supervisor.supervisor import Request
from services.matrixctl.supervisor.up import halt
from services.process_faults.database_faults import allow_writes
from services.snapshots import archive
from services.snapshots.archive import Manifest, UnknownSnapshot
from services.snapshots.server_databases import dump, load, service_url

REPLACED = "replaced.snapshot"
"""What a restore replaced, in the state folder, so that it can be undone."""
LOCK = "snapshot.lock"
"""Held in the state folder by who takes a snapshot of it or replaces what it holds."""


@dataclass(frozen=True)
class Taken:
    """`stopped_wall_s`: how long nobody ran."""

    manifest: Manifest
    stopped_wall_s: float
    took_wall_s: float


def take(folder: Folder, file: Path, meanwhile: Callable[[], None] = lambda: None) -> Taken:
    """All that the stack knows now, as a file that only its owner may read; `meanwhile` is done while all stand still.
    Raises NotRunning where no stack ever was,
    Conflict where it is made of containers, InvalidField where the file cannot be written."""
    began, stack = time.monotonic(), _stack_of(folder)
    target = file.expanduser().absolute()
    if not target.parent.is_dir() or target.is_dir():
        raise InvalidField(f"there is no folder {target.parent}, or {target} is one", field="FILE")
    with _workplace(folder) as work:
        with standstill(processes_of(folder)) as at_wall:
            stopped = time.monotonic()
            if stack.database:
                _dump(stack, work)
            _copy(folder.path, work)
            meanwhile()
            stopped_wall_s = time.monotonic() - stopped
        manifest = _pack(target, work, stack, at_wall, folder)
    return Taken(manifest, stopped_wall_s, time.monotonic() - began)


def restore(folder: Folder, file: Path, keep: bool = True) -> tuple[Manifest, Request]:
    """End the stack in that folder, if any, and have the folder hold what the snapshot does; returns how to start it.

    With `keep` what was there is a snapshot in the folder afterwards. Tokens, keys and the ports of the folder stay.
    Nothing is changed where it raises InvalidField, UnknownSnapshot, or Conflict (a stack of containers)."""
    manifest = archive.read_manifest(file)
    archive.check_schemas(manifest)
    before = folder.read()
    _refuse_containers(folder, before)
    folder.prepare()
    with _workplace(folder) as work:
        archive.extract(file, work)
        _settle(work)
        _check_machine(manifest, work)
        stack = _described(manifest, before)
        write(work / STACK_FILE, folder.document(stack))
        halt(folder)
        if keep and before is not None:
            with suppress(MatrixError, OSError):  # what is beyond reading need not hinder its replacement
                _keep(folder, before)
        if stack.database:
            load(stack.database, work)
        _put_into_force(folder, work)
    return manifest, request_of(stack)


def reset(folder: Folder) -> Request:
    """End the stack and have its folder know nothing: the next start begins from nothing, with the same processes,
    settings, tokens and keys. Raises NotRunning, Conflict."""
    stack = _stack_of(folder)
    with _workplace(folder) as work:
        halt(folder)
        now = time.time()
        emulated = stack.time.next_run(stack.time.scale, now)
        write(work / STACK_FILE, folder.document(replace(stack, time=emulated, supervisor_pid=0)))
        if stack.database:
            load(stack.database, work)
        _put_into_force(folder, work)
    return request_of(stack)


def request_of(stack: Stack) -> Request:
    """How a supervisor is asked for the same stack."""
    return Request(
        stack.processes,
        stack.time.scale,
        seed=stack.seed,
        database=stack.database,
        topology=stack.topology,
        host=stack.host,
    )


def _stack_of(folder: Folder) -> Stack:
    stack = folder.read()
    if stack is None:
        raise NotRunning(f"there is no stack in {folder.path}; `matrixctl up --state {folder.path}` makes one")
    _refuse_containers(folder, stack)
    return stack


def _refuse_containers(folder: Folder, stack: Stack | None) -> None:
    if stack is not None and stack.contained:
        raise Conflict(
            f"the stack in {folder.path} is made of containers: their volumes are copied with the engine's own means"
        )


@contextmanager
def _workplace(folder: Folder) -> Iterator[Path]:
    """A folder on the same disk, for the owner's eyes only; what earlier ones left is taken away. Raises Conflict while
    another process is at it: what that one has in its own is no leaving, and two that replace a state leave neither."""
    lock = ProcessLock(folder.path / LOCK)
    try:
        lock.take()
    except SeatTaken as taken:
        raise Conflict(f"another snapshot, restore or reset in {folder.path} is under way; one at a time") from taken
    try:
        for old in folder.path.glob(".snapshot-*"):
            shutil.rmtree(old, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=".snapshot-", dir=folder.path))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
    finally:
        lock.leave()


def _copy(source: Path, target: Path) -> None:
    """The databases with their logs, byte by byte. Shared memory is of the processes that are stopped: left out."""
    for file in sorted(source.glob("*.db")):
        for part in (file, file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-journal")):
            if part.exists():
                shutil.copyfile(part, target / part.name)


def _dump(stack: Stack, work: Path) -> None:
    for process in stack.processes:
        if process.has_database:
            dump(process.name, service_url(stack.database, process.name), work / f"{process.name}.db")


def _settle(work: Path) -> None:
    """Make whole files of copied databases, without what a scenario does to those of the stack they are of."""
    for database in work.glob("*.db"):
        archive.settle(database)
        allow_writes(database)


def _pack(target: Path, work: Path, stack: Stack, at_wall: float, folder: Folder) -> Manifest:
    _settle(work)
    manifest = Manifest(
        version=version(),
        taken_wall_s=at_wall,
        emulated_s=stack.time.reached(at_wall),
        time_scale=stack.time.scale,
        seed=stack.seed,
        processes=tuple(process.name for process in stack.processes),
        topology=kept(stack.topology, folder),
    )
    databases = {name: work / f"{name}.db" for name in archive.names_in(work)}
    return archive.write(target, manifest, databases, folder.path / (manifest.machine_file or ""))


def _described(manifest: Manifest, before: Stack | None) -> Stack:
    """The stack as it was: its time is where it was, and continues from there as after any stop."""
    when = StackTime(manifest.time_scale, manifest.taken_wall_s, manifest.emulated_s, manifest.taken_wall_s)
    if before is None:
        stack = Stack.of_names(manifest.processes, when, manifest.seed)
    else:
        stack = replace(before, time=when, seed=manifest.seed, supervisor_pid=0)
    return stack if manifest.topology is None else replace(stack, topology=manifest.topology)


def _check_machine(manifest: Manifest, work: Path) -> None:
    """Raises UnknownSnapshot where this version cannot build the snapshot's machine."""
    machine = manifest.topology
    if machine:
        try:
            check_readable(str(work / machine) if manifest.machine_file else machine)
        except MatrixError as wrong:
            raise UnknownSnapshot(f"its machine cannot be built: {wrong.message}") from wrong


def _keep(folder: Folder, before: Stack) -> None:
    stopped = before.time.stopped_wall
    with _workplace_beside(folder) as work:
        if before.database:
            _dump(before, work)
        _copy(folder.path, work)
        _pack(folder.path / REPLACED, work, before, time.time() if stopped is None else stopped, folder)


@contextmanager
def _workplace_beside(folder: Folder) -> Iterator[Path]:
    """A second one."""
    with tempfile.TemporaryDirectory(prefix=".replaced-", dir=folder.path) as name:
        yield Path(name)


def _put_into_force(folder: Folder, work: Path) -> None:
    for old in folder.path.glob(RESTORING):
        shutil.rmtree(old)
    os.rename(work, folder.path / RESTORING)
    change_over(folder)
