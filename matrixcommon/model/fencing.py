"""Fencing: a service's leader identifies itself with every request and every write.

A leader is identified by the service's name and a generation that only increases. A process that was paused or
partitioned while another took over still believes that it leads; its requests carry an older generation and are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from matrixcommon.model.errors import Malformed, StaleLeader

HEADER = "Fencing-Token"

_TOKEN = re.compile(r"([a-z][a-z0-9-]{0,62})/([0-9]{1,15})")


@dataclass(frozen=True)
class Fence:
    """The leader that acts. `refused` is called when a newer one turns out to be known."""

    name: str
    generation: int
    refused: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)

    @property
    def token(self) -> str:
        return f"{self.name}/{self.generation}"

    def stale_error(self, newest: int) -> StaleLeader:
        """The refusal to use when a leader of generation `newest` is known."""
        return StaleLeader(
            f"{self.name} of generation {self.generation} no longer leads: generation {newest} has taken over",
            field=HEADER,
        )


class KnownLeaders(Protocol):
    """What a service knows of the leaders that send it requests."""

    def record_leader(self, fence: Fence) -> None:
        """Record the leader that a request comes from. Raises StaleLeader if a newer one is known."""


FENCE: ContextVar[Fence | None] = ContextVar("fence", default=None)
"""This process as a leader, in the work that it does as one: all requests that it sends carry the token."""

REQUEST_FENCE: ContextVar[Fence | None] = ContextVar("asked_by", default=None)
"""The leader that sent the request being handled. Requests sent to answer it do not carry its token."""


def parse_fence(token: str) -> Fence:
    """Parse the header's value. Raises Malformed."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise Malformed(f"{token[:80]!r} is not a fencing token: write NAME/GENERATION", field=HEADER)
    return Fence(found[1], int(found[2]))
