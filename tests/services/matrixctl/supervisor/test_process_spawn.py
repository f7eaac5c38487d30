"""What the supervisor imports for all its children."""

import subprocess
import sys

SCRIPT = """
import gc, sys
from services.matrixctl.supervisor.process_spawn import SHARED_MODULES, preload
preload(SHARED_MODULES)
import fastapi
fastapi.FastAPI().get("/")(lambda names: {})
print(gc.isenabled(), gc.get_freeze_count() > 10_000, *sorted(name for name in sys.modules if sys.modules[name]))
"""


UNUSED = ("sqlalchemy.dialects.postgresql", "alembic", "rich", "pygments", "pydantic.v1")


def test_what_is_shared_is_frozen_and_has_nothing_that_nobody_uses() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    collecting, frozen, *modules = done.stdout.split()
    assert (collecting, frozen) == ("True", "True")
    assert "sqlalchemy.dialects.sqlite" in modules
    assert not [module for module in modules if module.startswith(UNUSED)]
