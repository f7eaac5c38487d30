"""The state folder of one stack: where everything is that outlives a process.

    stack.json     the processes and their ports, the time of the stack, what the supervisor last saw
    run/           a seat per process
    logs/          what each process says, one line of JSON per event
    clock.json     how emulated time runs: the speeds, and from when on each; changed by `matrixctl clock`
    tokens.json    digests of bearer tokens; admin-token holds matrixctl's, PROCESS-token each process's,
                   for the owner's eyes only
    kubeconfig     written by the embedded Kubernetes API; kubeconfig-operator beside it is the operator's
    machine.*      its machine, where that is a file: a copy of the one it was begun with
    *.db           a database per service
    scenarios/     process-faults.json: what strikes its processes and is not undone

`stack.json` has one writer: whoever sits on the supervisor's seat. It is replaced in one step, so a reader never sees
half of it.
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
from services.matrixctl.supervisor.process_lock import Holder, ProcessLock, SeatTaken

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SUPERVISOR = "supervisor"
HOST = "127.0.0.1"


class Unreadable(MatrixError):
    """stack.json is damaged."""


@dataclass(frozen=True)
class StackTime:
    """How emulated time runs, and how far it got, so that it never goes back between runs on one state.

    `anchor_wall` and `anchor_emulated` are one instant on both clocks, in seconds since the epoch. `stopped_wall` is
    when the stack was stopped in good order, None while it runs or after it was not.
    """

    scale: float
    anchor_wall: float
    anchor_emulated: float
    stopped_wall: float | None = None

    def emulated(self, wall: float) -> float:
        return self.anchor_emulated + (wall - self.anchor_wall) * self.scale

    def reached(self, wall: float) -> float:
        """How far emulated time got by then: none passes while the stack is stopped."""
        return self.emulated(wall if self.stopped_wall is None else max(self.stopped_wall, self.anchor_wall))

    def follow(self, timeline: Timeline, wall: float) -> StackTime:
        """As the clock's file has it: at the speed of an instant of the wall, or of when the stack was stopped."""
        now = timeline.at(wall if self.stopped_wall is None else min(wall, self.stopped_wall))
        return replace(self, scale=now.speed, anchor_wall=now.wall_s, anchor_emulated=now.emulated_s)

    def timeline(self) -> Timeline:
        return Timeline.steady(self.scale, self.anchor_wall, self.anchor_emulated)

    def next_run(self, scale: float, wall: float) -> StackTime:
        """Time for a run that starts at `wall`: from where the last one got to, or today, whichever is later.

        After a disorderly end nobody knows when the last process stopped reading the clock; it may have been now.
        """
        return StackTime(scale, wall, max(self.reached(wall), wall))


@dataclass(frozen=True)
class Child:
    """What the supervisor last saw of one process."""

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
    """Its processes are containers: no seats, no supervisor of ours."""
    topology: str = ""
    """What its supernodes were begun as: a built-in machine, or the file in the folder with its numbers or drawing."""
    host: str = HOST
    """The address on which its processes listen."""

    @classmethod
    def of_names(cls, names: Iterable[str], when: StackTime, seed: int | None) -> Stack:
        """Of those processes of the catalogue."""
        return cls(tuple(process for process in PROCESSES if process.name in set(names)), when, seed)

    def with_child(self, child: Child) -> Stack:
        return replace(self, children=self.children | {child.name: child})


class Folder:
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
        """Have all that a supervisor begins with; of several that do this at once, each finds what the first made."""
        for folder in (self.path, self.logs, self.run):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with os.fdopen(os.open(self.path / "prepare.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.secret("admin-token", "matrixctl", "admin")
            for process in PROCESSES:
                self.token_of(process)

    def token_of(self, process: Process) -> str:
        """What this process shows to those it calls; nothing where it calls nobody. Agents speak for all nodes."""
        if not process.role:
            return ""
        nodes = "*" if process.role == "agent" else ""
        return self.secret(f"{process.name}-token", process.name, process.role, project="*", nodes=nodes)

    def secret(self, name: str, owner: str, role: str, project: str = "default", nodes: str = "") -> str:
        """The token kept in that file, made known to the services (again, if tokens.json was lost)."""
        from services.chassis.access import Principal, add_token, digest, read_tokens

        file = self.path / name
        if not file.exists() or not file.read_text().strip():  # empty: the machine ended before it was on the disk
            write(file, "cm_" + secrets.token_urlsafe(24) + "\n")
        token = file.read_text().strip()
        if digest(token) not in read_tokens(self.tokens):
            add_token(self.tokens, token, Principal(owner, project, role, nodes))
        return token

    def admin_token(self) -> str:
        file = self.path / "admin-token"
        return file.read_text().strip() if file.exists() else ""

    def seat(self, name: str) -> ProcessLock:
        return ProcessLock(self.run / f"{name}.pid")

    def supervisor(self) -> Holder | None:
        return self.seat(SUPERVISOR).holder()

    def holders(self) -> dict[str, Holder]:
        """Every living process of this stack but the supervisor, by name, whoever started it."""
        names = sorted(file.stem for file in self.run.glob("*.pid") if file.stem != SUPERVISOR)
        found = {name: self.seat(name).holder() for name in names}
        return {name: holder for name, holder in found.items() if holder is not None}

    def sweep(self) -> None:
        """Take away the seats nobody sits on."""
        for file in self.run.glob("*.pid"):
            seat = self.seat(file.stem)
            if seat.holder() is None:
                with suppress(SeatTaken):
                    seat.take()
                    seat.leave()

    def read(self) -> Stack | None:
        """The stack as last written; None where there never was one.

        What another version wrote is read as far as it is known here. Raises Unreadable where it makes no sense.
        """
        try:
            stack = _stacks().validate_json(self.stack_file.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as wrong:
            raise Unreadable(f"{self.stack_file} cannot be read ({wrong}); move it away, its stack is lost") from wrong
        from matrixcommon.emulation.stack_clock import read_timeline  # with asyncio, which most commands need not load

        with suppress(FileNotFoundError):
            return replace(stack, time=stack.time.follow(read_timeline(self.clock_file), time.time()))
        return stack

    def document(self, stack: Stack) -> str:
        """As stack.json holds it."""
        return _stacks().dump_json(stack, indent=1).decode()

    def write(self, stack: Stack) -> None:
        write(self.stack_file, self.document(stack))


@cache
def _stacks() -> TypeAdapter[Stack]:
    from pydantic import TypeAdapter

    return TypeAdapter(Stack)


def write(file: Path, text: str) -> None:
    """Replace a file in one step, readable by its owner only."""
    draft = file.with_name(file.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    draft.replace(file)
