"""The supervisor: keeps the processes of one stack running, and forks them from itself.

It runs a loop that takes no input: reap what ended, start what is missing, probe readiness, record what was observed,
wait a little. Whatever kills a child or the supervisor itself, the next round (of this supervisor or the next one)
converges to one living process per name, with its current environment. It has one thread, because it forks, and sends
its HTTP probes one after the other.

    python -m services.matrixctl.supervisor.supervisor --state DIR

What to run is in CLOUDMATRIX_STACK_REQUEST, as JSON; without it, all of the catalogue.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from matrixcommon.emulation.stack_clock import change_timeline, write_timeline
from services.catalogue import Process
from services.chassis.logging import configure_logging
from services.matrixctl.supervisor.log_rotation import rotate_all
from services.matrixctl.supervisor.machine import SPEC_PROCESSES, machine_settings, resolve_machine, store_machine_file
from services.matrixctl.supervisor.probe import free_port, port_is_free, probe_readiness
from services.matrixctl.supervisor.process_lock import Holder, LockUnavailable, started_at, stop
from services.matrixctl.supervisor.process_spawn import (
    EXIT_LOCK_UNAVAILABLE,
    can_fork,
    exit_text,
    inherited_environment,
    preload,
    spawn,
)
from services.matrixctl.supervisor.restored_state import activate_pending_state, pending_state
from services.matrixctl.supervisor.stack_record import StackRecord
from services.matrixctl.supervisor.stack_request import StackRequest
from services.matrixctl.supervisor.state_folder import LOOPBACK, SUPERVISOR, Child, Stack, StackTime, StateFolder

log = logging.getLogger("supervisor")

ALL_INTERFACES = "0.0.0.0"
BACKOFF_WALL_S_MIN = 0.2
BACKOFF_WALL_S_MAX = 5.0
BACKOFF_RESET_WALL_S = 30.0
PROBE_STARTING_WALL_S = 0.1
PROBE_READY_WALL_S = 2.0
PROBE_TIMEOUT_WALL_S = 1.0
HUNG_WALL_S, STARTUP_HUNG_WALL_S = 60.0, 600.0
"""A process that has not answered for this long is replaced; one that never answered, after the longer time, since it
may be building a large machine."""
STOP_TIMEOUT_WALL_S = 5.0
LOGS_PERIOD_WALL_S = 5.0


@dataclass
class ChildRuntime:
    """What the supervisor knows about a child, besides what it records."""

    holder: Holder | None = None
    is_child: bool = False
    backoff_s: float = BACKOFF_WALL_S_MIN
    retry_at: float = 0.0
    probe_at: float = 0.0
    spawned_at: float = 0.0
    last_answer_at: float | None = None


class Supervisor:
    """The supervisor of one state folder; lives as long as the stack runs."""

    def __init__(self, folder: StateFolder, request: StackRequest) -> None:
        self.folder = folder
        self.request = request
        self.forking = can_fork()
        self.stopping = False
        # A process that calls the most others takes the longest to be ready, so it is started first.
        order = sorted(request.processes, key=lambda process: -len(process.calls))
        self.runtimes = {process.name: ChildRuntime() for process in order}
        self._admin_token = folder.ensure_token("admin-token", "matrixctl", "admin")
        self._tokens = {process.name: folder.token_of(process) for process in request.processes}
        self.stack = self._initial_stack()
        self._record = StackRecord(folder)
        self._next_rotation_at = 0.0
        self._wakeup_read, self._wakeup_write = os.pipe()

    def _initial_stack(self) -> Stack:
        """The stack of the last run, updated: its time continues, and its ports are kept if they are free."""
        now, processes, host = time.time(), self.request.processes, self.request.host
        before = self.folder.read()
        living = self.folder.holders()
        when = self._initial_time(before, bool(living), now)
        children = {}
        for process in processes:
            current = before.children.get(process.name) if before else None
            if process.name in living and current is not None and before and before.host == host:
                children[process.name] = replace(current, ready=False)
            else:
                port = self._port(process, current.port if current else 0)
                children[process.name] = Child(process.name, port=port, url=self._url(process, port))
        seed = self.request.seed if self.request.seed is not None else (before.seed if before else None)
        database = self.request.database or (before.database if before else "")
        topology = store_machine_file(self.request.topology or (before.topology if before else ""), self.folder)
        return Stack(processes, when, seed, database, children, os.getpid(), topology=topology, host=host)

    def _initial_time(self, before: Stack | None, living: bool, now: float) -> StackTime:
        """The time in the clock file now. If processes of the last run still live, that file continues, at another
        speed if requested; otherwise it is rewritten, starting from where time got to."""
        scale = self.request.scale or (before.time.scale if before else 1.0)
        if before is not None and living and self.folder.timeline() is not None:
            if scale != before.time.scale:
                change_timeline(self.folder.clock_file, lambda timeline, at: timeline.changed(at, scale))
            return replace(before.time, stopped_wall=None)
        when = StackTime(scale, now, now) if before is None else before.time.next_run(scale, now)
        write_timeline(self.folder.clock_file, when.timeline())
        return when

    def _port(self, process: Process, last: int) -> int:
        wanted = [port for port in (process.port, last) if port]
        host = self.request.host
        return next((port for port in wanted if port_is_free(host, port)), 0) or free_port(host)

    def _url(self, process: Process, port: int) -> str:
        """The process's URL on this machine."""
        host = LOOPBACK if self.request.host == ALL_INTERFACES else self.request.host
        return f"{process.scheme}://{host}:{port}"

    def environment(self, name: str) -> dict[str, str]:
        """The CLOUDMATRIX_ settings of one process: its address, its time, and the URLs of other processes."""
        process = next(process for process in self.stack.processes if process.name == name)
        settings = {
            "HOST": self.stack.host,
            "PORT": str(self.stack.children[name].port),
            "STATE": str(self.folder.path),
            "CLOCK_FILE": str(self.folder.clock_file),
            "TOKENS": str(self.folder.tokens),
            "TOKEN": self._tokens[name],
        }
        if self.stack.seed is not None:
            settings["SEED"] = str(self.stack.seed)
        if process.has_database and self.stack.database:
            settings["DATABASE"] = self.stack.database.replace("{service}", name)
        settings |= machine_settings(name, resolve_machine(self.stack.topology, self.folder))
        if name == "operator" and "kube" in self.stack.children:
            settings["SHARED_CLUSTER"] = "false"
        if name == "kube":
            settings["KUBE_ADMIN_TOKEN"] = self._admin_token
        for called in process.calls:  # nowhere, where this stack has none: another one's may listen where it would be
            child = self.stack.children.get(called)
            settings[f"{called.upper()}_URL"] = "" if child is None else child.url
            if called == "kube":
                settings["KUBECONFIG"] = str(self.folder.operator_kubeconfig)
        return {f"CLOUDMATRIX_{key}": value for key, value in settings.items()}

    def fingerprint(self, name: str) -> str:
        """A digest that changes when the process has to be restarted to get its new settings."""
        return hashlib.sha256(json.dumps(self.environment(name), sort_keys=True).encode()).hexdigest()[:16]

    # --- the loop

    def run(self, share: Callable[[], object] = lambda: None) -> None:
        """Supervise until told to stop, or until the state folder is removed, since it could then no longer be told.
        `share` imports what most processes share; the others start before it, and get ready beside it. Raises
        LockUnavailable if another supervisor runs."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup leaves it
                signal.signal(number, self._on_stop_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        os.set_blocking(self._wakeup_write, False)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        self.folder.write(self.stack)
        self._stop_unknown_processes()
        lock = self.folder.process_lock(SUPERVISOR)
        self.begin(share)
        while not self.stopping and lock.is_owned():
            self.reconcile()
            self._wait()
        self.stop_all()

    def begin(self, share: Callable[[], object]) -> None:
        """Start the processes that share little, then import what the others share."""
        for process in self.request.processes:
            if not process.shares_modules:
                self._ensure(process.name)
        try:
            share()
        except BaseException:
            self.stop_all()
            raise

    def _on_stop_signal(self, number: int, frame: object) -> None:
        self.stopping = True

    def reconcile(self) -> None:
        """Run one round: reap, start, probe, record; also rotate logs."""
        self._reap()
        for name in self.runtimes:
            self._ensure(name)
            self._probe(name)
        self._record.save(self.stack)
        if time.monotonic() >= self._next_rotation_at:
            self._next_rotation_at = time.monotonic() + LOGS_PERIOD_WALL_S
            if rotated := rotate_all(self.folder.logs):
                log.info("began logs anew", extra={"files": rotated})

    def _wait(self) -> None:
        now = time.monotonic()
        due = min((max(runtime.probe_at, runtime.retry_at) for runtime in self.runtimes.values()), default=now + 1.0)
        readable, _, _ = select.select([self._wakeup_read], [], [], min(max(0.02, due - now), 0.5))
        if readable:
            os.read(self._wakeup_read, 1024)

    def _update(self, name: str, **changes: object) -> None:
        self.stack = self.stack.with_child(replace(self.stack.children[name], **changes))  # type: ignore[arg-type]

    # --- who ended

    def _reap(self) -> None:
        ended: dict[int, str] = {}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended[pid] = exit_text(status)
        for name, runtime in self.runtimes.items():
            pid = self.stack.children[name].pid
            if runtime.is_child and pid in ended:
                self._on_exit(name, ended[pid])
            elif not runtime.is_child and runtime.holder is not None and not runtime.holder.alive():
                self._on_exit(name, "exited while no supervisor watched")

    def _on_exit(self, name: str, how: str) -> None:
        """Restart after a delay that doubles with every early death and is reset after a long run."""
        runtime, child, now = self.runtimes[name], self.stack.children[name], time.monotonic()
        if now - runtime.spawned_at >= BACKOFF_RESET_WALL_S:
            runtime.backoff_s = BACKOFF_WALL_S_MIN
        runtime.retry_at = now + runtime.backoff_s
        runtime.backoff_s = min(runtime.backoff_s * 2, BACKOFF_WALL_S_MAX)
        runtime.holder, runtime.is_child = None, False
        log.warning("ended", extra={"child": name, "pid": child.pid, "how": how})
        self._update(name, pid=0, ready=False, state="Restarting", restarts=child.restarts + 1, last_exit=how)
        if how != f"exit {EXIT_LOCK_UNAVAILABLE}" and not port_is_free(self.request.host, child.port):
            process = next(process for process in self.stack.processes if process.name == name)
            port = self._port(process, 0)
            log.warning("port is taken by someone else", extra={"child": name, "port": child.port, "instead": port})
            self._update(name, port=port, url=self._url(process, port))

    # --- missing processes

    def _ensure(self, name: str) -> None:
        """Ensure one living process of this name, with its current environment."""
        runtime, child = self.runtimes[name], self.stack.children[name]
        if runtime.holder is not None or runtime.is_child:
            if child.fingerprint != self.fingerprint(name):
                self._replace(name, "its settings changed")
            return
        if time.monotonic() < runtime.retry_at:
            return
        found = self.folder.process_lock(name).holder()
        if found is not None and child.fingerprint == self.fingerprint(name):
            self._adopt(name, found)
        elif found is not None:
            log.info("replacing a process of an earlier supervisor", extra={"child": name, "pid": found.pid})
            stop({name: found}, STOP_TIMEOUT_WALL_S)
            self._start(name)
        else:
            self._start(name)

    def _start(self, name: str) -> None:
        process = next(process for process in self.stack.processes if process.name == name)
        log_file = self.folder.logs / f"{name}.log"
        lock_file = self.folder.process_lock(name).path
        environ = inherited_environment() | self.environment(name)
        now = time.monotonic()
        self.runtimes[name] = replace(self.runtimes[name], spawned_at=now, last_answer_at=None, probe_at=now)
        try:
            pid = spawn(name, process.module, environ, lock_file, log_file, self.forking)
        except OSError as wrong:  # no room for another process, say; the others are not to suffer by it
            self._on_exit(name, f"not started: {wrong.strerror or wrong}")
            return
        self.runtimes[name].is_child = True
        self._update(
            name, pid=pid, state="Starting", ready=False, started_wall=time.time(), fingerprint=self.fingerprint(name)
        )
        log.info("started", extra={"child": name, "pid": pid, "forked": self.forking})

    def _adopt(self, name: str, found: Holder) -> None:
        """Adopt a process that an earlier supervisor started with exactly these settings."""
        now = time.monotonic()
        self.runtimes[name] = ChildRuntime(found, is_child=False, spawned_at=now, last_answer_at=now, probe_at=now)
        self._update(name, pid=found.pid, state="Starting", ready=False)
        log.info("took over", extra={"child": name, "pid": found.pid})

    def _replace(self, name: str, why: str) -> None:
        log.info("replacing", extra={"child": name, "pid": self.stack.children[name].pid, "why": why})
        stop({key: holder for key, holder in self._running_holders().items() if key == name}, STOP_TIMEOUT_WALL_S)
        self._reap()

    def _stop_unknown_processes(self) -> None:
        """Stop processes of an earlier run that are not part of this one."""
        unknown = {name: holder for name, holder in self.folder.holders().items() if name not in self.runtimes}
        if unknown:
            stop(unknown, STOP_TIMEOUT_WALL_S)

    # --- readiness

    def _probe(self, name: str) -> None:
        runtime, child, now = self.runtimes[name], self.stack.children[name], time.monotonic()
        if child.pid == 0 or now < runtime.probe_at:
            return
        seen = probe_readiness(child.url, PROBE_TIMEOUT_WALL_S, child.pid)
        now = time.monotonic()
        if seen.alive:
            runtime.last_answer_at = now
        silent = not seen.alive and child.ready
        runtime.probe_at = now + (PROBE_READY_WALL_S if seen.ready or silent else PROBE_STARTING_WALL_S)
        if seen.ready != child.ready or seen.waiting_for != child.waiting_for:
            state = "Ready" if seen.ready else child.state if child.state == "Starting" else "NotReady"
            self._update(name, ready=seen.ready, waiting_for=seen.waiting_for, state=state)
        limit_s = STARTUP_HUNG_WALL_S if runtime.last_answer_at is None else HUNG_WALL_S
        if now - (runtime.last_answer_at or runtime.spawned_at) > limit_s:
            self._replace(name, f"no answer for {limit_s:g} s")

    def _running_holders(self) -> dict[str, Holder]:
        """Holders of locks, plus children just started that have not acquired theirs yet."""
        pids = {name: self.stack.children[name].pid for name, runtime in self.runtimes.items() if runtime.is_child}
        spawned = {name: Holder(pid, started) for name, pid in pids.items() if (started := started_at(pid))}
        adopted = {name: runtime.holder for name, runtime in self.runtimes.items() if runtime.holder is not None}
        return spawned | adopted | self.folder.holders()

    # --- the end

    def stop_all(self) -> None:
        """Stop all processes, and record how far time got."""
        killed = stop(self._running_holders(), STOP_TIMEOUT_WALL_S, self.stack.processes)
        self._reap()
        self.folder.remove_stale_locks()
        for name in self.runtimes:
            self._update(name, pid=0, state="Stopped", ready=False, waiting_for="")
        self.stack = replace(self.stack, time=replace(self.stack.time, stopped_wall=time.time()))
        self._record.save(self.stack)
        log.info("stopped", extra={"killed": killed})


def share_modules(folder: StateFolder, request: StackRequest) -> None:
    """Import and build what the processes share."""
    if any(process.name in SPEC_PROCESSES for process in request.processes):
        from services.matrixctl.supervisor.machine_check import prebuild_supernode

        preload(request.shared, partial(prebuild_supernode, folder, request.topology))
    else:
        preload(request.shared)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="supervise", description="Keep the processes of one stack running.")
    parser.add_argument("--state", type=Path, required=True, help="folder of the stack")
    given = parser.parse_args(argv)
    folder = StateFolder(given.state)
    folder.prepare()
    configure_logging(SUPERVISOR, os.environ.get("CLOUDMATRIX_LOG_LEVEL", "INFO"))
    lock = folder.process_lock(SUPERVISOR)
    try:
        lock.acquire()
    except LockUnavailable as taken:
        print(f"another supervisor already runs for {folder.path}: {taken}", file=sys.stderr)
        return EXIT_LOCK_UNAVAILABLE
    if pending_state(folder) is not None:
        stop(folder.holders(), STOP_TIMEOUT_WALL_S)
        activate_pending_state(folder)
    asked = os.environ.pop("CLOUDMATRIX_STACK_REQUEST", "")
    request = StackRequest.from_json(asked) if asked else StackRequest()
    supervisor = Supervisor(folder, request)
    supervisor.run(partial(share_modules, folder, request) if supervisor.forking else lambda: None)
    lock.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
