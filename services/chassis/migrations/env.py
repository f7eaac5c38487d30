from alembic import context

from services.chassis.migrating import run

run(context.config.attributes["tables"])
