"""Limits on readers of the live stream: in total, and a tenth of that per token.

A browser reads one stream, however many of its tabs show the console. Without tokens all callers are the same, so there
is no limit per caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from matrixcommon.api.authorization import ANONYMOUS, Principal
from matrixcommon.model.errors import TooManyRequests, Unavailable

STREAMS_MAX = 200
STREAMS_PER_TOKEN_MAX = 20
RETRY_AFTER_S = 10.0

Caller = tuple[str, str]


class Streams:
    """The open streams by caller: the project and name of a token."""

    def __init__(self) -> None:
        self._open: Counter[Caller] = Counter()

    def admit(self, principal: Principal) -> None:
        """Raise TooManyRequests if the caller has its maximum of streams, Unavailable if all are taken."""
        if principal is not ANONYMOUS and self._open[_caller(principal)] >= STREAMS_PER_TOKEN_MAX:
            raise TooManyRequests(
                f"{principal.name} has {STREAMS_PER_TOKEN_MAX} open streams, the maximum per token: close the console "
                "in another browser, or use your own token",
                retry_after_s=RETRY_AFTER_S,
            )
        if self._open.total() >= STREAMS_MAX:
            raise Unavailable(f"{STREAMS_MAX} streams are open, which is the maximum", retry_after_s=RETRY_AFTER_S)

    @contextmanager
    def counted(self, principal: Principal) -> Iterator[None]:
        caller = _caller(principal)
        self._open[caller] += 1
        try:
            yield
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]


class CountedStream(StreamingResponse):
    """A stream that is counted until it ends, however it ends."""

    def __init__(self, streams: Streams, principal: Principal, frames: AsyncIterator[bytes]) -> None:
        super().__init__(frames, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._streams, self._principal = streams, principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.counted(self._principal):
            await super().__call__(scope, receive, send)


def _caller(principal: Principal) -> Caller:
    return principal.project, principal.name
