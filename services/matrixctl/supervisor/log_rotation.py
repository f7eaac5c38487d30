"""Keeps the logs of a stack bounded, without a word to the processes that write them.

A log is copied and then emptied in place: its writers hold it open for appending, so they go on at its new end, those
that an earlier supervisor started included. What is written between the copy and the emptying would be lost, so the
file is emptied only where it is still as long as what was copied.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

LOG_BYTES_MAX = 8 << 20
LOGS_KEPT = 2
"""Older ones beside each log: NAME.log.1 is the newest of them."""
_TRIES = 20


def rotate(file: Path, bytes_max: int = LOG_BYTES_MAX, kept: int = LOGS_KEPT) -> bool:
    """Begin a log anew that grew past `bytes_max`; whether that was done. A log that is missing is left alone."""
    if not file.exists() or file.stat().st_size < bytes_max:
        return False
    copy = file.with_name(f"{file.name}.copy")
    try:
        whole = _copied(file, copy)
    except OSError:
        copy.unlink(missing_ok=True)  # half a copy takes the little room that is left
        raise
    if not whole:
        copy.unlink()
        return False
    for age in range(kept, 1, -1):
        older = file.with_name(f"{file.name}.{age - 1}")
        if older.exists():
            older.replace(file.with_name(f"{file.name}.{age}"))
    copy.replace(file.with_name(f"{file.name}.1"))
    return True


def _copied(file: Path, copy: Path) -> bool:
    """Copy a log and empty it; whether its writers stood still for long enough."""
    with file.open("rb") as source, copy.open("wb") as target:
        os.chmod(copy, 0o600)
        for _ in range(_TRIES):
            shutil.copyfileobj(source, target)
            target.flush()
            if os.fstat(source.fileno()).st_size == target.tell():
                os.truncate(file, 0)
                return True
    return False


def rotate_all(folder: Path) -> list[str]:
    """Look at every log of a folder; the names of those that were begun anew. One that the disk has no room to copy is
    left as it is."""
    begun = []
    for file in sorted(folder.glob("*.log")):
        with suppress(OSError):
            if rotate(file):
                begun.append(file.name)
    return begun
