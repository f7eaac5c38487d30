"""Fencing: whoever leads a service's work says with every request and every write which leader it is.

A leader is known by the service's name and a generation that only grows. A process that was paused, or cut off, while
another took over still believes that it leads; what it asks for bears an older generation and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from matrixcommon.model.errors import Malformed, StaleLeader

HEADER = "Fencing-Token"

_TOKEN = re.compile(r"([a-z][a-z0-9-]{0,62})/([0-9]{1,15})")


@dataclass(frozen=True)
class Fence:
    """Which leader does something. `refused` is called when somebody knows a newer one."""

    name: str
    generation: int
    refused: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)

    @property
    def token(self) -> str:
        return f"{self.name}/{self.generation}"

    def stale(self, newest: int) -> StaleLeader:
        """The refusal, where a leader of that generation is known."""
        return StaleLeader(
            f"{self.name} of generation {self.generation} leads no more: generation {newest} has taken over",
            field=HEADER,
        )


FENCE: ContextVar[Fence | None] = ContextVar("fence", default=None)
"""The leader that this process is, in the work that it does as such: all that it asks of others bears its token."""

ASKED_BY: ContextVar[Fence | None] = ContextVar("asked_by", default=None)
"""The leader in whose name the request under way was made; what is asked of others to answer it is not."""


def parse_fence(token: str) -> Fence:
    """The header's value. Raises Malformed."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise Malformed(f"{token[:80]!r} is no fencing token: it is NAME/GENERATION", field=HEADER)
    return Fence(found[1], int(found[2]))
