"""Brings the database to the present tables. Alembic is only loaded when there is something to do: it costs memory."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, inspect, text

MIGRATIONS = Path(__file__).parent / "migrations"


def newest_revision() -> str:
    return max(path.stem.split("_")[0] for path in (MIGRATIONS / "versions").glob("[0-9]*.py"))


def migrate(engine: Engine) -> bool:
    """Returns whether migrations had to run."""
    with engine.connect() as connection:
        if inspect(connection).has_table("alembic_version"):
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            if found == newest_revision():
                return False
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["engine"] = engine
    command.upgrade(config, "head")
    return True
