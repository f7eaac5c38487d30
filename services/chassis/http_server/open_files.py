"""Open files of a server process: as many as its connections may need, and some for everything else."""

from __future__ import annotations

import resource

CONNECTIONS_MAX = 16_384
RESERVED_FILES = 256
"""Open files that no connection may take: the database, logs, calls of other services."""


def allow_connections(headroom: int = 0) -> int:
    """Set the limit on open files for CONNECTIONS_MAX connections, or as many as the system allows if the limit is to
    be raised by `headroom` later. Returns the number of connections for which there are files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    file_limit = CONNECTIONS_MAX + RESERVED_FILES
    if hard != resource.RLIM_INFINITY:
        file_limit = min(file_limit, max(hard - headroom, hard // 2))
    resource.setrlimit(resource.RLIMIT_NOFILE, (file_limit, hard))
    return max(file_limit - RESERVED_FILES, 1)
