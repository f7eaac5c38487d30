"""A standstill: all processes of a stack are stopped, and continued even if the one that stopped them dies.

They are stopped one after the other. A stopped process sends nothing, so no database holds an answer to a message that
its sender does not know of. Work in progress is lost as in a crash, which every process survives. No lease expires
because of it: a service does not count silence during which it could not hear (decision 0432).
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
from services.matrixctl.supervisor.state_folder import SUPERVISOR, StateFolder

STOP_TIMEOUT_WALL_S = 5.0
POLL_PERIOD_WALL_S = 0.001

_GUARD = """
import os, signal, sys
sys.stdin.buffer.read()
for pid in map(int, sys.argv[1:]):
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass
"""
"""Script of the helper: wait for end of file on standard input, which comes however the parent ends, and continue
all."""


def stack_processes(folder: StateFolder) -> dict[str, Holder]:
    """The living processes of a stack, the supervisor first, so that it does not take the others for hung."""
    supervisor = folder.supervisor()
    first = {SUPERVISOR: supervisor} if supervisor is not None else {}
    return first | (folder.holders() if folder.run.exists() else {})


@contextmanager
def frozen(processes: Mapping[str, Holder]) -> Iterator[float]:
    """Keep these processes stopped within the context; yields when the last one stopped (wall seconds). A process that
    was stopped before stays so afterwards, since a fault may want it. Raises InternalError if one does not stop, after
    continuing the others."""
    processes = {name: each for name, each in processes.items() if each.alive() and not _stopped(each.pid)}
    pids = [str(holder.pid) for holder in processes.values()]
    guard = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _GUARD, *reversed(pids)], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        for name, holder in processes.items():
            holder.signal(signal.SIGSTOP)
            _wait_until_stopped(name, holder)
        yield time.time()
    finally:
        for holder in reversed(list(processes.values())):
            holder.signal(signal.SIGCONT)
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait()


def _wait_until_stopped(name: str, holder: Holder) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_WALL_S
    while holder.alive() and not _stopped(holder.pid):
        if time.monotonic() > deadline:
            raise InternalError(f"{name} (pid {holder.pid}) does not stop")
        time.sleep(POLL_PERIOD_WALL_S)


def _stopped(pid: int) -> bool:
    """Whether all its threads have stopped. The signal takes effect a moment after it is sent."""
    try:
        tasks = [Path(f"/proc/{pid}/task/{task}/stat").read_text() for task in os.listdir(f"/proc/{pid}/task")]
        return all(stat.rpartition(")")[2].split()[0] in ("T", "t", "Z") for stat in tasks)
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return True  # a thread, or the process, has ended
    shown = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.strip()[:1] in ("T", "")
