"""The state folder of one stack, with everything that outlives a process.

    stack.json     processes and ports, the time of the stack, the last observation by the supervisor
    run/           a lock per process
    logs/          output of each process, one line of JSON per event
    clock.json     emulated time: each speed and when it starts; changed by `matrixctl clock`
    tokens.json    digests of bearer tokens; admin-token holds matrixctl's, PROCESS-token each process's,
                   for the owner's eyes only
    kubeconfig     written by the embedded Kubernetes API; kubeconfig-operator beside it is the operator's
    machine.*      a copy of the machine file it was created with, if any
    *.db           a database per service
    scenarios/     process-faults.json: faults of its processes that are not undone yet

`stack.json` has one writer: the holder of the supervisor's lock. It is replaced atomically, so a reader never sees half
of it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from matrixcommon.model.errors import MatrixError
from matrixcommon.model.timeline import Timeline
from services.catalogue import PROCESSES, Process
from services.matrixctl.supervisor.process_lock import Holder, LockUnavailable, ProcessLock

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SUPERVISOR = "supervisor"
LOOPBACK = "127.0.0.1"


class Unreadable(MatrixError):
    """stack.json is damaged."""


@dataclass(frozen=True)
class StackTime:
    """The speed of emulated time and how far it got, so that it never goes back between runs on one state folder.

    `anchor_wall` and `anchor_emulated` are one instant on both clocks, in seconds since the epoch. `stopped_wall` is
    when the stack was stopped cleanly; None while it runs, or if it was not.
    """

    scale: float
    anchor_wall: float
    anchor_emulated: float
    stopped_wall: float | None = None

    def emulated(self, wall: float) -> float:
        return self.anchor_emulated + (wall - self.anchor_wall) * self.scale

    def reached(self, wall: float) -> float:
        """The emulated time reached by then; none passes while the stack is stopped."""
        return self.emulated(wall if self.stopped_wall is None else max(self.stopped_wall, self.anchor_wall))

    def updated_from(self, timeline: Timeline, wall: float) -> StackTime:
        """The time according to the clock file, with its speed at that wall time, or when the stack was stopped."""
        now = timeline.at(wall if self.stopped_wall is None else min(wall, self.stopped_wall))
        return replace(self, scale=now.speed, anchor_wall=now.wall_s, anchor_emulated=now.emulated_s)

    def timeline(self) -> Timeline:
        return Timeline.steady(self.scale, self.anchor_wall, self.anchor_emulated)

    def next_run(self, scale: float, wall: float) -> StackTime:
        """Time for a run that starts at `wall`: from where the last one got to, or today, whichever is later.

        After a crash it is unknown when the last process stopped reading the clock; it may have been just now.
        """
        return StackTime(scale, wall, max(self.reached(wall), wall))


@dataclass(frozen=True)
class Child:
    """The supervisor's last observation of one process."""

    name: str
    pid: int = 0
    port: int = 0
    url: str = ""
    state: str = "Stopped"
    ready: bool = False
    waiting_for: str = ""
    restarts: int = 0
    started_wall: float = 0.0
    last_exit: str = ""
    fingerprint: str = ""


@dataclass(frozen=True)
class Stack:
    """The content of stack.json."""

    processes: tuple[Process, ...]
    time: StackTime
    seed: int | None = None
    database: str = ""
    children: dict[str, Child] = field(default_factory=dict)
    supervisor_pid: int = 0
    contained: bool = False
    """Its processes are containers, without locks and supervisor."""
    topology: str = ""
    """Its machine: a built-in name, or the machine file or drawing in the folder."""
    host: str = LOOPBACK
    """Address on which its processes listen."""

    @classmethod
    def from_names(cls, names: Iterable[str], when: StackTime, seed: int | None) -> Stack:
        """A stack of these processes of the catalogue."""
        return cls(tuple(process for process in PROCESSES if process.name in set(names)), when, seed)

    def with_child(self, child: Child) -> Stack:
        return replace(self, children=self.children | {child.name: child})


class StateFolder:
    """One state folder."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.logs = self.path / "logs"
        self.run = self.path / "run"
        self.stack_file = self.path / "stack.json"
        self.clock_file = self.path / "clock.json"
        self.tokens = self.path / "tokens.json"
        self.process_faults = self.path / "scenarios" / "process-faults.json"
        self.kubeconfig = self.path / "kubeconfig"
        self.operator_kubeconfig = self.path / "kubeconfig-operator"

    def prepare(self) -> None:
        """Ensure everything that a supervisor needs. Safe to call concurrently: each caller finds what the first one
        created."""
        for folder in (self.path, self.logs, self.run):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(self.path / "prepare.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.ensure_token("admin-token", "matrixctl", "admin")
            for process in PROCESSES:
                self.token_of(process)

    def token_of(self, process: Process) -> str:
        """The token that a process sends to those it calls; empty if it calls none. The agents' token is for all
        nodes."""
        if not process.role:
            return ""
        nodes = "*" if process.role == "agent" else ""
        return self.ensure_token(f"{process.name}-token", process.name, process.role, project="*", nodes=nodes)

    def ensure_token(self, name: str, owner: str, role: str, project: str = "default", nodes: str = "") -> str:
        """The token stored in that file, registered with the services (again, if tokens.json was lost)."""
        from services.chassis.access import Principal, add_token, digest, read_tokens

        file = self.path / name
        if not file.exists() or not file.read_text().strip():  # empty: the machine crashed before it reached the disk
            write_atomically(file, "cm_" + secrets.token_urlsafe(24) + "\n")
        token = file.read_text().strip()
        if digest(token) not in read_tokens(self.tokens):
            add_token(self.tokens, token, Principal(owner, project, role, nodes))
        return token

    def admin_token(self) -> str:
        file = self.path / "admin-token"
        return file.read_text().strip() if file.exists() else ""

    def process_lock(self, name: str) -> ProcessLock:
        return ProcessLock(self.run / f"{name}.pid")

    def supervisor(self) -> Holder | None:
        return self.process_lock(SUPERVISOR).holder()

    def holders(self) -> dict[str, Holder]:
        """Every living process of this stack except the supervisor, by name, whichever supervisor started it."""
        names = sorted(file.stem for file in self.run.glob("*.pid") if file.stem != SUPERVISOR)
        found = {name: self.process_lock(name).holder() for name in names}
        return {name: holder for name, holder in found.items() if holder is not None}

    def remove_stale_locks(self) -> None:
        """Remove the locks that no process holds."""
        for file in self.run.glob("*.pid"):
            process_lock = self.process_lock(file.stem)
            if process_lock.holder() is None:
                with suppress(LockUnavailable):
                    process_lock.acquire()
                    process_lock.release()

    def read(self) -> Stack | None:
        """The stack as last written; None if there never was one.

        Fields of other versions that are unknown here are ignored. Raises Unreadable for invalid content.
        """
        try:
            stack = _stack_adapter().validate_json(self.stack_file.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as wrong:
            text = "restore it, or move it away: `matrixctl up` continues with the databases, but has to be given"
            text += " --topology, --database, --time-scale and --seed again, and emulated time starts as today's"
            raise Unreadable(f"{self.stack_file} is damaged ({_first_problem(wrong)}); {text}") from wrong
        timeline = self.timeline()
        return stack if timeline is None else replace(stack, time=stack.time.updated_from(timeline, time.time()))

    def timeline(self) -> Timeline | None:
        """What the clock file says; None if it is missing or damaged. The next start writes it again."""
        # with asyncio, which most commands need not load
        from matrixcommon.emulation.stack_clock import ClockUnreadable, read_timeline

        try:
            return read_timeline(self.clock_file)
        except (FileNotFoundError, ClockUnreadable):
            return None

    def to_json(self, stack: Stack) -> str:
        """The content of stack.json."""
        return _stack_adapter().dump_json(stack, indent=1).decode()

    def write(self, stack: Stack) -> None:
        write_atomically(self.stack_file, self.to_json(stack))


@cache
def _stack_adapter() -> TypeAdapter[Stack]:
    from pydantic import TypeAdapter

    return TypeAdapter(Stack)


def _first_problem(wrong: ValueError) -> str:
    from pydantic import ValidationError

    return str(wrong.errors()[0]["msg"]) if isinstance(wrong, ValidationError) else str(wrong)


def write_atomically(file: Path, text: str) -> None:
    """Replace a file atomically, readable only by its owner."""
    draft = file.with_name(file.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    draft.replace(file)
