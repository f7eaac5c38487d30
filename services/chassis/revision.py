"""Write the next migration of a service from the difference between its tables and its migrations.

python -m services.chassis.revision resource "add quotas"
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

SCHEMA = "v1"
"""The line of revisions. A new one begins when the tables are made anew instead of changed, before a release only."""

TEMPLATE = '''"""${message}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
'''


def main(service: str, message: str) -> None:
    package = importlib.import_module(f"services.{service}")
    migrations = Path(str(package.__file__)).parent / "migrations"
    (migrations / "versions").mkdir(parents=True, exist_ok=True)
    template = migrations / "script.py.mako"
    template.write_text(TEMPLATE)
    try:
        config = Config()
        config.set_main_option("script_location", str(migrations))
        config.attributes["engine"] = create_engine("sqlite://", poolclass=StaticPool)
        number = len(list((migrations / "versions").glob("*.py"))) + 1
        command.upgrade(config, "head")
        command.revision(config, message, autogenerate=True, rev_id=f"{SCHEMA}_{number:04d}")
    finally:
        template.unlink()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
