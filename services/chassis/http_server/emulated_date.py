"""The Date header of answers in emulated time, like all times in them."""

from __future__ import annotations

from email.utils import formatdate

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from matrixcommon.model.clock import Clock


class EmulatedDate:
    """Middleware that adds a Date header with the time of a clock, formatted once per second. A relayed answer that has
    a Date keeps it (RFC 9110, 6.6.1)."""

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock
        self._second = -1
        self._date = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if not any(name.lower() == b"date" for name, _ in headers):
                    headers.append((b"date", self.date()))
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, send_dated)

    def date(self) -> bytes:
        """The date in RFC 9110's format."""
        second = int(self._clock.now())
        if second != self._second:
            self._second, self._date = second, formatdate(second, usegmt=True).encode()
        return self._date
