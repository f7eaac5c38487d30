"""Rotates the logs of a stack without involving the processes that write them.

A log is copied and then truncated in place. Its writers have it open for appending, so they continue at its new end,
including those started by an earlier supervisor. Lines written between copy and truncation would be lost, so the file
is truncated only if it still has the length of the copy.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

LOG_BYTES_MAX = 8 << 20
LOGS_KEPT = 2
"""Number of old logs kept; NAME.log.1 is the newest."""
_COPY_ATTEMPTS = 20


def rotate(file: Path, bytes_max: int = LOG_BYTES_MAX, kept: int = LOGS_KEPT) -> bool:
    """Rotate a log that is larger than `bytes_max`; return whether it was rotated. A missing log is ignored."""
    if not file.exists() or file.stat().st_size < bytes_max:
        return False
    copy = file.with_name(f"{file.name}.copy")
    try:
        complete = _copy_and_truncate(file, copy)
    except OSError:
        copy.unlink(missing_ok=True)  # a partial copy would use up the remaining space
        raise
    if not complete:
        copy.unlink()
        return False
    for age in range(kept, 1, -1):
        older = file.with_name(f"{file.name}.{age - 1}")
        if older.exists():
            older.replace(file.with_name(f"{file.name}.{age}"))
    copy.replace(file.with_name(f"{file.name}.1"))
    return True


def _copy_and_truncate(file: Path, copy: Path) -> bool:
    """Copy a log and truncate it; return False if it was written to meanwhile."""
    with file.open("rb") as source, copy.open("wb") as target:
        os.chmod(copy, 0o600)
        for _ in range(_COPY_ATTEMPTS):
            shutil.copyfileobj(source, target)
            target.flush()
            if os.fstat(source.fileno()).st_size == target.tell():
                os.truncate(file, 0)
                return True
    return False


def rotate_all(folder: Path) -> list[str]:
    """Rotate the logs of a folder as needed; return the names of those rotated. A log that does not fit on the disk a
    second time is left as it is."""
    rotated = []
    for file in sorted(folder.glob("*.log")):
        with suppress(OSError):
            if rotate(file):
                rotated.append(file.name)
    return rotated
