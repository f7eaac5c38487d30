"""ProcessFaults: faults of scenarios on the processes of a stack and their databases.

Only processes that hold a lock of the state folder are affected. Each fault is recorded in the state folder before it
takes effect, so that the next run undoes what a killed one left behind. If several faults of one kind are on one
service, their effect ends with the last of them. matrixctl and the process of the emulated nodes use the same list,
which is locked while it is changed.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import InvalidField, Unavailable
from matrixresource.agent.fault_catalogue import check_parameters
from services.catalogue import BY_NAME
from services.matrixctl.supervisor.process_lock import Holder
from services.matrixctl.supervisor.state_folder import Stack, StateFolder, write_atomically
from services.process_faults.database_faults import WriteLockStall, allow_writes, refuse_writes, writable

STALL_WALL_S, STALL_WALL_S_MAX = 2.0, 10.0
"""A writer waits fifteen seconds for SQLite's lock before it fails."""
LASTING_KINDS = ("service-paused", "database-readonly")
"""The kinds that last until they are undone. A stall ends with the process that stalls; a killed service is
restarted."""


class ProcessFaults:
    """`folder` is the state folder of the stack, `stack` the description of what runs in it."""

    def __init__(self, folder: StateFolder, stack: Stack) -> None:
        self._folder, self._stack = folder, stack
        self._journal = folder.process_faults
        self._stalls: dict[str, WriteLockStall] = {}
        self._pids: dict[str, int] = {}
        """The process ids of services before their last fault."""

    async def services(self) -> Sequence[str]:
        return [] if self._stack.contained else sorted(self._folder.holders())

    async def check(self, kind: str, service: str, parameters: Mapping[str, str]) -> None:
        check_parameters(kind, parameters)
        if not kind.startswith("database-"):
            return
        if self._stack.database or not self._file(service).exists():
            raise InvalidField(f"{service} has no SQLite file in {self._folder.path}", field="fault")
        if kind == "database-stalled":
            self._stall_s(parameters)

    async def inject(self, name: str, kind: str, service: str, parameters: Mapping[str, str]) -> None:
        """Inject a fault, which is not recorded if it fails. Raises Unavailable if the service is not running or its
        database cannot be changed now."""
        with self._editing_journal() as faults:
            faults[name] = (kind, service)
        try:
            await self._apply(name, kind, service, parameters)
        except Exception:
            with self._editing_journal() as faults:
                faults.pop(name, None)
            raise

    async def _apply(self, name: str, kind: str, service: str, parameters: Mapping[str, str]) -> None:
        if (holder := self._folder.process_lock(service).holder()) is not None:
            self._pids[service] = holder.pid
        match kind:
            case "service-killed":
                self._holder(service).signal(signal.SIGKILL)
            case "service-paused":
                self._holder(service).signal(signal.SIGSTOP)
            case "database-readonly":
                await self._change_database(refuse_writes, service)
            case "database-stalled":
                self._stalls[name] = WriteLockStall(self._file(service), self._stall_s(parameters))
                self._stalls[name].start()

    async def _change_database(self, change: Callable[[Path], None], service: str) -> None:
        """Change the database in a thread, since it waits for other writers, and the event loop, which may stall the
        same file, must go on."""
        try:
            await asyncio.to_thread(change, self._file(service))
        except sqlite3.OperationalError as wrong:
            raise Unavailable(f"the database of {service} cannot be changed now: {wrong}") from wrong

    async def clear(self, name: str) -> None:
        if (stall := self._stalls.pop(name, None)) is not None:
            await stall.stop()
        with self._editing_journal() as faults:
            fault = faults.get(name)
            if fault is None or fault[0] not in LASTING_KINDS or list(faults.values()).count(fault) > 1:
                faults.pop(name, None)
                return
        await self._undo(*fault)
        with self._editing_journal() as faults:
            faults.pop(name, None)
            again = fault in faults.values()
        if again:  # another one was injected while this was being undone
            await self._apply(name, *fault, {})

    async def _undo(self, kind: str, service: str) -> None:
        if kind == "service-paused" and (holder := self._folder.process_lock(service).holder()) is not None:
            holder.signal(signal.SIGCONT)
        if kind == "database-readonly":
            await self._change_database(allow_writes, service)

    async def injected(self) -> Sequence[str]:
        return list(self._read())

    def recorded(self) -> dict[str, tuple[str, str]]:
        """(kind, service) of the faults not undone yet, by name."""
        return self._read()

    async def observe(self, service: str) -> dict[str, Any]:
        """Whether the service runs, whether it was restarted since its last fault, and the state of its database."""
        holder, file = self._folder.process_lock(service).holder(), self._file(service)
        before = self._pids.get(service)
        return {
            "running": holder is not None and not _stopped(holder.pid),
            "restarted": holder is not None and before is not None and holder.pid != before,
            "writable": writable(file) if file.exists() else True,
            "stalled": any(each.stalls for each in self._stalls.values() if each.file == file),
        }

    def _holder(self, service: str) -> Holder:
        holder = self._folder.process_lock(service).holder()
        if holder is None:
            raise Unavailable(f"{service} is not running")
        return holder

    def _file(self, service: str) -> Path:
        has_one = service in BY_NAME and BY_NAME[service].has_database
        return self._folder.path / (f"{service}.db" if has_one else "no-database")

    def _stall_s(self, parameters: Mapping[str, str]) -> float:
        try:
            stall_s = float(parameters.get("stallS", STALL_WALL_S))
        except ValueError:
            stall_s = -1.0
        if not 0 < stall_s <= STALL_WALL_S_MAX:
            raise InvalidField(
                f"must be more than 0 and at most {STALL_WALL_S_MAX:g} seconds", field="parameters.stallS"
            )
        return stall_s

    def _read(self) -> dict[str, tuple[str, str]]:
        try:
            return {name: (kind, service) for name, (kind, service) in json.loads(self._journal.read_text()).items()}
        except FileNotFoundError:
            return {}

    @contextmanager
    def _editing_journal(self) -> Iterator[dict[str, tuple[str, str]]]:
        """Yield the recorded faults under a lock and write them back. The lock is never held while waiting."""
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        with self._journal.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            faults = self._read()
            yield faults
            try:
                write_atomically(self._journal, json.dumps(faults))
            except OSError as wrong:
                raise Unavailable(f"cannot write the list of process faults: {wrong.strerror}") from wrong


def _stopped(pid: int) -> bool:
    """Whether the process is stopped (SIGSTOP)."""
    shown = subprocess.run(["ps", "-p", str(pid), "-o", "stat="], capture_output=True, text=True, check=False)
    return shown.stdout.strip().startswith("T")
