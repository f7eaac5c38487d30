"""A standstill: all processes of a stack stopped at once, and continued whatever becomes of who stopped them.

They are stopped one after the other. Who stops earlier sends nothing later, so no store holds an answer to a message
that its sender does not know of; what was under way is lost, as at the end of a process, which everybody survives.
Leases do not end by it: a service counts no silence in which it could not hear (decision 0432).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from matrixcommon.model.errors import InternalError
from services.matrixctl.supervisor.process_lock import Holder
from services.matrixctl.supervisor.state_folder import SUPERVISOR, Folder

STOP_PATIENCE_WALL_S = 5.0
LOOK_PERIOD_WALL_S = 0.001

_GUARD = """
import os, signal, sys
sys.stdin.buffer.read()
for pid in map(int, sys.argv[1:]):
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
"""
"""Waits for the end of its standard input, which comes however its parent ends, and has everybody continue."""


def processes_of(folder: Folder) -> dict[str, Holder]:
    """The living processes of a stack, the supervisor first: it must not take the others for hung."""
    supervisor = folder.supervisor()
    first = {SUPERVISOR: supervisor} if supervisor is not None else {}
    return first | (folder.holders() if folder.run.exists() else {})


@contextmanager
def standstill(processes: Mapping[str, Holder]) -> Iterator[float]:
    """Nobody of them runs within; gives when the last one stopped (wall seconds). Who stood still before does
    so afterwards: a fault may have it so. Raises InternalError where one does not stop, after everybody continued."""
    processes = {name: each for name, each in processes.items() if each.alive() and not _stopped(each.pid)}
    pids = [str(holder.pid) for holder in processes.values()]
    guard = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _GUARD, *reversed(pids)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        for name, holder in processes.items():
            holder.signal(signal.SIGSTOP)
            _await_stop(name, holder)
        yield time.time()
    finally:
        for holder in reversed(list(processes.values())):
            holder.signal(signal.SIGCONT)
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait()


def _await_stop(name: str, holder: Holder) -> None:
    until = time.monotonic() + STOP_PATIENCE_WALL_S
    while holder.alive() and not _stopped(holder.pid):
        if time.monotonic() > until:
            raise InternalError(f"{name} (pid {holder.pid}) does not stop")
        time.sleep(LOOK_PERIOD_WALL_S)


def _stopped(pid: int) -> bool:
    """Whether no thread of it runs any more. The signal takes effect a moment after it is sent."""
    try:
        tasks = [Path(f"/proc/{pid}/task/{task}/stat").read_text() for task in os.listdir(f"/proc/{pid}/task")]
        return all(stat.rpartition(")")[2].split()[0] in ("T", "t", "Z") for stat in tasks)
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return True  # a thread, or the process, has ended
    shown = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()[:1] in ("T", "")
