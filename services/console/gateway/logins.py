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
class _Left:
    token: str
    until: float


class LoginLinks:
    def __init__(self, wall: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._left: dict[str, _Left] = {}

    def leave(self, token: str) -> str:
        """Deposit a token and return its code. Raises Unavailable if too many links are unused."""
        now = self._wall()
        self._left = {code: left for code, left in self._left.items() if left.until > now}
        if len(self._left) >= LINKS_MAX:
            raise Unavailable("too many unused login links", retry_after_s=LINK_WALL_S)
        code = secrets.token_urlsafe(32)
        self._left[_digest(code)] = _Left(token, now + LINK_WALL_S)
        return code

    def redeem(self, code: str) -> str:
        """The token, once. Raises NotFound."""
        left = self._left.pop(_digest(code), None)
        if left is None or left.until <= self._wall():
            raise NotFound("this link has been used or is older than a minute; `matrixctl console` makes a new one")
        return left.token


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()
