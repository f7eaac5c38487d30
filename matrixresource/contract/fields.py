"""Field types and limits that several wire shapes share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PlainSerializer

MEMBERS_MAX = 48 * 1024
"""The most nodes in one request: no larger one is meaningful, and it bounds the work that a request can cause."""

PortName = Annotated[str, Field(max_length=40)]
PartName = Annotated[str, Field(max_length=80)]


def _without_zero_fraction(count: float) -> int | float:
    return int(count) if count == int(count) else count


NpuCount = Annotated[float, PlainSerializer(_without_zero_fraction, return_type=int | float)]
"""NPUs, a single die counting as a half: 8, 0.5."""

DieNumber = Annotated[int, Field(ge=0, le=15)]
