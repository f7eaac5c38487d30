"""A lock for one process per state folder, released by the kernel however the process ends."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path
from typing import IO


def acquire_folder_lock(path: Path, holder_pid: int) -> IO[str]:
    """Lock the file for the process `holder_pid`, until it is closed or all processes that have it open end.

    Exits with 1 and one line if another process holds it.
    """
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.seek(0)
        print(f"kube: {path.parent} is in use by process {handle.read().strip() or '?'}", file=sys.stderr)
        raise SystemExit(1) from None
    handle.truncate(0)
    handle.write(str(holder_pid))
    handle.flush()
    return handle
