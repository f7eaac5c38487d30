"""Serve an application until SIGTERM, on one port, with open watches cut after a second."""

from __future__ import annotations

import logging
import socket

import uvicorn
from starlette.types import ASGIApp

from matrixcommon.model.clock import Clock
from services.chassis.emulated_date import EmulatedDate
from services.chassis.garbage import keep_what_is_there
from services.chassis.settings import Settings

log = logging.getLogger(__name__)


def serve(app: ASGIApp, settings: Settings, clock: Clock | None = None) -> None:
    """Block until told to stop; what is built by now stays. With port 0 the port taken is in the log line `listening`.
    With a clock the Date of answers is its time, else the wall's."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # Named TCP, because asyncio turns Nagle's delay off only where the protocol is named: 40 ms an answer otherwise.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(512)
    except OSError as wrong:
        raise SystemExit(f"cannot listen on {settings.host}, port {settings.port}: {wrong}") from wrong
    log.info("listening", extra={"url": f"http://{settings.host}:{listener.getsockname()[1]}"})
    config = uvicorn.Config(
        app if clock is None else EmulatedDate(app, clock),
        date_header=clock is None,
        log_config=None,
        access_log=False,
        http="httptools",
        loop=settings.EVENT_LOOP,
        lifespan="on",
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    keep_what_is_there()
    uvicorn.Server(config).run(sockets=[listener])
