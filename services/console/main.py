"""Starts the console: `python -m services.console --help`."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
from pydantic import Field
from starlette.applications import Starlette

from matrixcommon.model.clock import Clock
from services.chassis.access import Tokens
from services.chassis.http import http_client
from services.chassis.http_server.serving import serve
from services.chassis.logging import configure_logging
from services.chassis.settings import Settings
from services.console.gateway.app import create_console
from services.console.live.broadcast import Broadcast
from services.console.live.collector import Collector


class ConsoleSettings(Settings):
    """The web console: it serves the page, relays its requests with the user's token, and streams the live state."""

    resource_url: str = Field("http://127.0.0.1:8401", description="URL of MatrixResource")
    link_url: str = Field("http://127.0.0.1:8402", description="URL of MatrixLink")
    compute_url: str = Field("http://127.0.0.1:8403", description="URL of MatrixCompute")
    infer_url: str = Field("http://127.0.0.1:8404", description="URL of CloudMatrix-Infer")
    agents_url: str = Field("http://127.0.0.1:8405", description="URL of the emulated hardware")

    def urls(self) -> dict[str, str]:
        return {
            "resource": self.resource_url,
            "link": self.link_url,
            "compute": self.compute_url,
            "infer": self.infer_url,
            "agents": self.agents_url,
        }


def build(
    settings: ConsoleSettings, clock: Clock, transports: dict[str, httpx.AsyncBaseTransport] | None = None
) -> Starlette:
    """The application. `transports` replace the network in tests, by service."""
    transports_by_service = transports or {}
    own_clients = {
        name: http_client(url, settings.token, transports_by_service.get(name)) for name, url in settings.urls().items()
    }
    user_clients = {
        name: http_client(url, "", transports_by_service.get(name), None) for name, url in settings.urls().items()
    }
    collector = Collector(own_clients, clock)
    return create_console(Tokens(settings.tokens), user_clients, collector, Broadcast(collector))


def main(argv: Sequence[str] | None = None) -> None:
    settings = ConsoleSettings.load("console", argv)
    configure_logging("console", settings.log_level)
    with settings.reporting_invalid_settings("console"):
        app = build(settings, settings.clock())
    serve(app, settings)
