"""The step in which a state folder changes over to another state, whatever interrupts it.

What is to be in force lies complete in `restoring/`, under that name only once it is complete. From then on the
folder's own databases are of no interest any more: they are replaced, one after the other, and who is interrupted at it
is followed by whoever starts the stack next.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from services.matrixctl.supervisor.state_folder import Folder, write
from services.snapshots.machine_file import MACHINE

RESTORING, STACK_FILE = "restoring", "stack.json"
PARTS = ("", "-wal", "-shm", "-journal")
"""What a SQLite database consists of, by the end of the file's name."""


def pending(folder: Folder) -> Path | None:
    """What is to be in force and is not yet."""
    place = folder.path / RESTORING
    return place if place.is_dir() else None


def change_over(folder: Folder) -> bool:
    """Put what lies in `restoring/` into force; whether anything did. No process of the stack may run."""
    place = pending(folder)
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
    folder.process_faults.unlink(missing_ok=True)  # whom they struck is no more, and the databases are others
    for machine in place.glob(f"{MACHINE}.*"):
        machine.replace(folder.path / machine.name)
    described = place / STACK_FILE
    if described.exists():
        write(folder.stack_file, described.read_text())
        folder.clock_file.unlink(missing_ok=True)  # time is where the restored state has it
    shutil.rmtree(place)
    return True
