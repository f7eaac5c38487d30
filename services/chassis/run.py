"""The `main` of a service with a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy.exc import DBAPIError
from starlette.types import ASGIApp

from matrixcommon.model.clock import Clock
from services.chassis.database import (
    DatabaseEngine,
    Migrations,
    database_unavailable_reason,
    open_database,
    unusable_database,
)
from services.chassis.http_server.serving import serve
from services.chassis.logging import configure_logging
from services.chassis.settings import ServiceSettings
from services.chassis.tracing import configure_tracing
from services.recordings.write_log import RecordingMiddleware

S = TypeVar("S", bound=ServiceSettings)


def service_main(
    settings_class: type[S], migrations: Migrations, build: Callable[[S, Clock, DatabaseEngine], ASGIApp]
) -> Callable[..., None]:
    """The `main(argv)` of a service with its own database, which serves the application made by `build`."""

    def main(argv: Sequence[str] | None = None) -> None:
        name = migrations.service
        settings = settings_class.load(name, argv)
        configure_logging(name, settings.log_level)
        configure_tracing(name)
        with settings.reporting_invalid_settings(name):
            clock = settings.clock()
            database = open_database(settings, migrations)
            try:
                app = build(settings, clock, database)
            except DBAPIError as wrong:
                if database_unavailable_reason(wrong) is None:
                    raise
                raise unusable_database(settings, name, wrong) from wrong
        serve(RecordingMiddleware(app, settings.state, name), settings, clock)

    return main
