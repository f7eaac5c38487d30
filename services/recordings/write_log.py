"""The log of users' requests to a process while its stack is recorded: a JSON line per request, in `recording/` of the
state folder.

A file there turns recording on; it is looked for only when a request may change something, and then at most once in
`RECHECK_WALL_S`. Requests among the stack's
own processes, agents' reports included, are consequences and are left out; they are recognised by the token's name.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.catalogue import BY_NAME

log = logging.getLogger(__name__)

FOLDER, ON = "recording", "on"
MUTATING_METHODS = ("POST", "PUT", "PATCH", "DELETE")
RECORDED_HEADERS = ("content-type", "if-match", "if-none-match", "idempotency-key")
"""Headers that affect the meaning of a request. The caller is not kept: a replay runs as administrator."""
RECHECK_WALL_S = 0.01
"""How long a process goes by what it saw last. Whoever turns recording on stops all processes for at least as long."""
BODY_BYTES_MAX = 1 << 20
"""The limit of services; larger bodies were refused."""

Scope = Any
Internal = Callable[[Scope], bool]


def is_process_request(scope: Scope) -> bool:
    """Whether the caller is a process of the stack, by the principal that the service's edge determined."""
    principal = scope.get("state", {}).get("principal")
    return principal is not None and principal.name in BY_NAME


class RecordingMiddleware:
    """Middleware that logs each request that may change something, while the stack is recorded."""

    def __init__(
        self, app: Callable[..., Any], state: Path, service: str, internal: Internal = is_process_request
    ) -> None:
        self._app, self._service, self._internal = app, service, internal
        self._on, self._file = str(state / FOLDER / ON), state / FOLDER / f"{service}.jsonl"
        self._was_on, self._recheck_at_wall_s = False, 0.0

    async def __call__(self, scope: Scope, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        if scope["type"] != "http" or scope["method"] not in MUTATING_METHODS or not self._is_recording():
            await self._app(scope, receive, send)
            return
        wall_s, body, status = time.time(), bytearray(), 0

        async def receive_copying() -> Any:
            message = await receive()
            if len(body) <= BODY_BYTES_MAX:
                body.extend(message.get("body") or b"")
            return message

        async def send_observing(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        await self._app(scope, receive_copying, send_observing)
        if not self._internal(scope) and len(body) <= BODY_BYTES_MAX:
            try:
                self._write({"wall_s": wall_s, **self._action(scope, bytes(body), status)})
            except OSError as wrong:  # the recording has ended meanwhile, or the disk is full; the answer was sent
                log.warning("could not record a request", extra={"service": self._service, "why": str(wrong)})

    def _is_recording(self) -> bool:
        now_wall_s = time.monotonic()
        if now_wall_s >= self._recheck_at_wall_s:
            self._was_on, self._recheck_at_wall_s = os.path.exists(self._on), now_wall_s + RECHECK_WALL_S
        return self._was_on

    def _action(self, scope: Scope, body: bytes, status: int) -> dict[str, Any]:
        """The fields of an Action, except its time."""
        headers: dict[str, str] = {_text(key).lower(): _text(value) for key, value in scope["headers"]}
        path = _text(scope.get("raw_path") or scope["path"].encode())
        query = _text(scope.get("query_string") or b"")
        return {
            "service": self._service,
            "method": scope["method"],
            "path": f"{path.partition('?')[0]}?{query}" if query else path,
            "headers": {key: headers[key] for key in RECORDED_HEADERS if key in headers},
            "body": body.decode("latin-1"),
            "status": status,
        }

    def _write(self, line: dict[str, Any]) -> None:
        """Append a line atomically, as other processes may write too."""
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
