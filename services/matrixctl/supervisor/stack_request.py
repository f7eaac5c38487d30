"""What `up` requests of a new supervisor."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

from services.catalogue import PROCESSES, Process
from services.matrixctl.supervisor.process_spawn import SHARED_MODULES
from services.matrixctl.supervisor.state_folder import LOOPBACK


@dataclass(frozen=True)
class StackRequest:
    """What `up` requests of a new supervisor. Without a scale the state's last one is kept, initially 1; the same for
    seed, database and machine."""

    processes: tuple[Process, ...] = PROCESSES
    scale: float | None = None
    seed: int | None = None
    database: str = ""
    shared: tuple[str, ...] = SHARED_MODULES
    topology: str = ""
    """The machine of a new state: a built-in name, a machine file (YAML), or a drawing."""
    host: str = LOOPBACK
    """Address on which processes listen and reach each other; if they listen on all, they use the loopback address."""

    def to_json(self) -> str:
        return TypeAdapter(StackRequest).dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> StackRequest:
        return TypeAdapter(cls).validate_json(text)
