"""One-time login links, by which `matrixctl console` passes its token to a browser without showing it.

A client with a token deposits it and gets a code; whoever presents the code within a minute gets the token, once. Codes
are kept as digests and only in memory: after a restart links are invalid, and a new one is needed.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from matrixcommon.model.errors import NotFound, Unavailable

LINK_WALL_S = 60.0
LINKS_MAX = 100


@dataclass(frozen=True)
class _PendingLogin:
    token: str
    until: float


class LoginLinks:
    def __init__(self, wall_clock: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall_clock
        self._pending: dict[str, _PendingLogin] = {}

    def deposit(self, token: str) -> str:
        """Deposit a token and return its code. Raises Unavailable if too many links are unused."""
        now = self._wall()
        self._pending = {code: pending for code, pending in self._pending.items() if pending.until > now}
        if len(self._pending) >= LINKS_MAX:
            raise Unavailable("too many unused login links", retry_after_s=LINK_WALL_S)
        code = secrets.token_urlsafe(32)
        self._pending[_digest(code)] = _PendingLogin(token, now + LINK_WALL_S)
        return code

    def redeem(self, code: str) -> str:
        """The token, once. Raises NotFound."""
        pending = self._pending.pop(_digest(code), None)
        if pending is None or pending.until <= self._wall():
            raise NotFound("this link has been used or is older than a minute; `matrixctl console` makes a new one")
        return pending.token


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
