"""What MatrixResource is asked and what it shows: the wire shapes of nodes, NPUs, allocations and agent reports."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PlainSerializer

MEMBERS_MAX = 48 * 1024
"""No request for more nodes than this is meaningful; it bounds what one request can make us compute."""

PortName = Annotated[str, Field(max_length=40)]
PartName = Annotated[str, Field(max_length=80)]


def _as_written(count: float) -> int | float:
    return int(count) if count == int(count) else count


NpuCount = Annotated[float, PlainSerializer(_as_written, return_type=int | float)]
"""NPUs with single dies as halves: 8, 0.5."""

DieNumber = Annotated[int, Field(ge=0, le=15)]
