"""What the supervisor imports for all its children."""

import subprocess
import sys

SCRIPT = """
import gc, sys
from services.matrixctl.supervisor.process_spawn import SHARED_MODULES, preload
preload(SHARED_MODULES)
print(gc.isenabled(), gc.get_freeze_count() > 10_000, *sorted(sys.modules))
"""


def test_what_is_shared_is_frozen_and_has_nothing_of_a_database_that_is_not_there() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    collecting, frozen, *modules = done.stdout.split()
    assert (collecting, frozen) == ("True", "True")
    assert "sqlalchemy.dialects.sqlite" in modules
    assert not [module for module in modules if module.startswith(("sqlalchemy.dialects.postgresql", "alembic"))]
