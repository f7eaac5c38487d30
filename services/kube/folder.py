"""One process per state folder: a lock that ends with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import IO


def hold(path: Path) -> IO[str]:
    """Lock the file until it is closed or the process dies. Exits with 1 and one line when another process holds it."""
    handle = path.open("a+")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.seek(0)
        print(f"kube: {path.parent} is in use by process {handle.read().strip() or '?'}", file=sys.stderr)
        raise SystemExit(1) from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle
