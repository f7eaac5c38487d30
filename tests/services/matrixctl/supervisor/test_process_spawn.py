"""What the supervisor imports for all its children."""

import subprocess
import sys
from pathlib import Path

import pytest

from services.matrixctl.supervisor.process_spawn import run

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


def test_why_a_process_ends_is_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "refusing"
    package.mkdir()
    (package / "main.py").write_text("def main(arguments):\n    raise SystemExit('its database is damaged')\n")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("services.matrixctl.supervisor.process_spawn._set_title", lambda name: None)
    monkeypatch.setattr("services.matrixctl.supervisor.process_spawn.gc.disable", lambda: None)
    monkeypatch.setattr("services.matrixctl.supervisor.process_spawn.block_modules", lambda: None)
    monkeypatch.setattr(sys, "argv", [])
    assert run("refusing", "refusing", tmp_path / "refusing.pid") == 1
    assert capfd.readouterr().err == "its database is damaged\n"
