"""A named lock that one living process holds at a time.

Each process of a stack, and the supervisor itself, holds a lock in `<state>/run`. It is a file lock that the kernel
releases however the process ends, so it is never held by a dead process, and two processes of one name cannot both
run, even when the supervisor that started them is gone. The file also contains the holder's pid and start time, so that
a reused pid is never mistaken for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from services.catalogue import Process

READ_TIMEOUT_WALL_S = 0.5
_locks: dict[Path, tuple[int, int]] = {}
"""Locks of this process: path to (pid, descriptor). A forked child holds none of its parent's."""


class LockUnavailable(Exception):
    """Another living process holds the lock."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    pid: int
    started: str

    def alive(self) -> bool:
        return started_at(self.pid) == self.started

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to exactly this process; return whether it still existed."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


class ProcessLock:
    """One lock, by its file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def acquire(self, timeout_wall_s: float = 0.0) -> None:
        """Acquire the lock until this process ends. Raises LockUnavailable if it is not free within the timeout."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + timeout_wall_s
        while (descriptor := self._try_lock()) is None:
            if time.monotonic() >= deadline:
                raise LockUnavailable(f"{self.path.stem} is held by another process")
            time.sleep(0.02)
        owner = {"pid": os.getpid(), "started": started_at(os.getpid())}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)
        _locks[self.path] = (os.getpid(), descriptor)

    def _try_lock(self) -> int | None:
        """A descriptor that locks the file now at this path, not one removed meanwhile."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                return descriptor
        except (BlockingIOError, PermissionError, FileNotFoundError):
            pass
        os.close(descriptor)
        return None

    def is_owned(self) -> bool:
        """Whether this process holds the lock in the file at this path, and not in one that was removed."""
        pid, descriptor = _locks.get(self.path, (0, -1))
        try:
            return pid == os.getpid() and os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock, and remove the file unless another process has it by now."""
        owned = self.is_owned()
        pid, descriptor = _locks.pop(self.path, (0, -1))
        if pid == os.getpid():
            if owned:
                self.path.unlink(missing_ok=True)
            os.close(descriptor)

    def holder(self) -> Holder | None:
        """The present holder."""
        pid, _ = _locks.get(self.path, (0, -1))
        if pid == os.getpid():
            return Holder(pid, started_at(pid) or "")
        deadline = time.monotonic() + READ_TIMEOUT_WALL_S
        while self._locked():
            try:
                current = json.loads(self.path.read_text())
                return Holder(current["pid"], current["started"])
            except (ValueError, FileNotFoundError):
                # It is acquiring the lock: it locks the file a moment before it writes its name.
                if time.monotonic() >= deadline:
                    return None
                time.sleep(0.01)
        return None

    def _locked(self) -> bool:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False


def started_at(pid: int) -> str | None:
    """Start time of a process, only for comparison; None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _started_at_from_ps(pid)
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def _started_at_from_ps(pid: int) -> str | None:
    """The start time from `ps`, to the second, for systems without /proc."""
    shown = subprocess.run(["ps", "-p", str(pid), "-o", "lstart="], capture_output=True, text=True, check=False)
    return shown.stdout.strip() or None


def stop(holders: dict[str, Holder], timeout_wall_s: float, processes: Iterable[Process] = ()) -> list[str]:
    """Terminate these processes, and kill those that outlive the timeout. Returns the names of those killed.

    Those that none of the `processes` calls are stopped first, while what they call still answers: the operator has
    requests to finish and a Lease to release. The timeout then applies twice.
    """
    called = {callee for process in processes if process.name in holders for callee in process.calls}
    callers = {name: holder for name, holder in holders.items() if name not in called}
    others = {name: holder for name, holder in holders.items() if name in called}
    return _stop_together(callers, timeout_wall_s) + _stop_together(others, timeout_wall_s)


def _stop_together(holders: dict[str, Holder], timeout_wall_s: float) -> list[str]:
    for holder in holders.values():
        holder.signal(signal.SIGTERM)
    left = dict(holders)
    deadline = time.monotonic() + timeout_wall_s
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = {name: holder for name, holder in left.items() if holder.alive()}
    killed = [name for name, holder in left.items() if holder.signal(signal.SIGKILL)]
    while any(holder.alive() for holder in left.values()):
        time.sleep(0.02)
    return killed
