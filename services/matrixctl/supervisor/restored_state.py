"""The switch of a state folder to another state, safe against interruption.

The new state is in `restoring/`, which gets that name only once it is complete. From then on the folder's own databases
are obsolete: they are replaced one after the other, and if that is interrupted, the next start of the stack continues
it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from services.matrixctl.supervisor.state_folder import StateFolder, write_atomically
from services.snapshots.machine_file import MACHINE

RESTORING, STACK_FILE = "restoring", "stack.json"
DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files of a SQLite database."""


def pending_state(folder: StateFolder) -> Path | None:
    """The folder of a complete state that is not yet in force."""
    place = folder.path / RESTORING
    return place if place.is_dir() else None


def activate_pending_state(folder: StateFolder) -> bool:
    """Put the state in `restoring/` into force, if there is one; return whether there was. No process of the stack may
    run."""
    place = pending_state(folder)
    if place is None:
        return False
    wanted = {file.name for file in place.glob("*.db")}
    placed = place / "placed"
    if not placed.exists():
        for old in [each for each in folder.path.glob("*.db*") if each.is_file()]:
            old.unlink()
        placed.touch()
    for name in sorted(wanted):
        (place / name).replace(folder.path / name)
    folder.process_faults.unlink(missing_ok=True)  # the struck processes and databases no longer exist
    for machine in place.glob(f"{MACHINE}.*"):
        machine.replace(folder.path / machine.name)
    stack_file = place / STACK_FILE
    if stack_file.exists():
        write_atomically(folder.stack_file, stack_file.read_text())
        folder.clock_file.unlink(missing_ok=True)  # time continues from the restored state
    shutil.rmtree(place)
    return True
