"""The `main` of a service with a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy.exc import DBAPIError
from starlette.types import ASGIApp

from matrixcommon.model.clock import Clock
from services.chassis.database import DatabaseEngine, Migrations, database_refuses, opened, unusable
from services.chassis.logging import configure
from services.chassis.serving import serve
from services.chassis.settings import ServiceSettings
from services.chassis.tracing import configure_tracing
from services.recordings.write_log import Recorded

S = TypeVar("S", bound=ServiceSettings)


def main_of(
    settings_of: type[S], migrations: Migrations, build: Callable[[S, Clock, DatabaseEngine], ASGIApp]
) -> Callable[..., None]:
    """The `main(argv)` of a service with its own database, which serves the application made by `build`."""

    def main(argv: Sequence[str] | None = None) -> None:
        name = migrations.service
        settings = settings_of.load(name, argv)
        configure(name, settings.log_level)
        configure_tracing(name)
        with settings.in_use(name):
            clock = settings.clock()
            database = opened(settings, migrations)
            try:
                app = build(settings, clock, database)
            except DBAPIError as wrong:
                if database_refuses(wrong) is None:
                    raise
                raise unusable(settings, name, wrong) from wrong
        serve(Recorded(app, settings.state, name), settings, clock)

    return main
