"""Start a stack, stop it, show its status: the commands `up`, `down` and `status`.

`start_supervisor` leaves a supervisor running in a session of its own; `stop_stack` ends that supervisor and, where it
is gone, every process it left. Both may be repeated.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matrixcommon.model.errors import InternalError, InvalidField
from matrixcommon.model.quantities import timestamp
from services.catalogue import PROCESSES, Process
from services.matrixctl.output.screen import NotAccessible, NotRunning, console, echo
from services.matrixctl.supervisor.process_lock import Holder, LockUnavailable, stop
from services.matrixctl.supervisor.process_memory import ProcessMemory, process_memory
from services.matrixctl.supervisor.state_folder import SUPERVISOR, Child, Stack, StateFolder, Unreadable

STOP_TIMEOUT_WALL_S = 15.0
POLL_PERIOD_WALL_S = 0.05
FREE_BYTES_MIN = 64 * 1024
"""With less free space, SQLite cannot open another database, and no process becomes ready."""
REQUEST_VARIABLE = "CLOUDMATRIX_STACK_REQUEST"
"""Environment variable with a supervisor's request, as JSON."""


def choose_processes(only: str | None, processes: tuple[Process, ...] = PROCESSES) -> tuple[Process, ...]:
    """The processes named in `--only a,b`, in the catalogue's order. Raises InvalidField for an unknown name."""
    if only is None:
        return processes
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = [process.name for process in processes]
    for name in names:
        if name not in known:
            raise InvalidField(f"there is no process {name!r}; there are {', '.join(known)}", field="--only")
    if not names:
        raise InvalidField(f"name at least one of {', '.join(known)}", field="--only")
    return tuple(process for process in processes if process.name in names)


def supervisor_command(folder: StateFolder) -> list[str]:
    return [sys.executable, "-m", "services.matrixctl.supervisor.supervisor", "--state", str(folder.path)]


def supervisor_environment(request: str) -> dict[str, str]:
    """The environment of a supervisor: its request, a path that finds our modules from any folder, and few malloc
    arenas."""
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    return os.environ | {REQUEST_VARIABLE: request, "PYTHONPATH": path, "MALLOC_ARENA_MAX": "2"}


def start_supervisor(folder: StateFolder, request: str) -> Holder:
    """Start a supervisor in the background, or return the one that runs. Raises InternalError if it dies."""
    running = folder.supervisor()
    if running is not None:
        return running
    folder.prepare()
    log_file = folder.logs / f"{SUPERVISOR}.log"
    with log_file.open("ab") as out:
        child = subprocess.Popen(
            supervisor_command(folder),
            env=supervisor_environment(request),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    while (running := folder.supervisor()) is None:
        if child.poll() is not None:
            raise InternalError(
                f"the supervisor exited with {child.returncode}; last line of {log_file}: {last_line(log_file)}"
            )
        time.sleep(POLL_PERIOD_WALL_S)
    return running


def last_line(file: Path) -> str:
    lines = file.read_text(errors="replace").strip().splitlines() if file.exists() else []
    return lines[-1][:300] if lines else "(nothing)"


def watch_until_ready(folder: StateFolder, supervisor: Holder, timeout_wall_s: float) -> Iterator[Stack]:
    """Yield the stack on each change until all of it is ready. Raises InternalError that names processes not ready in
    time, NotRunning if the stack is stopped meanwhile, NotAccessible if its disk is full."""
    deadline = time.monotonic() + timeout_wall_s
    shown: Stack | None = None
    while True:
        stack = folder.read()
        if stack is not None and stack != shown and stack.supervisor_pid == supervisor.pid:
            shown = stack
            yield stack
            if all(child.ready for child in stack.children.values()):
                return
        if not supervisor.alive():
            _check_not_stopped(folder, supervisor)
            log_file = folder.logs / f"{SUPERVISOR}.log"
            raise InternalError(f"the supervisor has died; last line of {log_file}: {last_line(log_file)}")
        if shutil.disk_usage(folder.path).free < FREE_BYTES_MIN:
            raise NotAccessible(f"the disk of {folder.path} is full; make room, then `matrixctl down` and `up` again")
        if time.monotonic() > deadline:
            raise InternalError(f"not ready after {timeout_wall_s:g} s: {describe_unready(folder, shown)}")
        time.sleep(POLL_PERIOD_WALL_S)


def _check_not_stopped(folder: StateFolder, supervisor: Holder) -> None:
    """Raises NotRunning if the supervisor shut down cleanly, because somebody stopped the stack."""
    stack = folder.read()
    if stack is not None and stack.supervisor_pid == supervisor.pid and stack.time.stopped_wall is not None:
        raise NotRunning(f"the stack in {folder.path} was stopped while it started")


def show_progress(folder: StateFolder, supervisor: Holder, timeout_wall_s: float) -> None:
    """Print a line per process as it becomes ready, with a spinner on a terminal for those still awaited."""
    began = time.monotonic()
    done: set[str] = set()
    with console().status("starting") if sys.stdout.isatty() else nullcontext() as spinner:
        for stack in watch_until_ready(folder, supervisor, timeout_wall_s):
            for child in stack.children.values():
                if child.ready and child.name not in done:
                    done.add(child.name)
                    echo(f"  [green]ready[/] {child.name:<9} {time.monotonic() - began:4.1f} s  {child.url}")
            if spinner is not None:
                unready = [child for child in stack.children.values() if child.name not in done]
                waited = [child.name + (f" ({child.waiting_for})" if child.waiting_for else "") for child in unready]
                spinner.update("waiting for " + ", ".join(waited))


def describe_unready(folder: StateFolder, stack: Stack | None) -> str:
    """The processes that are not ready, what each waits for, and its log."""
    if stack is None:
        return "nothing was started"
    return "; ".join(
        f"{child.name} ({_why_unready(folder, child)}; log {folder.logs / child.name}.log)"
        for child in stack.children.values()
        if not child.ready
    )


def _why_unready(folder: StateFolder, child: Child) -> str:
    """What a process waits for, or for one that ends by itself each time it is started: its last words."""
    if child.last_exit.startswith("exit "):
        return f"{child.last_exit} {child.restarts} times: {last_line(folder.logs / f'{child.name}.log')}"
    return child.waiting_for or child.last_exit or child.state


def stop_stack(folder: StateFolder, timeout_wall_s: float = STOP_TIMEOUT_WALL_S) -> list[str]:
    """Stop all processes of this stack, even without a supervisor; returns those that were running."""
    supervisor = folder.supervisor()
    ended = list(folder.holders())
    if supervisor is not None:
        supervisor.signal(signal.SIGTERM)
        deadline = time.monotonic() + timeout_wall_s
        while supervisor.alive() and time.monotonic() < deadline:
            time.sleep(POLL_PERIOD_WALL_S)
        supervisor.signal(signal.SIGKILL)
        ended.append(SUPERVISOR)
    while supervisor is not None and supervisor.alive():
        time.sleep(POLL_PERIOD_WALL_S)
    left = folder.holders()
    stop(left, 5.0, PROCESSES)
    _record_stop(folder, after_crash=bool(left))
    return ended


def _record_stop(folder: StateFolder, after_crash: bool) -> None:
    """Record when time stopped, on behalf of a supervisor that was killed."""
    process_lock = folder.process_lock(SUPERVISOR)
    if not folder.run.exists():
        return
    try:
        process_lock.acquire()
    except LockUnavailable:
        return  # somebody started it again meanwhile; leave it alone
    try:
        stack = folder.read()
    except Unreadable:
        stack = None  # no record to update; everything was stopped anyway
    if stack is not None and stack.time.stopped_wall is None and after_crash:
        idle = {
            name: replace(child, pid=0, ready=False, state="Stopped", waiting_for="")
            for name, child in stack.children.items()
        }
        with suppress(OSError):  # if the disk is full, time is that of a stack that was killed
            folder.write(replace(stack, children=idle, time=replace(stack.time, stopped_wall=time.time())))
    folder.remove_stale_locks()
    process_lock.release()


@dataclass(frozen=True)
class StackReport:
    """The status of a stack at one moment."""

    folder: StateFolder
    stack: Stack | None
    supervisor: Holder | None
    living: dict[str, Holder]
    memory: dict[str, ProcessMemory]

    @property
    def running(self) -> bool:
        return self.supervisor is not None or bool(self.living)

    @property
    def ready(self) -> bool:
        children = self.stack.children if self.stack else {}
        return self.supervisor is not None and bool(children) and all(self.is_ready(name) for name in children)

    def is_ready(self, name: str) -> bool:
        return bool(self.stack and self.stack.children[name].ready and name in self.living)

    def total(self, pick: Callable[[ProcessMemory], int | None]) -> int | None:
        sizes = [pick(current) for current in self.memory.values()]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def document(self) -> dict[str, Any]:
        """The status as a document for programs. Memory in bytes: `pss` adds up over processes, `rss` counts shared
        pages in each."""
        rows = []
        for name, child in (self.stack.children if self.stack else {}).items():
            current = self.memory.get(name, ProcessMemory(None, None))
            rows.append(
                {
                    "name": name,
                    "pid": self.living[name].pid if name in self.living else None,
                    "url": child.url,
                    "ready": self.is_ready(name),
                    "state": child.state if name in self.living else "Stopped",
                    "waitingFor": child.waiting_for or None,
                    "restarts": child.restarts,
                    "startedAt": timestamp(child.started_wall) if child.started_wall else None,
                    "lastExit": child.last_exit or None,
                    "memory": vars(current),
                    "log": str(self.folder.logs / f"{name}.log"),
                }
            )
        supervisor = self.memory.get(SUPERVISOR, ProcessMemory(None, None))
        return {
            "state": str(self.folder.path),
            "running": self.running,
            "ready": self.running and self.ready,
            "supervisor": {"pid": self.supervisor and self.supervisor.pid, "memory": vars(supervisor)},
            "timeScale": self.stack.time.scale if self.stack else None,
            "emulatedTime": timestamp(self.stack.time.emulated(time.time())) if self.stack and self.running else None,
            "kubeconfig": str(self.folder.kubeconfig) if self.folder.kubeconfig.exists() else None,
            "memory": {"pss": self.total(lambda current: current.pss), "rss": self.total(lambda current: current.rss)},
            "processes": rows,
        }


def stack_report(folder: StateFolder) -> StackReport:
    """The current status of the stack, including memory."""
    supervisor = folder.supervisor()
    living = folder.holders() if folder.run.exists() else {}
    pids = {name: holder.pid for name, holder in living.items()}
    if supervisor is not None:
        pids[SUPERVISOR] = supervisor.pid
    memory = {name: process_memory(pid) for name, pid in pids.items()}
    return StackReport(folder, folder.read(), supervisor, living, memory)
